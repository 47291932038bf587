import { ethRate } from '../../core/lib/money.ts'
import type { Now } from '../../core/lib/time.ts'
import { DomainError } from '../../proto/errors.ts'
import type { Access } from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { type Refusal, refusals } from '../authorize/refusals.ts'
import type { CoreClient } from '../core-client.ts'
import type { BoundIdentity } from '../identity/bound-identity.ts'
import { type Versions, createBoundedMap, createSingleFlight } from '../identity/cached-state.ts'
import { type PendingSpend, createPendingSpending, nanosDown } from './pending-spend.ts'
import { type SessionOwner, nanosPerWei } from './session.ts'

/**
 * What one user may spend, as core said it last and less what was spent here since. Changed in
 * place, so that every holder of it sees the present state.
 */
export interface Account extends SessionOwner {
  /** Set when the user may not spend at all. */
  refusal: Refusal | null
  /** Unix seconds; a token issued before is void. */
  validAfter: number
  /** Nano-dollars for one wei. */
  rate: number | null
  /** Nano-dollars left of what core said; below zero core must answer again. */
  left: number
  readonly pendingSpend: PendingSpend
  userId: string
  /** Unix milliseconds until which this may be used; 0 before core's first answer. */
  until: number
  /** The version of cached state at which it was read. */
  version: number
  /** Set when it was evicted: what is spent from it now is counted nowhere. */
  evicted: boolean
}

export interface AccessOptions {
  readonly core: Pick<CoreClient, 'getAccess'>
  readonly versions: Versions
  readonly ttlSeconds: number
  /** Nano-dollars. */
  readonly minimum: number
  /** How long a payment allowed here may take to reach the ledger. */
  readonly lagSeconds: number
  readonly max: number
  readonly now: Now
}

/** What is left after a call of unknown cost: core must answer again. */
export const unknownBalance = -1
const refusedMs = 1_000
const unknownUserMs = 5_000

/** The access of users, kept for seconds and for as much money as core said they have. */
export function createAccessBook(options: AccessOptions) {
  const { core, versions, ttlSeconds, minimum, max, now } = options
  const accounts = createBoundedMap<Account>({
    max,
    onEvict: (account) => void (account.evicted = true),
  })
  const totals = { allowed: 0, missing: 0 }
  const pendingSpending = createPendingSpending(
    options.lagSeconds * 1000,
    (nanos) => void (totals.missing += nanos),
  )
  const singleFlight = createSingleFlight<Account>()

  /** The account of a user, opened at the first call. */
  function accountOf(authId: string): Account {
    const known = accounts.get(authId)
    if (known) return known
    const account: Account = {
      authId,
      latest: null,
      refusal: null,
      validAfter: 0,
      rate: null,
      left: 0,
      pendingSpend: pendingSpending.open(0n, now().getTime()),
      userId: '',
      until: 0,
      version: 0,
      evicted: false,
    }
    accounts.set(authId, account)
    return account
  }

  /** True while what is known of the account may be used. */
  const isCurrent = ({ until, userId, version }: Account, at: number): boolean =>
    until > at && !versions.isStale(userId, version)

  /** Asks core, once for all callers at the same time. Throws when core does not answer. */
  const fetch = (identity: BoundIdentity): Promise<Account> =>
    singleFlight(identity.authId, () => fetchNow(identity))

  async function fetchNow({ authId, clientId, externalUserId }: BoundIdentity): Promise<Account> {
    const version = versions.current()
    try {
      return update(authId, await core.getAccess({ clientId, externalUserId }), version)
    } catch (error) {
      if (!isAboutTheUser(error)) throw error
      const until = now().getTime() + unknownUserMs
      const nothing = { refusal: refusals.invalidIdentity, validAfter: 0, rate: null, left: 0 }
      return Object.assign(accountOf(authId), { ...nothing, userId: '', until, version })
    }
  }

  /** Stores core's answer, whose read began at `version`. */
  function update(authId: string, access: Access, version: number): Account {
    const at = now().getTime()
    const account = accountOf(authId)
    // Set again, so that it is the last to be evicted.
    accounts.set(authId, account)
    const consumed = parseAttos(access.consumedUsdAttos)
    const rate = access.usdAttosPerEth === undefined ? 0n : parseAttos(access.usdAttosPerEth)
    // Core's figure lags behind the stream of events, so what is pending counts as spent.
    const pending = pendingSpending.amount(account.pendingSpend, consumed, at)
    const left = nanosDown(parseAttos(access.remainingUsdAttos)) - pending
    const refusal = refusalOf(access, left)
    return Object.assign(account, {
      refusal,
      validAfter: Number(access.tokensValidAfter),
      rate: rate === 0n ? null : nanosPerWei(ethRate(rate)),
      left,
      userId: access.userId,
      until: at + (refusal ? refusedMs : ttlSeconds * 1000),
      version,
    })
  }

  /** Takes `cost` from what is left; it stays pending until it shows in core's figures. */
  function spend(account: Account, cost: number, at: number): void {
    account.left -= cost
    totals.allowed += cost
    pendingSpending.spend(account.pendingSpend, cost, at)
  }

  /** The same for time that has not passed yet. */
  function spendAdvance(account: Account, cost: number, at: number): void {
    account.left -= cost
    pendingSpending.spendAdvance(account.pendingSpend, cost, at)
  }

  /** Undoes an advance that was charged at `chargedAt`. */
  function refundAdvance(account: Account, cost: number, chargedAt: number): void {
    pendingSpending.refundAdvance(account.pendingSpend, cost, chargedAt)
    account.left += cost
  }

  /** Nano-dollars of all calls that were allowed here, and of those that never reached the ledger. */
  const money = (): Readonly<typeof totals> => totals

  /** True when the balance is known and less than the minimum is left of it. */
  const isSpent = ({ left }: Account): boolean => left < minimum && left !== unknownBalance

  function refusalOf(access: Access, left: number): Refusal | null {
    if (!access.active) return refusals.userInactive
    return left < minimum ? refusals.insufficientBalance : null
  }

  return {
    accountOf,
    isCurrent,
    fetch,
    update,
    spend,
    spendAdvance,
    refundAdvance,
    isSpent,
    money,
    size: accounts.size,
  }
}

export type AccessBook = ReturnType<typeof createAccessBook>

const attos = /^\d{1,60}$/

// Core's own figures may be as long as its columns, unlike amounts that users write.
function parseAttos(text: string): bigint {
  if (!attos.test(text)) throw new Error('core answered with an unreadable balance')
  return BigInt(text)
}

const reasonsAboutTheUser = new Set(['NOT_FOUND', 'REQUEST_INVALID'])
const isAboutTheUser = (error: unknown): boolean =>
  error instanceof DomainError && reasonsAboutTheUser.has(error.reason)
