import { createBoundedMap } from '../cache/cached-state.ts'
import type { Session } from '../signer-state/session.ts'

/** The first call with a number, by the signer's clock. */
export interface FirstCall {
  readonly sequence: number
  readonly seconds: number
  readonly nanos: number
  /** True when core does not know the call: the time is the earliest possible. */
  readonly isAssumed?: boolean
}

/** The allowed calls of a session in this process. Mutable: updated by each call. */
export interface SessionCalls {
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
  /** The run of unreported calls that further calls may still join. */
  run: CallRun | null
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

/** A call that was allowed. */
export interface AllowedCall {
  /** "" when core reserves the call, or when the offline budget pays for it. */
  readonly leaseId: string
  readonly session: SignedState
  /** Nano-dollars. */
  readonly bound: number
  /** Unix milliseconds of the decision. */
  readonly at: number
  readonly keyId: string
  readonly isOffline: boolean
}

/** The part of the session that core receives. */
export type SignedState = Pick<
  Session,
  'id' | 'sequence' | 'seconds' | 'nanos' | 'type' | 'app' | 'isApproximate' | 'price' | 'units'
>

/** The user of unreported calls. */
export interface CallOwner {
  readonly clientId: string
  readonly externalUserId: string
  /** Runs that wait until the lease is renewed or returned. */
  runs: CallRun[] | null
}

/** Allowed calls of one session with consecutive numbers, reported together. */
export interface CallRun {
  readonly kind: 'calls'
  readonly account: CallOwner
  readonly memory: SessionCalls
  readonly leaseId: string
  readonly keyId: string
  readonly isOffline: boolean
  readonly sessionId: string
  readonly type: Session['type']
  readonly isApproximate: boolean
  /** Number of the last call. */
  sequence: number
  /** Per call: the signer's time, and the bound in nano-dollars. */
  readonly seconds: number[]
  readonly nanos: number[]
  readonly bounds: number[]
  /** When the first and the last call were decided, in milliseconds of the monotonic clock. */
  readonly firstAt: number
  lastAt: number
}

/** Maximum calls in one entry of a report. */
const maxCalls = 100
/** Maximum time between the first and the last decision. */
const longestMs = 10_000

/** Returns a run with one call, decided at `at`. */
export const newRun = (call: AllowedCall, at: number, { account, memory }: RunOwner): CallRun => ({
  kind: 'calls',
  account,
  memory,
  leaseId: call.leaseId,
  keyId: call.keyId,
  isOffline: call.isOffline,
  sessionId: call.session.id,
  type: call.session.type,
  isApproximate: call.session.isApproximate,
  sequence: call.session.sequence,
  seconds: [call.session.seconds],
  nanos: [call.session.nanos],
  bounds: [call.bound],
  firstAt: at,
  lastAt: at,
})

type RunOwner = Pick<CallRun, 'account' | 'memory'>

/** Whether a call at `at` may join a run: it has the next number and the same payer. */
export function continuesRun(run: CallRun, call: AllowedCall, at: number): boolean {
  const { session } = call
  return (
    session.sequence === run.sequence + 1 &&
    call.leaseId === run.leaseId &&
    call.keyId === run.keyId &&
    call.isOffline === run.isOffline &&
    session.type === run.type &&
    !session.isApproximate &&
    !run.isApproximate &&
    run.bounds.length < maxCalls &&
    at - run.firstAt <= longestMs
  )
}

export function extendRun(run: CallRun, { session, bound }: AllowedCall, at: number): void {
  run.sequence = session.sequence
  run.seconds.push(session.seconds)
  run.nanos.push(session.nanos)
  run.bounds.push(bound)
  run.lastAt = at
}
