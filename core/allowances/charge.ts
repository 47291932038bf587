import type { AppId, UserId } from '../platform/ids.ts'
import { type UsdAttos, usdAttos } from '../lib/money.ts'

/** What one priced ticket takes from its user's allowances. */
export interface TicketCharge {
  readonly appId: AppId
  readonly userId: UserId
  readonly eventId: string
  readonly signedAt: Date
  readonly pipeline: string
  readonly modelId: string
  readonly cost: UsdAttos
}

/** What priced tickets of one user take together. */
export interface UserCharge {
  readonly appId: AppId
  readonly userId: UserId
  readonly tickets: number
  readonly cost: UsdAttos
  /** None of them was signed before this instant, and none after the next. */
  readonly from: Date
  readonly to: Date
  /** The tickets one by one: seldom needed, and many. */
  readonly each: () => readonly TicketCharge[]
}

/** The charges of tickets, one for each user. */
export function userCharges(tickets: readonly TicketCharge[]): UserCharge[] {
  return [...Map.groupBy(tickets, ({ userId }) => userId)].map(([userId, each]) => {
    const times = each.map(({ signedAt }) => signedAt.getTime())
    const cost = usdAttos(each.reduce((sum: bigint, ticket) => sum + ticket.cost, 0n))
    const [from, to] = [Math.min(...times), Math.max(...times)].map((ms) => new Date(ms))
    const [first] = each
    if (!first || !from || !to) throw new Error('a charge is for at least one ticket')
    return { appId: first.appId, userId, tickets: each.length, cost, from, to, each: () => each }
  })
}
