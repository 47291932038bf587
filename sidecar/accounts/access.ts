import { DomainError } from '../../proto/errors.ts'
import type { Access } from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { ethRate } from '../../core/lib/money.ts'
import type { Now } from '../../core/lib/time.ts'
import { createBoundedMap } from '../identity/bounded-map.ts'
import type { CoreClient } from '../core-client.ts'
import type { Marks } from '../identity/versions.ts'
import { type Refusal, refusals } from '../authorize/refusals.ts'
import { createSingleFlight } from '../identity/single-flight.ts'
import { type Owner, nanosPerWei } from './session-billing.ts'
import { type Tab, createTabs, nanosDown } from './pending-spend.ts'
import type { Who } from '../identity/bound-identity.ts'

/**
 * One user here: what may be spent, as core said it last and as it has been used since. Changed in
 * place: whoever holds it sees what is true now.
 */
export interface Account extends Owner {
  /** Set when the user may not spend at all. */
  refusal: Refusal | null
  /** Unix seconds; a token issued before is void. */
  validAfter: number
  /** Nano-dollars for one wei. */
  rate: number | null
  /** Nano-dollars left of what core said; below zero it must be asked again. */
  left: number
  /** What was spent here, until it shows in core's figures. */
  readonly tab: Tab
  userId: string
  /** Unix milliseconds until which this may be used; 0 when core was never asked. */
  until: number
  /** The point in the order of invalidations at which it was read. */
  since: number
  /** Set when there was no room for it any more: what is spent from it now, nobody sees. */
  forgotten: boolean
}

export interface AccessOptions {
  readonly core: Pick<CoreClient, 'getAccess'>
  readonly marks: Marks
  readonly ttlSeconds: number
  /** Nano-dollars. */
  readonly minimum: number
  /** How long a payment allowed here may take to reach the ledger. */
  readonly lagSeconds: number
  readonly max: number
  readonly now: Now
}

/** What is left after a call of unknown cost: core must be asked again. */
export const unknown = -1
const refusedMs = 1_000
const unknownAppMs = 5_000

/** The access of users, for seconds and for as much money as core said they have. */
export function createAccessBook(options: AccessOptions) {
  const { core, marks, ttlSeconds, minimum, max, now } = options
  const accounts = createBoundedMap<Account>({
    max,
    forgotten: (account) => void (account.forgotten = true),
  })
  const totals = { allowed: 0, missing: 0 }
  const tabs = createTabs(options.lagSeconds * 1000, (nanos) => void (totals.missing += nanos))
  const once = createSingleFlight<Account>()

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
      tab: tabs.open(0n, now().getTime()),
      userId: '',
      until: 0,
      since: 0,
      forgotten: false,
    }
    accounts.set(authId, account)
    return account
  }

  /** True while what is known of the account may be used. */
  const isKnown = ({ until, userId, since }: Account, at: number): boolean =>
    until > at && !marks.isStale(userId, since)

  /** Asks core, once for all who ask at the same time. Throws when core does not answer. */
  const fetch = (who: Who): Promise<Account> => once(who.authId, () => fetchNow(who))

  async function fetchNow({ authId, clientId, externalUserId }: Who): Promise<Account> {
    const since = marks.point()
    try {
      return keep(authId, await core.getAccess({ clientId, externalUserId }), since)
    } catch (error) {
      if (!isAboutTheUser(error)) throw error
      const until = now().getTime() + unknownAppMs
      const unknown = { refusal: refusals.invalidIdentity, validAfter: 0, rate: null, left: 0 }
      return Object.assign(accountOf(authId), { ...unknown, userId: '', until, since })
    }
  }

  /** Takes in what core said at `since`, a point in the order of invalidations. */
  function keep(authId: string, access: Access, since: number): Account {
    const at = now().getTime()
    const account = accountOf(authId)
    // Asked for anew, it is the last to be forgotten.
    accounts.set(authId, account)
    const consumed = attosOf(access.consumedUsdAttos)
    const rate = access.usdAttosPerEth === undefined ? 0n : attosOf(access.usdAttosPerEth)
    // Core's figure lags behind the stream of events: what it cannot know of yet is spent already.
    const pending = tabs.pending(account.tab, consumed, at)
    const left = nanosDown(attosOf(access.remainingUsdAttos)) - pending
    const refusal = refusalOf(access, left)
    return Object.assign(account, {
      refusal,
      validAfter: Number(access.tokensValidAfter),
      rate: rate === 0n ? null : nanosPerWei(ethRate(rate)),
      left,
      userId: access.userId,
      until: at + (refusal ? refusedMs : ttlSeconds * 1000),
      since,
    })
  }

  /** Takes `cost` from what is left, and remembers it until it shows in core's figures. */
  function spend(account: Account, cost: number, at: number): void {
    account.left -= cost
    totals.allowed += cost
    tabs.spend(account.tab, cost, at)
  }

  /** The same for time that has not passed yet. */
  function promise(account: Account, cost: number, at: number): void {
    account.left -= cost
    tabs.promise(account.tab, cost, at)
  }

  /** Undoes what was promised at `promisedAt`. */
  function giveBack(account: Account, cost: number, promisedAt: number): void {
    tabs.giveBack(account.tab, cost, promisedAt)
    account.left += cost
  }

  /** Nano-dollars of all calls that were allowed here, and of those of which no event came. */
  const money = (): Readonly<typeof totals> => totals

  /** True when less than the minimum is left of what core said, and it is known how much. */
  const isSpent = ({ left }: Account): boolean => left < minimum && left !== unknown

  function refusalOf(access: Access, left: number): Refusal | null {
    if (!access.active) return refusals.userInactive
    return left < minimum ? refusals.insufficientBalance : null
  }

  return {
    accountOf,
    isKnown,
    fetch,
    keep,
    spend,
    promise,
    giveBack,
    isSpent,
    money,
    size: accounts.size,
  }
}

export type AccessBook = ReturnType<typeof createAccessBook>

const attos = /^\d{1,60}$/

// Core's own figures: as long as its columns, unlike what users may write.
function attosOf(text: string): bigint {
  if (!attos.test(text)) throw new Error('core answered with an unreadable balance')
  return BigInt(text)
}

const aboutTheUser = new Set(['NOT_FOUND', 'REQUEST_INVALID'])
const isAboutTheUser = (error: unknown): boolean =>
  error instanceof DomainError && aboutTheUser.has(error.reason)
