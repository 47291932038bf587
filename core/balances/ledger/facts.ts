import type { UsdAttos } from '../../lib/money.ts'
import type { TicketCharge } from '../../metering/ingest/charges.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { Account, EnteredPeriod, Entry } from '../accounts/account.ts'
import type { Credit } from '../accounts/credits.ts'
import type { PlanVersion, Slot } from '../accounts/terms.ts'

/** The stored facts from which a replay recomputes a ledger, and its findings. */

/** An entry as stored. */
export interface StoredEntry extends Omit<Entry, 'facts' | 'tickets'> {
  readonly tickets: number | null
  readonly hash: string
}

/** The tickets of a charge, with their hash. */
export interface ChargedTickets {
  readonly tickets: readonly TicketCharge[]
  readonly hash: string | null
  /**
   * True if some tickets are only in an archive. The stored draws of the charge are then accepted.
   */
  readonly isArchived: boolean
}

export interface StoredAdjustment {
  readonly amount: UsdAttos
  readonly reason: string
  readonly author: string
  readonly eventId: string | null
  readonly at: Date
  readonly held: UsdAttos
  readonly feature: { readonly pipeline: string; readonly modelId: string } | null
  /** Of a refund: the credit that it takes back. */
  readonly creditId?: string | undefined
}

/** The facts about a user, without the ledger entries. */
export interface AccountFacts {
  readonly owner: UserKey
  /** Credits by id, with their stored remaining amounts. */
  readonly credits: ReadonlyMap<string, Credit>
  readonly adjustments: ReadonlyMap<string, StoredAdjustment>
  /** In order. */
  readonly periods: readonly EnteredPeriod[]
  /**
   * Subscriptions that held the slot, in order. The last one holds it now and may have a successor.
   */
  readonly subscriptions: readonly HeldSubscription[]
  readonly versions: readonly PlanVersion[]
  readonly balance: StoredBalance | null
}

export interface HeldSubscription extends Slot {
  readonly id: string
  /** Null for the subscription that holds the slot. */
  readonly endedAt: Date | null
}

export interface StoredBalance extends Pick<
  Account,
  'periodStart' | 'periodEnd' | 'periodCountsFrom' | 'periodConsumed'
> {
  readonly bookedThrough: Date
  readonly head: string | null
}

/** A stored column that differs from the value computed from the facts. */
export interface ReplayFinding {
  readonly table: 'ledger_entries' | 'grants' | 'balances' | 'periods' | 'subscriptions'
  readonly key: Readonly<Record<string, string>>
  readonly column: string
  readonly stored: string | null
  readonly expected: string | null
}

export type Compare = (
  column: string,
  stored: string | null,
  expected: string | null,
) => ReplayFinding[]

export const comparer =
  (table: ReplayFinding['table'], key: ReplayFinding['key']): Compare =>
  (column, stored, expected) =>
    stored === expected ? [] : [{ table, key, column, stored, expected }]
