import { usdAttos } from '../lib/money.ts'
import type { TicketCharge } from '../metering/ingest/charges.ts'
import { type Credit, burn, burnOrder, bySigning } from './account.ts'
import type { ChainOwner, Draw } from './chain.ts'
import { emptyAccount } from './replay.ts'

/** What one ticket of a charge took. */
export interface TicketShare {
  readonly eventId: string
  readonly draws: readonly Draw[]
  readonly overage: bigint
}

/** A charge with the tickets that name it, all of them, and the credits that it drew from. */
export interface SharedCharge {
  readonly owner: ChainOwner
  readonly draws: readonly Draw[]
  readonly overage: bigint
  readonly credits: readonly Credit[]
  readonly tickets: readonly TicketCharge[]
}

/**
 * Which credits each ticket of a charge burned, in the order of signing, by the rules that booked it. What the charge drew of
 * a credit stands for what had remained: a ticket takes all that it can of the first credit that may pay for it, so a
 * greater remainder changes nothing. Null where the tickets do not make the charge, as after a change of a credit's end.
 */
export function shareCharge(charge: SharedCharge): TicketShare[] | null {
  const { owner, credits, tickets } = charge
  const drawn = new Map(charge.draws.map(({ creditId, amount }) => [creditId, -amount]))
  const account = emptyAccount(owner)
  account.credits = credits
    .map((credit) => ({ ...credit, remaining: usdAttos(drawn.get(credit.id) ?? 0n) }))
    .sort(burnOrder)
  for (const ticket of tickets.toSorted(bySigning))
    burn(account, {
      appId: account.appId,
      userId: account.userId,
      tickets: 1,
      unpriced: 0,
      waited: 0,
      cost: ticket.cost,
      ticketsHash: null,
      from: ticket.signedAt,
      to: ticket.signedAt,
      each: () => [ticket],
      id: ticket.eventId,
      at: ticket.signedAt,
      ratesKnownAt: null,
    })
  const isWhole =
    drawn.size === credits.length &&
    account.credits.every(({ remaining }) => remaining === 0n) &&
    account.overage === charge.overage
  if (!isWhole) return null
  return account.entries.map(({ causeId: eventId, draws, overage }) => ({
    eventId,
    draws,
    overage,
  }))
}
