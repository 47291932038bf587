import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { AppId, UserId } from '../../platform/ids.ts'

/** What metering asks of the ledger of allowances. */

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
  /** Lists the tickets. The ledger seldom needs them, and they are many. */
  readonly each: () => readonly TicketCharge[]
}

/**
 * Charges users inside the caller's transaction and returns those that have nothing left. `id` names the charge in the
 * ledger, `at` is its time.
 */
export type Charge = (
  db: Db,
  charges: readonly UserCharge[],
  options: { id: string; at: Date },
) => Promise<UserId[]>

/** Groups priced tickets into one charge for each user. */
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
