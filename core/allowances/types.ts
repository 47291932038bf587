import type { AppId, UserId } from '../platform/ids.ts'
import type { UsdAttos } from '../lib/money.ts'

/**
 * Invariants of an account, checked by properties and again by constraints in SQL:
 * 1. balance = sum of what remains of its grants = fold of its ledger entries.
 * 2. granted + adjusted = balance + (consumed - overage) + expired, to the atto-dollar.
 * 3. Entries are numbered without gaps; grants never change but in what remains.
 */
export interface Account {
  readonly appId: AppId
  readonly userId: UserId
  seq: bigint
  balance: UsdAttos
  granted: UsdAttos
  /** The part of granted that was not included usage. */
  topup: UsdAttos
  consumed: UsdAttos
  overage: UsdAttos
  expired: UsdAttos
  periodStart: Date
  periodEnd: Date
  /** Tickets signed from here on belong to the period: its start, or any time in a user's first. */
  periodCountsFrom: Date
  periodConsumed: UsdAttos
  /** Unexpired grants in burn order. */
  grants: Grant[]
  /** Entries made since it was read. */
  readonly entries: Entry[]
}

export const grantSources = ['trial', 'manual', 'promo', 'plan_adjustment'] as const
export type GrantSource = (typeof grantSources)[number]

export interface Grant {
  readonly id: string
  /** `included`: usage included in the plan, for one period. `adjustment`: given by a correction, which no figure of grants counts. */
  readonly kind: 'included' | 'grant' | 'adjustment'
  readonly source: GrantSource
  readonly featureKey: string | null
  readonly amount: UsdAttos
  remaining: UsdAttos
  /** Lower burns first. */
  readonly priority: number
  readonly effectiveAt: Date
  readonly expiresAt: Date | null
  expiredAt: Date | null
  readonly createdAt: Date
  /** Where it stands against its row: written by the next save. */
  state: 'stored' | 'changed' | 'new'
}

export interface Entry {
  readonly seq: bigint
  readonly kind: 'grant' | 'charge' | 'expire' | 'adjustment'
  /** Tickets that a charge covers. */
  readonly tickets?: number
  /** Signed change of the balance. */
  readonly amount: UsdAttos
  readonly overage: UsdAttos
  readonly balanceAfter: UsdAttos
  /** The grant, the adjustment, or the charge that the tickets name. */
  readonly causeId: string
  readonly createdAt: Date
}
