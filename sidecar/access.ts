import { LRUCache } from 'lru-cache'
import { DomainError } from '../proto/errors.ts'
import type { Access } from '../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { type EthRate, ethRate, parseInteger } from '../core/lib/money.ts'
import type { Now } from '../core/lib/time.ts'
import type { CoreClient } from './core.ts'
import type { Marks } from './marks.ts'
import { type Refusal, refusals } from './refusals.ts'
import { createSingleFlight } from './single-flight.ts'
import { type Tab, openTab, pendingOf, spendOn } from './tab.ts'
import type { Who } from './who.ts'

/** What a user may spend, as core said it last and as it has been used here since. */
export interface Allowance {
  /** Set when the user may not spend at all. */
  readonly refusal: Refusal | null
  /** Unix seconds; a token issued before is void. */
  readonly validAfter: number
  readonly rate: EthRate | null
  /** Atto-dollars left of what core said; below zero it must be asked again. */
  left: bigint
  /** What was spent here, until it shows in core's figures. */
  readonly tab: Tab
  readonly userId: string
  readonly until: number
  readonly since: number
}

export interface AccessOptions {
  readonly core: Pick<CoreClient, 'getAccess'>
  readonly marks: Marks
  readonly ttlSeconds: number
  readonly minimum: bigint
  /** How long a payment allowed here may take to reach the ledger. */
  readonly lagSeconds: number
  readonly max: number
  readonly now: Now
}

const refusedMs = 1_000
const unknownAppMs = 5_000

/** The access of users, for seconds and for as much money as core said they have. */
export function createAccessBook(options: AccessOptions) {
  const { core, marks, ttlSeconds, minimum, max, now } = options
  const allowances = new LRUCache<string, Allowance>({ max })
  const tabs = new LRUCache<string, Tab>({ max })
  const once = createSingleFlight<Allowance>()

  /** What is known here and may still be used, or null. */
  function known(authId: string): Allowance | null {
    // Not `get`: an allowance lives for seconds, so that keeping the newest used first gains nothing.
    const allowance = allowances.peek(authId)
    if (
      !allowance
      || allowance.until <= now().getTime()
      || marks.isStale(allowance.userId, allowance.since)
    )
      return null
    return allowance
  }

  /** Asks core, once for all who ask at the same time. Throws when core does not answer. */
  const fetch = (who: Who): Promise<Allowance> => once(who.authId, () => fetchNow(who))

  async function fetchNow({ authId, clientId, externalUserId }: Who): Promise<Allowance> {
    const since = marks.point()
    try {
      return keep(authId, await core.getAccess({ clientId, externalUserId }), since)
    } catch (error) {
      if (!isAboutTheUser(error)) throw error
      const until = now().getTime() + unknownAppMs
      const allowance = {
        refusal: refusals.invalidIdentity,
        validAfter: 0,
        rate: null,
        left: 0n,
        tab: openTab(0n, 0),
        userId: '',
        until,
        since,
      }
      allowances.set(authId, allowance)
      return allowance
    }
  }

  /** Takes in what core said at `since`, a point in the order of invalidations. */
  function keep(authId: string, access: Access, since: number): Allowance {
    const said = parseInteger(access.remainingUsdAttos)
    const rate = access.usdAttosPerEth === undefined ? null : parseInteger(access.usdAttosPerEth)
    const consumed = parseInteger(access.consumedUsdAttos)
    if (said === null || consumed === null)
      throw new Error('core answered with an unreadable balance')
    const tab = tabOf(authId, consumed)
    // Core's figure lags behind the stream of events: what it cannot know of yet is spent already.
    const left = said - pendingOf(tab, consumed, moment())
    const refusal = refusalOf(access, left)
    const allowance: Allowance = {
      refusal,
      validAfter: Number(access.tokensValidAfter),
      rate: rate === null || rate === 0n ? null : ethRate(rate),
      left,
      tab,
      userId: access.userId,
      until: now().getTime() + (refusal ? refusedMs : ttlSeconds * 1000),
      since,
    }
    allowances.set(authId, allowance)
    return allowance
  }

  /** Undoes part of what was spent here before. */
  function giveBack(authId: string, amount: bigint): void {
    const tab = tabs.get(authId)
    if (tab) spendOn(tab, -amount, moment())
    const allowance = allowances.get(authId)
    if (allowance) allowance.left += amount
  }

  const moment = () => ({ at: now().getTime(), lagMs: options.lagSeconds * 1000 })

  function tabOf(authId: string, consumed: bigint): Tab {
    const kept = tabs.get(authId)
    if (kept) return kept
    const tab = openTab(consumed, now().getTime())
    tabs.set(authId, tab)
    return tab
  }

  /** Takes `cost` from what is left, and remembers it until it shows in core's figures. */
  function spend(allowance: Allowance, cost: bigint): void {
    allowance.left -= cost
    spendOn(allowance.tab, cost, moment())
  }

  function refusalOf(access: Access, left: bigint): Refusal | null {
    if (!access.active) return refusals.userInactive
    return left < minimum ? refusals.insufficientBalance : null
  }

  return { known, fetch, keep, spend, giveBack, size: () => allowances.size }
}

export type AccessBook = ReturnType<typeof createAccessBook>

const aboutTheUser = new Set(['NOT_FOUND', 'REQUEST_INVALID'])
const isAboutTheUser = (error: unknown): boolean =>
  error instanceof DomainError && aboutTheUser.has(error.reason)
