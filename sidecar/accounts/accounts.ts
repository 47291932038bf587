import type { PriceCeiling } from '../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import { type Refusal, refusalWithoutUser, refusals } from '../authorize/refusals.ts'
import type { Versions } from '../identity/cached-state.ts'
import type { CallOwner } from './call-runs.ts'
import type { SessionOwner } from './session-calls.ts'

/**
 * What is known here of one user, and the money that core has lent for them. Changed in place, so
 * that every holder of it sees the present state. Money is nano-dollars, instants are milliseconds
 * of the monotonic clock.
 */
export interface Account extends SessionOwner, CallOwner {
  /** As core said it last; null for network price (bounds.ts). */
  retailRatio: bigint | null
  readonly clientId: string
  readonly externalUserId: string
  /** "" before core's first answer. */
  userId: string
  /** Set when the user may not spend at all. */
  refusal: Refusal | null
  /** Unix seconds; a token issued before is void. */
  validAfter: number
  /** Until when what core said of the user may be used; 0 before core's first answer. */
  currentUntil: number
  /** The version of cached state at which it was read. */
  version: number
  /** Set when it was evicted: an identity that holds it is verified again. */
  evicted: boolean
  /** When core was asked for what it said of the user; 0 before its first answer. */
  readAt: number
  /** What core said is neither lent nor pending, and when it was asked; 0 for never. */
  remaining: number
  remainingAt: number
  ceilings: readonly PriceCeiling[]
  lease: Lease | null
  /** Core lends nothing before this; each call is reserved. */
  reserveUntil: number
  /** A call with this bound or a higher one was refused for money, and is refused again until then. */
  spentBound: number
  spentUntil: number
  spentRefusal: Refusal
  readonly spending: Spending
  /** A Lend under way, its leases that core has not taken back yet, and a recall that waits for it. */
  lending: Promise<unknown> | null
  returning: number
  isRecalled: boolean
  /** The lease that was returned last; core may never lend it again. */
  returnedLeaseId: string
}

/** A slice of the user's money. */
export interface Lease {
  readonly id: string
  /** All that was ever lent under it, and all that was debited from it. */
  amount: number
  used: number
  endsAt: number
  /** When core was asked to lend it last. */
  renewedAt: number
  /** Renewed once this much is used, or at that instant. */
  renewAbove: number
  renewAt: number
  usedAt: number
}

/** How fast the user spends here. */
export interface Spending {
  /** Nano-dollars a second at the last Lend. */
  rate: number
  since: number
  /** What was debited since then. */
  sum: number
}

/** What core says of a user. */
export interface UserStatus {
  readonly userId: string
  readonly active: boolean
  readonly tokensValidAfter: bigint
  /** Empty for network price; absent where it is not asked for. */
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
 * The accounts of users, of which those are forgotten first that core answered about longest ago.
 * One with a lease is never forgotten: a second account of its user could spend the lease again.
 */
export function createAccounts({ versions, ttlSeconds, max, mono }: AccountsOptions) {
  const accounts = new Map<string, Account>()

  /** The account behind an `auth_id`, opened at the first call. */
  function accountOf(authId: string): Account {
    const known = accounts.get(authId)
    if (known) return known
    if (accounts.size >= max) evict(Math.ceil(max / 16))
    const account = newAccount(authId, mono())
    accounts.set(authId, account)
    return account
  }

  // A sixteenth at once, because finding the oldest entry of a Map steps over all that were deleted.
  function evict(count: number): void {
    let left = count
    for (const [authId, account] of accounts) {
      if (left-- === 0) return
      accounts.delete(authId)
      if (account.lease || account.lending || account.returning > 0) accounts.set(authId, account)
      else account.evicted = true
    }
  }

  /** True while what core said of the user may be used at `at`. */
  const isCurrent = ({ currentUntil, userId, version }: Account, at: number): boolean =>
    currentUntil > at && !versions.isStale(userId, version)

  /** True when nothing says that what is known became stale, however old it is. */
  const isUnrevoked = ({ userId, version }: Account): boolean =>
    userId !== '' && !versions.isStale(userId, version)

  /** Stores core's answer about the user, whose read began at `at` and `version`. */
  function learn(
    account: Account,
    status: UserStatus,
    read: { at: number; version: number },
  ): void {
    if (!account.evicted) {
      // Set again, so that it is the last to be evicted.
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
    // Whatever made it stale may also be new money.
    account.spentUntil = 0
  }

  /** Stores that core knows no such user, or lets none be made: `word` is its refusal. */
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
