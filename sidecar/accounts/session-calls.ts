import { createBoundedMap } from '../identity/cached-state.ts'
import type { RunMemory } from './call-runs.ts'
import type { Session } from './session.ts'

/** The first call with a number, by the signer's clock. */
export interface FirstCall {
  readonly sequence: number
  readonly seconds: number
  readonly nanos: number
  /** True when core does not know the call: the time is the earliest possible. */
  readonly isAssumed?: boolean
}

/** The allowed calls of a session in this process. Mutable: updated by each call. */
export interface SessionCalls extends RunMemory {
  readonly id: string
  /** The lowest known number, the second highest, and the highest. */
  start: FirstCall
  before: FirstCall | null
  top: FirstCall
  /**
   * Signer's second up to which the time after `top` was paid in advance (SIGNING_TTL_SECONDS); 0
   * if not paid. Used up by the first call with a higher number.
   */
  paidUntil: number
  /** Highest number with a reported refusal; -1 before the first. */
  refused: number
  /** True once a call was allowed in this process. */
  hasCalls: boolean
  /**
   * True when the latest call directly followed another one here, and no other process serves the
   * session.
   */
  isNext: boolean
  /** True when the number of the latest call was not higher than all before. */
  isReplay: boolean
}

/**
 * The user of sessions. `latest` spares most users a look-up, because they have one session at a
 * time.
 */
export interface SessionOwner {
  readonly authId: string
  latest: SessionCalls | null
}

/**
 * Remembers when each number of a session was first called, to compute how much time a call bills:
 * a client may keep the state of any number, and the oldest bills the most. Evicted sessions, and
 * those that began at another sidecar, are fetched from core (docs/escrow-bounds.md, "Bounds").
 */
export function createSessionMemory({ max }: { readonly max: number }) {
  const sessions = createBoundedMap<SessionCalls>({ max })
  const shared = createBoundedMap<true>({ max })

  const keyOf = ({ authId }: SessionOwner, id: string): string => `${id} ${authId}`

  /** Returns the calls of a session that was called here and is not evicted. */
  function find(owner: SessionOwner, id: string): SessionCalls | undefined {
    const { latest } = owner
    return latest?.id === id ? latest : sessions.get(keyOf(owner, id))
  }

  /** Adds a call from core: the highest of an unknown session, or one below the lowest known. */
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

  /** Stores an allowed call. */
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

  /** Marks a session as served by another process, too: no process knows all its calls. */
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

// After the signer's clock was set back, states of both calls may be sent again.
const isEarlier = (one: FirstCall, other: FirstCall): boolean =>
  one.seconds < other.seconds || (one.seconds === other.seconds && one.nanos < other.nanos)

/** Returns the first call with the highest known number below `sequence`; null without one. */
export function priorCall(
  { top, before, start }: SessionCalls,
  sequence: number,
): FirstCall | null {
  if (sequence > top.sequence) return top
  if (before && sequence > before.sequence) return before
  return sequence > start.sequence ? start : null
}
