import type { Account } from './accounts.ts'
import type { Session } from './session.ts'

/** A call that was allowed, as core is told of it. */
export interface AllowedCall {
  /** "" when core reserves it, or when it is paid from the offline budget. */
  readonly leaseId: string
  readonly session: SignedState
  /** Nano-dollars. */
  readonly bound: number
  /** Unix milliseconds of the decision. */
  readonly at: number
  readonly keyId: string
  readonly isOffline: boolean
}

/** What core is told of the session. */
export type SignedState = Pick<
  Session,
  'id' | 'sequence' | 'seconds' | 'nanos' | 'type' | 'app' | 'isApproximate' | 'price' | 'units'
>

/** An allowed call that waits to be reported. */
export interface CallEntry extends Mutable<AllowedCall> {
  readonly kind: 'call'
  account: Account
  readonly session: Mutable<SignedState>
  /** Milliseconds of the monotonic clock. */
  mono: number
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] }

/** So many wait at a few thousand calls a second. */
const maxSpare = 10_000

/**
 * Entries that are written over and used again. One lives for some hundred milliseconds, until core
 * has answered: long enough for the collector to move it to the old generation, and what dies
 * there is dear. What the state of the call was parsed into is not kept.
 */
export function createCallPool() {
  const spare: CallEntry[] = []

  function take(account: Account, call: AllowedCall, mono: number): CallEntry {
    const entry = spare.pop()
    if (!entry) return newEntry(account, call, mono)
    entry.account = account
    entry.mono = mono
    entry.leaseId = call.leaseId
    entry.bound = call.bound
    entry.at = call.at
    entry.keyId = call.keyId
    entry.isOffline = call.isOffline
    copyState(call.session, entry.session)
    return entry
  }

  /** Nobody may read the entry from now on. */
  function giveBack(entry: CallEntry): void {
    if (spare.length < maxSpare) spare.push(entry)
  }

  return { take, giveBack }
}

const newEntry = (account: Account, call: AllowedCall, mono: number): CallEntry => ({
  kind: 'call',
  account,
  mono,
  leaseId: call.leaseId,
  bound: call.bound,
  at: call.at,
  keyId: call.keyId,
  isOffline: call.isOffline,
  session: newState(call.session),
})

const newState = (state: SignedState): SignedState => ({
  id: state.id,
  sequence: state.sequence,
  seconds: state.seconds,
  nanos: state.nanos,
  type: state.type,
  app: state.app,
  isApproximate: state.isApproximate,
  price: state.price,
  units: state.units,
})

function copyState(from: SignedState, to: Mutable<SignedState>): void {
  to.id = from.id
  to.sequence = from.sequence
  to.seconds = from.seconds
  to.nanos = from.nanos
  to.type = from.type
  to.app = from.app
  to.isApproximate = from.isApproximate
  to.price = from.price
  to.units = from.units
}
