import { usdAttos } from '../../lib/money.ts'
import type { TicketCharge } from '../../metering/ingest/charges.ts'
import { newAccount } from '../accounts/account.ts'
import type { Credit } from '../accounts/credits.ts'
import { burn, bySigning, createCharge } from '../accounts/burning.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { CreditDebit } from '../accounts/chain.ts'

/** The part of a charge that one ticket took. */
export interface TicketShare {
  readonly eventId: string
  readonly draws: readonly CreditDebit[]
  readonly overage: bigint
}

/** A charge with all of its tickets and the credits that it drew from. */
export interface SharedCharge {
  readonly owner: UserKey
  readonly draws: readonly CreditDebit[]
  readonly overage: bigint
  readonly credits: readonly Credit[]
  readonly tickets: readonly TicketCharge[]
}

/**
 * Returns which credits each ticket of a charge burned, in signing order, by the rules that booked
 * the charge. Uses the amount drawn from a credit as its remaining amount: a ticket takes all that
 * it can from the first credit that may pay for it, so a larger remainder changes nothing. Returns
 * null if the tickets do not add up to the charge, for example after a credit's end was changed.
 */
export function shareCharge(charge: SharedCharge): TicketShare[] | null {
  const { owner, credits, tickets } = charge
  const drawn = new Map(charge.draws.map(({ creditId, amount }) => [creditId, -amount]))
  const account = newAccount({
    ...owner,
    credits: credits.map((credit) => ({
      ...credit,
      remaining: usdAttos(drawn.get(credit.id) ?? 0n),
    })),
  })
  for (const ticket of tickets.toSorted(bySigning))
    burn(account, createCharge(account, [ticket], ticket.eventId))
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
