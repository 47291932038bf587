import type { Session } from './session.ts'

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

/** The session of unreported calls. */
export interface RunMemory {
  /** The run that further calls may still join. */
  run: CallRun | null
}

/** Allowed calls of one session with consecutive numbers, reported together. */
export interface CallRun {
  readonly kind: 'calls'
  account: CallOwner
  memory: RunMemory
  leaseId: string
  keyId: string
  isOffline: boolean
  sessionId: string
  type: Session['type']
  isApproximate: boolean
  /** Number of the last call. */
  sequence: number
  /** Per call: the signer's time, and the bound in nano-dollars. */
  readonly seconds: number[]
  readonly nanos: number[]
  readonly bounds: number[]
  /** When the first and the last call were decided, in milliseconds of the monotonic clock. */
  firstAt: number
  lastAt: number
}

/** About the number of waiting runs at a few thousand calls per second. */
const maxSpare = 10_000
/** Maximum calls in one entry of a report. */
const maxCalls = 100
/** Maximum time between the first and the last decision. */
const longestMs = 10_000

/**
 * A pool of reusable runs. A run lives for seconds, until core has answered: long enough for the
 * garbage collector to move it to the old generation, where freeing it is expensive.
 */
export function createRunPool() {
  const spare: CallRun[] = []

  /** Returns a run with one call, decided at `at`. */
  function take(call: AllowedCall, at: number, owner: RunOwner): CallRun {
    const run = spare.pop() ?? newRun(owner)
    const { session } = call
    run.account = owner.account
    run.memory = owner.memory
    run.leaseId = call.leaseId
    run.keyId = call.keyId
    run.isOffline = call.isOffline
    run.sessionId = session.id
    run.type = session.type
    run.isApproximate = session.isApproximate
    for (const list of [run.seconds, run.nanos, run.bounds]) list.length = 0
    run.firstAt = at
    extendRun(run, call, at)
    return run
  }

  /** The caller must not read the run afterwards. */
  function giveBack(run: CallRun): void {
    if (spare.length < maxSpare) spare.push(run)
  }

  return { take, giveBack }
}

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

type RunOwner = Pick<CallRun, 'account' | 'memory'>

const newRun = ({ account, memory }: RunOwner): CallRun => ({
  kind: 'calls',
  account,
  memory,
  leaseId: '',
  keyId: '',
  isOffline: false,
  sessionId: '',
  type: '',
  isApproximate: false,
  sequence: 0,
  seconds: [],
  nanos: [],
  bounds: [],
  firstAt: 0,
  lastAt: 0,
})
