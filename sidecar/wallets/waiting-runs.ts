import type { CallOwner, CallRun } from './session-calls.ts'

/**
 * A call is reported within this time, even if its user's lease is neither renewed nor returned.
 */
const reportWithinMs = 10_000
/** Runs of nearly the same age are taken together. */
const togetherMs = 1_000
/** Above this number, the oldest runs no longer wait. */
const maxRuns = 50_000

export interface WaitingRunsOptions {
  /** Receives runs to be reported with the next batches. */
  readonly take: (run: CallRun) => void
  /** Milliseconds of the clock that gives runs their times. */
  readonly mono: () => number
}

/** Runs that wait until their user's lease is renewed or returned, by user. */
export function createWaitingRuns({ take, mono }: WaitingRunsOptions) {
  /** Ordered by their oldest runs. */
  const owners = new Set<CallOwner>()
  let size = 0

  function add(run: CallRun): void {
    const { account } = run
    account.runs ??= []
    account.runs.push(run)
    owners.add(account)
    size++
    const [oldest] = owners
    if (size > maxRuns && oldest) takeOf(oldest)
  }

  function takeOf(owner: CallOwner): void {
    const { runs } = owner
    if (!runs) return
    owner.runs = null
    owners.delete(owner)
    size -= runs.length
    for (const run of runs) take(run)
  }

  /** Takes the runs that have waited long enough. */
  function takeOld(): void {
    const at = mono()
    if (since() > at - reportWithinMs) return
    for (const owner of owners) {
      if (sinceOf(owner) > at - reportWithinMs + togetherMs) return
      takeOf(owner)
    }
  }

  /** Takes the runs of all users of a session. */
  function takeSession(id: string): void {
    for (const owner of owners)
      if (owner.runs?.some(({ sessionId }) => sessionId === id)) takeOf(owner)
  }

  function takeAll(): void {
    for (const owner of owners) takeOf(owner)
  }

  /** When the oldest waiting call was decided; Infinity without one. */
  function since(): number {
    for (const owner of owners) return sinceOf(owner)
    return Infinity
  }

  return { add, takeOf, takeOld, takeSession, takeAll, since, size: () => size }
}

const sinceOf = ({ runs }: CallOwner): number => runs?.[0]?.firstAt ?? Infinity
