import { createBoundedMap } from '../identity/cached-state.ts'
import type { RunMemory } from './call-runs.ts'
import type { Session } from './session.ts'

/** The first call with a number, by the signer's clock. */
export interface FirstCall {
  readonly sequence: number
  readonly seconds: number
  readonly nanos: number
  /** True where core knows no such call: the time is the earliest that is possible. */
  readonly isAssumed?: boolean
}

/** The calls of a session that were allowed here. Changed in place, once for every call. */
export interface SessionCalls extends RunMemory {
  readonly id: string
  /** The lowest number that is known, the highest, and the highest but one. */
  start: FirstCall
  before: FirstCall | null
  top: FirstCall
  /**
   * Signer's second up to which the time after `top` was paid in advance (SIGNING_TTL_SECONDS); 0
   * for none. The first call with a higher number uses it up.
   */
  paidUntil: number
  /** The highest number whose refusal was reported; -1 for none. */
  refused: number
  /** True once a call of it was allowed here. */
  hasCalls: boolean
  /** True when the latest call followed another one here, and no other process serves the session. */
  isNext: boolean
  /** True when the latest call had a number that had been called before, or a lower one. */
  isReplay: boolean
}

/** The user of sessions. Most users have one at a time, which `latest` finds without a look-up. */
export interface SessionOwner {
  readonly authId: string
  latest: SessionCalls | null
}

/**
 * Remembers when sessions were first called with their numbers, to know how much time a call bills:
 * a client may keep any state of a number, and the oldest bills the most. What is evicted, and a
 * session that began at another sidecar, is adopted from core (docs/escrow.md, "Bounds").
 */
export function createSessionMemory({ max }: { readonly max: number }) {
  const sessions = createBoundedMap<SessionCalls>({ max })
  const shared = createBoundedMap<true>({ max })

  const keyOf = ({ authId }: SessionOwner, id: string): string => `${id} ${authId}`

  /** The calls of a session that was seen here and is not evicted. */
  function find(owner: SessionOwner, id: string): SessionCalls | undefined {
    const { latest } = owner
    return latest?.id === id ? latest : sessions.get(keyOf(owner, id))
  }

  /** Adds what core answered: the highest call of an unseen session, or one below the lowest. */
  function extend(owner: SessionOwner, id: string, call: FirstCall): void {
    const calls = find(owner, id)
    if (!calls) adopt(owner, id, call)
    else if (call.sequence < calls.start.sequence) calls.start = call
  }

  function adopt(owner: SessionOwner, id: string, top: FirstCall): SessionCalls {
    const calls = newCalls(id, top)
    sessions.set(keyOf(owner, id), calls)
    owner.latest = calls
    return calls
  }

  /** Remembers an allowed call. */
  function remember(owner: SessionOwner, session: Session): SessionCalls {
    const { sequence, seconds, nanos } = session
    const call = { sequence, seconds, nanos }
    const calls = find(owner, session.id)
    if (!calls) {
      const adopted = adopt(owner, session.id, call)
      adopted.hasCalls = true
      return adopted
    }
    owner.latest = calls
    calls.isNext = calls.hasCalls && sequence === calls.top.sequence + 1 && !isShared(session.id)
    calls.isReplay = calls.hasCalls && sequence <= calls.top.sequence
    calls.hasCalls = true
    if (sequence > calls.top.sequence) {
      calls.before = calls.top
      calls.top = call
      calls.paidUntil = 0
    } else if (sequence === calls.top.sequence && isEarlier(call, calls.top)) calls.top = call
    return calls
  }

  /** Another process serves the session, too: no process knows all its calls. */
  const share = (id: string): void => shared.set(id, true)

  const isShared = (id: string): boolean => shared.size() > 0 && shared.get(id) !== undefined

  return { find, extend, remember, share, isShared, size: sessions.size }
}

const newCalls = (id: string, top: FirstCall): SessionCalls => ({
  id,
  start: top,
  before: null,
  top,
  paidUntil: 0,
  refused: -1,
  hasCalls: false,
  isNext: false,
  isReplay: false,
  run: null,
})

export type SessionMemory = ReturnType<typeof createSessionMemory>

// The signer's clock was set back: states of both calls may come again.
const isEarlier = (one: FirstCall, other: FirstCall): boolean =>
  one.seconds < other.seconds || (one.seconds === other.seconds && one.nanos < other.nanos)

/** The first call with the highest known number below `sequence`; null when none is known. */
export function priorCall(
  { top, before, start }: SessionCalls,
  sequence: number,
): FirstCall | null {
  if (sequence > top.sequence) return top
  if (before && sequence > before.sequence) return before
  return sequence > start.sequence ? start : null
}
