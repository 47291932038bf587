import { hash } from 'node:crypto'
import type { UsdAttos } from '../../lib/money.ts'
import type { AppId, UserId, UserKey } from '../../shared/ids.ts'

/**
 * Chains the entries of an account (docs/ledger.md, "Chain"). The hash of an entry is the SHA-256 of
 * the previous hash and all of its fields, so that changing, adding or removing an entry changes
 * every later hash.
 */

/** A change of a credit's remaining amount; negative for a payment. */
export interface CreditDebit {
  readonly creditId: string
  readonly amount: UsdAttos
}

/** Facts about an entry's cause that must never change. They are hashed with the entry. */
export type Facts = readonly (string | null)[]

/** The owner charge of a user's charge, and the account that paid it. */
export interface OwnerShare {
  /** A user of the platform app. */
  readonly userId: UserId
  readonly amount: UsdAttos
}

/** Returns the facts of a charge: its owner's share, or the app that an owner charge is for. */
export function chargeFacts({
  owner,
  chargedApp,
}: {
  readonly owner: OwnerShare | null
  readonly chargedApp: AppId | null
}): Facts {
  if (owner) return ['owner', owner.userId, String(owner.amount)]
  return chargedApp ? ['app', chargedApp] : []
}

/** The hashed fields of an entry: all except its hash. */
export interface ChainedEntry {
  readonly seq: bigint
  readonly kind: string
  readonly amount: UsdAttos
  readonly overage: UsdAttos
  readonly collected: UsdAttos
  readonly balanceAfter: UsdAttos
  readonly causeId: string
  readonly createdAt: Date
  readonly tickets?: number | null
  readonly draws: readonly CreditDebit[]
  readonly periodAmount: UsdAttos
  readonly unpricedChange: number
  readonly ratesKnownAt: Date | null
  readonly ticketsHash: string | null
  readonly facts: Facts
}

/**
 * Returns the hash of an entry in hexadecimal. `previous` is the hash of the entry before it; null
 * for the first.
 */
export function hashEntry(
  { appId, userId }: UserKey,
  previous: string | null,
  entry: ChainedEntry,
): string {
  const text = JSON.stringify([
    previous ?? '',
    appId,
    userId,
    String(entry.seq),
    entry.kind,
    String(entry.amount),
    String(entry.overage),
    String(entry.balanceAfter),
    entry.causeId,
    entry.createdAt.toISOString(),
    entry.tickets ?? null,
    entry.draws.map(({ creditId, amount }) => [creditId, String(amount)]),
    String(entry.periodAmount),
    entry.unpricedChange,
    entry.ratesKnownAt?.toISOString() ?? null,
    entry.ticketsHash,
    entry.facts,
    // Absent in other entries, so that the hashes from before payments stay.
    ...(entry.collected === 0n ? [] : [String(entry.collected)]),
  ])
  return hash('sha256', text, 'hex')
}

export interface CreditFacts {
  readonly kind: string
  readonly source: string
  readonly featureKey: string | null
  readonly amount: UsdAttos
  readonly priority: number
  readonly effectiveAt: Date
  readonly expiresAt: Date | null
  readonly createdAt: Date
}

/** Returns a credit's facts: everything except `remaining` and `expiredAt`. */
export const creditFacts = (credit: CreditFacts): Facts => [
  credit.kind,
  credit.source,
  credit.featureKey,
  String(credit.amount),
  String(credit.priority),
  credit.effectiveAt.toISOString(),
  credit.expiresAt?.toISOString() ?? null,
  credit.createdAt.toISOString(),
]

export interface AdjustmentFacts {
  readonly amount: bigint
  readonly reason: string
  readonly author: string
  readonly eventId: string | null
  readonly at: Date
  readonly held: bigint
  /** The only credit that a debit drew from; absent for all. */
  readonly creditId?: string | undefined
}

export const adjustmentFacts = (adjustment: AdjustmentFacts): Facts => [
  String(adjustment.amount),
  adjustment.reason,
  adjustment.author,
  adjustment.eventId,
  adjustment.at.toISOString(),
  String(adjustment.held),
  ...(adjustment.creditId === undefined ? [] : [adjustment.creditId]),
]
