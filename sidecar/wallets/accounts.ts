import type { PriceCeiling } from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import { type Refusal, refusalWithoutUser, refusals } from '../decision/refusals.ts'
import type { Versions } from '../cache/cached-state.ts'
import type { CallOwner, SessionOwner } from './session-calls.ts'

/**
 * Cached state of one user, and the money that core has lent for them. Mutable, so that every
 * holder sees the current state. Money is in nano-dollars, instants in milliseconds of the
 * monotonic clock.
 */
export interface Account extends SessionOwner, CallOwner {
  /** From core's last answer; null for network price (bounds.ts). */
  retailRatio: bigint | null
  readonly clientId: string
  readonly externalUserId: string
  /** "" before core's first answer. */
  userId: string
  /** Set when the user may not spend at all. */
  refusal: Refusal | null
  /** Unix seconds; tokens issued before are void. */
  validAfter: number
  /** End of validity of core's answer about the user; 0 before the first answer. */
  currentUntil: number
  /** Version of cached state when the answer was requested. */
  version: number
  /** Set after eviction: an identity that holds this account is verified again. */
  evicted: boolean
  /** When the current answer was requested from core; 0 before the first answer. */
  readAt: number
  /** Money that is neither lent nor pending, and when core was asked; 0 before the first answer. */
  remaining: number
  remainingAt: number
  /** Whether core would pay for a call beyond `remaining`, by a credit line. */
  canSpend: boolean
  /** Refusal of a call without a session. */
  brokeRefusal: Refusal
  ceilings: readonly PriceCeiling[]
  lease: Lease | null
  /** Core lends nothing before this instant; each call is reserved. */
  reserveUntil: number
  /**
   * Core refused a call with this bound for lack of money. Such calls and larger ones are refused
   * until `spentUntil`.
   */
  spentBound: number
  spentUntil: number
  spentRefusal: Refusal
  readonly spending: Spending
  /**
   * The Lend in flight, the number of leases that core has not taken back yet, and whether a recall
   * waits for the Lend.
   */
  lending: Promise<unknown> | null
  returning: number
  isRecalled: boolean
  /** The last returned lease; core may never lend it again. */
  returnedLeaseId: string
}

/** A slice of the user's money. */
export interface Lease {
  readonly id: string
  /** Totals lent under this lease and debited from it. */
  amount: number
  used: number
  endsAt: number
  /** When the last Lend for it was sent. */
  renewedAt: number
  /** The lease is renewed when `used` exceeds `renewAbove`, or at `renewAt`. */
  renewAbove: number
  renewAt: number
  usedAt: number
}

/** How fast the user spends in this process. */
export interface Spending {
  /** Nano-dollars per second at the last Lend. */
  rate: number
  since: number
  /** Debited since `since`. */
  sum: number
}

/** Core's answer about a user. */
export interface UserStatus {
  readonly userId: string
  readonly active: boolean
  readonly tokensValidAfter: bigint
  /** Empty for network price; absent if the request did not include it. */
  readonly retailRatio?: string
}

export interface AccountsOptions {
  readonly versions: Versions
  readonly ttlSeconds: number
  readonly max: number
  readonly mono: () => number
}

const refusedMs = 1_000
const unknownUserMs = 5_000

/**
 * Accounts of users. Evicts those with the oldest answer from core first. Never evicts an account
 * with a lease, because a second account of its user could spend the lease again.
 */
export function createAccounts({ versions, ttlSeconds, max, mono }: AccountsOptions) {
  const accounts = new Map<string, Account>()

  /** The account of an `auth_id`, created at the first call. */
  function accountOf(authId: string): Account {
    const existing = accounts.get(authId)
    if (existing) return existing
    if (accounts.size >= max) evict(Math.ceil(max / 16))
    const account = newAccount(authId, mono())
    accounts.set(authId, account)
    return account
  }

  // Evict a sixteenth at once, because finding a Map's oldest entry steps over all deleted ones.
  function evict(count: number): void {
    let left = count
    for (const [authId, account] of accounts) {
      if (left-- === 0) return
      accounts.delete(authId)
      if (account.lease || account.lending || account.returning > 0) accounts.set(authId, account)
      else account.evicted = true
    }
  }

  /** Whether core's answer about the user is still valid at `at`. */
  const isCurrent = ({ currentUntil, userId, version }: Account, at: number): boolean =>
    currentUntil > at && !versions.isStale(userId, version)

  /** Whether nothing has invalidated the cached answer, however old it is. */
  const isUnrevoked = ({ userId, version }: Account): boolean =>
    userId !== '' && !versions.isStale(userId, version)

  /** Stores core's answer about the user, requested at `at` and `version`. */
  function learn(
    account: Account,
    status: UserStatus,
    read: { at: number; version: number },
  ): void {
    if (!account.evicted) {
      // Insert again, so that this account is evicted last.
      accounts.delete(account.authId)
      accounts.set(account.authId, account)
    }
    account.userId = status.userId
    account.refusal = status.active ? null : refusals.userInactive
    account.validAfter = Number(status.tokensValidAfter)
    if (status.retailRatio !== undefined)
      account.retailRatio = status.retailRatio === '' ? null : BigInt(status.retailRatio)
    account.readAt = read.at
    account.currentUntil = read.at + (status.active ? ttlSeconds * 1000 : refusedMs)
    account.version = read.version
    // The change that made the answer stale may have been new money.
    account.spentUntil = 0
  }

  /** Stores that the user does not exist in core and is not created; `word` is core's refusal. */
  function learnUnknown(
    account: Account,
    word: string,
    read: { at: number; version: number },
  ): void {
    account.userId = ''
    account.refusal = refusalWithoutUser(word)
    account.readAt = read.at
    account.currentUntil = read.at + unknownUserMs
    account.version = read.version
  }

  return {
    accountOf,
    isCurrent,
    isUnrevoked,
    learn,
    learnUnknown,
    size: () => accounts.size,
  }
}

export type Accounts = ReturnType<typeof createAccounts>

/**
 * Returns why a user may not spend at all, regardless of money. `issuedAt` is the time of the
 * token, in Unix seconds; null for other credentials.
 */
export function findRefusal(
  { refusal, validAfter }: Account,
  issuedAt: number | null,
): Refusal | null {
  return issuedAt !== null && issuedAt < validAfter ? refusals.invalidToken : refusal
}

/** Whether money or a credit line is left, at core or in the lease. */
export const hasMoney = ({ remaining, canSpend, lease }: Account): boolean =>
  remaining > 0 || canSpend || (lease !== null && lease.amount > lease.used)

function newAccount(authId: string, at: number): Account {
  const colon = authId.indexOf(':')
  return {
    authId,
    clientId: authId.slice(0, colon),
    externalUserId: authId.slice(colon + 1),
    latest: null,
    userId: '',
    refusal: null,
    validAfter: 0,
    currentUntil: 0,
    version: 0,
    evicted: false,
    readAt: 0,
    remaining: 0,
    remainingAt: 0,
    canSpend: false,
    brokeRefusal: refusals.insufficientBalance,
    ceilings: [],
    retailRatio: null,
    lease: null,
    reserveUntil: 0,
    spentBound: 0,
    spentUntil: 0,
    spentRefusal: refusals.insufficientBalance,
    spending: { rate: 0, since: at, sum: 0 },
    lending: null,
    returning: 0,
    runs: null,
    isRecalled: false,
    returnedLeaseId: '',
  }
}
