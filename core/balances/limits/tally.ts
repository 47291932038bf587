import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { getOrInsert } from '../../lib/maps.ts'
import type { UserId } from '../../shared/ids.ts'
import {
  type Breach,
  type LimitedSubject,
  type Limits,
  type PriceCeiling,
  ceilingsFor,
} from './limits.ts'

/** How long a session counts as concurrent after its last call. */
export const sessionIdleMs = 60_000
const minuteMs = 60_000
const dayMs = 86_400_000

/**
 * The counts toward the limits of one user or key: as stored, then updated while a batch of calls
 * is checked.
 */
export interface Tally extends LimitedSubject {
  readonly limits: Limits
  /** Start of the UTC day of `dayAttos`, in Unix milliseconds. */
  dayStart: number
  dayAttos: bigint
  /** Start of the minute of `minuteCalls`, in Unix milliseconds. */
  minuteStart: number
  minuteCalls: number
  /** The sessions of the batch's calls, by id. A session without an earlier call is absent. */
  readonly sessions: Map<string, SessionTally>
  /**
   * The number of active sessions and the oldest of their last calls. Loaded only if `sessions` is
   * limited.
   */
  active: { count: number; readonly oldest: Date | null }
  changed: boolean
}

export interface SessionTally {
  spent: bigint
  lastCallAt: number
}

/** The parts of a call that limits check. */
export interface LimitedCall {
  readonly userId: UserId
  readonly keyId: string | null
  readonly sessionId: string
  readonly sessionType: string
  /** The application in the signer's state. */
  readonly app: string
  /** Price in wei for `units` units; null if unknown. */
  readonly price: { readonly wei: bigint; readonly units: bigint } | null
  /** The call's bound, or its cost if its ticket came first. */
  readonly amount: UsdAttos
  /** Number of calls to count. Default is 1. */
  readonly calls?: number
}

/**
 * Applies limits to the tallies of locked users. `breach` returns the limit that a call would break
 * at an instant; `count` adds the call to the tallies of its user and key. Days and minutes roll
 * over by the instants passed. If the clock lags behind another core's, calls count in the later
 * day and minute, so that no call is left out.
 */
export function createTallies(tallies: readonly Tally[]) {
  const byUser = Map.groupBy(tallies, ({ userId }) => userId)

  const talliesOf = (call: LimitedCall): Tally[] =>
    (byUser.get(call.userId) ?? []).filter(({ keyId }) => keyId === null || keyId === call.keyId)

  /** Returns null if no limit of the user or key refuses the call. */
  function breach(call: LimitedCall, at: Date): Breach | null {
    for (const tally of talliesOf(call)) {
      rollOver(tally, at)
      const broken = breachOf(tally, call, at)
      if (broken) return broken
    }
    return null
  }

  function count(call: LimitedCall, at: Date): void {
    for (const tally of talliesOf(call)) {
      rollOver(tally, at)
      const session = getOrInsert(tally.sessions, call.sessionId, () => ({
        spent: 0n,
        lastCallAt: 0,
      }))
      if (!isActive(session, at)) tally.active.count += 1
      session.spent += call.amount
      session.lastCallAt = Math.max(session.lastCallAt, at.getTime())
      tally.dayAttos += call.amount
      tally.minuteCalls += call.calls ?? 1
      tally.changed = true
    }
  }

  /** Returns the price ceilings of a call's user and key. */
  const ceilings = (call: LimitedCall): PriceCeiling[] =>
    talliesOf(call).flatMap(({ limits }) => limits.ceilings)

  return { breach, count, ceilings, changed: () => tallies.filter((tally) => tally.changed) }
}

export type Tallies = ReturnType<typeof createTallies>

function rollOver(tally: Tally, at: Date): void {
  const { dayStart, minuteStart } = windowsAt(at)
  if (dayStart > tally.dayStart) {
    tally.dayStart = dayStart
    tally.dayAttos = 0n
  }
  if (minuteStart > tally.minuteStart) {
    tally.minuteStart = minuteStart
    tally.minuteCalls = 0
  }
}

/** Returns the starts of the UTC day and of the minute of an instant, in Unix milliseconds. */
export function windowsAt(at: Date): { dayStart: number; minuteStart: number } {
  const ms = at.getTime()
  return { dayStart: ms - (ms % dayMs), minuteStart: ms - (ms % minuteMs) }
}

const isActive = (session: SessionTally | undefined, at: Date): boolean =>
  session !== undefined && session.lastCallAt > at.getTime() - sessionIdleMs

function breachOf(tally: Tally, call: LimitedCall, at: Date): Breach | null {
  if (isTooDear(tally.limits, call)) return { limit: 'max_price', endsAt: null }
  const { day, session, minuteCalls, sessions } = tally.limits
  if (session !== null && spentIn(tally, call) + call.amount > session)
    return { limit: 'usd_per_session', endsAt: null }
  if (day !== null && tally.dayAttos + call.amount > day)
    return { limit: 'usd_per_day', endsAt: new Date(tally.dayStart + dayMs) }
  if (sessions !== null && tally.active.count >= sessions && !isActiveCall(tally, call, at))
    return { limit: 'concurrent_sessions', endsAt: idleAt(tally) }
  if (minuteCalls !== null && tally.minuteCalls >= minuteCalls)
    return { limit: 'calls_per_minute', endsAt: new Date(tally.minuteStart + minuteMs) }
  return null
}

const spentIn = (tally: Tally, call: LimitedCall): UsdAttos =>
  usdAttos(tally.sessions.get(call.sessionId)?.spent ?? 0n)

const isActiveCall = (tally: Tally, call: LimitedCall, at: Date): boolean =>
  isActive(tally.sessions.get(call.sessionId), at)

const idleAt = ({ active: { oldest } }: Tally): Date | null =>
  oldest && new Date(oldest.getTime() + sessionIdleMs)

// An unknown price may exceed any ceiling.
const isTooDear = ({ ceilings }: Limits, call: LimitedCall): boolean =>
  ceilingsFor(ceilings, call).some(
    ({ maxWei }) => call.price === null || call.price.wei > maxWei * call.price.units,
  )
