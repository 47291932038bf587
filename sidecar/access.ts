import { LRUCache } from 'lru-cache'
import { DomainError } from '../proto/errors.ts'
import type { Access } from '../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { ethRate } from '../core/lib/money.ts'
import type { Now } from '../core/lib/time.ts'
import type { CoreClient } from './core.ts'
import type { Marks } from './marks.ts'
import { type Refusal, refusals } from './refusals.ts'
import { createSingleFlight } from './single-flight.ts'
import { nanosPerWei } from './price.ts'
import { type Tab, createTabs, nanosDown } from './tab.ts'
import type { Who } from './who.ts'

/** What a user may spend, as core said it last and as it has been used here since. */
export interface Allowance {
  /** Set when the user may not spend at all. */
  readonly refusal: Refusal | null
  /** Unix seconds; a token issued before is void. */
  readonly validAfter: number
  /** Nano-dollars for one wei. */
  readonly rate: number | null
  /** Nano-dollars left of what core said; below zero it must be asked again. */
  left: number
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
  const allowances = new LRUCache<string, Allowance>({ max })
  const kept = new LRUCache<string, Tab>({ max })
  const tabs = createTabs(options.lagSeconds * 1000)
  const once = createSingleFlight<Allowance>()

  /** What is known here and may still be used, or null. */
  function known(authId: string, at: number): Allowance | null {
    // Not `get`: an allowance lives for seconds, so that keeping the newest used first gains nothing.
    const allowance = allowances.peek(authId)
    if (
      !allowance
      || allowance.until <= at
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
        left: 0,
        tab: tabs.open(0n, 0),
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
    const at = now().getTime()
    const consumed = attosOf(access.consumedUsdAttos)
    const rate = access.usdAttosPerEth === undefined ? 0n : attosOf(access.usdAttosPerEth)
    const tab = tabOf(authId, consumed, at)
    // Core's figure lags behind the stream of events: what it cannot know of yet is spent already.
    const left = nanosDown(attosOf(access.remainingUsdAttos)) - tabs.pending(tab, consumed, at)
    const refusal = refusalOf(access, left)
    const allowance: Allowance = {
      refusal,
      validAfter: Number(access.tokensValidAfter),
      rate: rate === 0n ? null : nanosPerWei(ethRate(rate)),
      left,
      tab,
      userId: access.userId,
      until: at + (refusal ? refusedMs : ttlSeconds * 1000),
      since,
    }
    allowances.set(authId, allowance)
    return allowance
  }

  /** Undoes what was spent here at `spentAt`. */
  function giveBack(authId: string, cost: number, spentAt: number): void {
    const tab = kept.get(authId)
    if (tab) tabs.giveBack(tab, cost, spentAt)
    const allowance = allowances.peek(authId)
    if (allowance) allowance.left += cost
  }

  function tabOf(authId: string, consumed: bigint, at: number): Tab {
    const known = kept.get(authId)
    if (known) return known
    const tab = tabs.open(consumed, at)
    kept.set(authId, tab)
    return tab
  }

  /** Takes `cost` from what is left, and remembers it until it shows in core's figures. */
  function spend(allowance: Allowance, cost: number, at: number): void {
    allowance.left -= cost
    tabs.spend(allowance.tab, cost, at)
  }

  /** True when less than the minimum is left of what core said, and it is known how much. */
  const isSpent = ({ left }: Allowance): boolean => left < minimum && left !== unknown

  function refusalOf(access: Access, left: number): Refusal | null {
    if (!access.active) return refusals.userInactive
    return left < minimum ? refusals.insufficientBalance : null
  }

  return { known, fetch, keep, spend, giveBack, isSpent, size: () => allowances.size }
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
