import type { Account, Lease } from './accounts.ts'
import type { Entry } from './report-entries.ts'
import {
  type AllowedCall,
  type SessionCalls,
  continuesRun,
  extendRun,
  newRun,
} from './session-calls.ts'
import type { Session } from '../signer-state/session.ts'
import { createWaitingRuns } from './waiting-runs.ts'

export interface ReportQueueOptions {
  /** Called when many entries wait for the next batch. */
  readonly onLong: () => void
  /** Milliseconds of the clock by which calls age. */
  readonly mono: () => number
}

const maxEntries = 100_000
const maxBatch = 2_000
/** Keeps a report below the maximum message size. */
const maxCalls = 20_000
/** A report of this size delays decisions by at most a millisecond. */
const flushAt = 250
const maxRefused = 10_000

/**
 * Entries to be reported, in batches. Consecutive calls of a session become one entry, which waits
 * until the user's lease is renewed or returned; all else goes into the next batch. Calls, refusals
 * and returned leases of a user keep their order.
 */
export function createReportQueue({ onLong, mono }: ReportQueueOptions) {
  let queue: Entry[] = []
  let batch: readonly Entry[] | null = null
  let refusedCalls = 0
  let offlineCalls = 0
  /** When the oldest call of the queue was decided. */
  let queuedSince = Infinity
  const waiting = createWaitingRuns({ take: push, mono })

  function push(entry: Entry): void {
    if (entry.kind === 'calls') queuedSince = Math.min(queuedSince, entry.firstAt)
    if (queue.push(entry) === flushAt) onLong()
  }

  /** Adds a call that `memory` has just stored. */
  function add(account: Account, call: AllowedCall, memory: SessionCalls): void {
    if (call.isOffline) offlineCalls++
    const at = mono()
    const { run } = memory
    if (run && !memory.isReplay && continuesRun(run, call, at)) return extendRun(run, call, at)
    const next = newRun(call, at, { account, memory })
    // A call after a replay proves the first call with that number, not the replay.
    memory.run = memory.isReplay ? null : next
    // Report new sessions and gaps in the numbers soon, because core needs them.
    if (memory.isNext && !call.isOffline) return waiting.add(next)
    waiting.takeOf(account)
    push(next)
  }

  /**
   * Adds a refusal, which proves that the signer signed the previous call. Dropped while too many
   * wait.
   */
  function addRefused(account: Account, session: Session): void {
    if (refusedCalls >= maxRefused) return
    refusedCalls++
    waiting.takeOf(account)
    push({ account, kind: 'refused', sessionId: session.id, sequence: session.sequence })
  }

  /** Returns a lease, after all calls that it paid for. */
  function giveBack(account: Account, lease: Lease): void {
    account.returning++
    waiting.takeOf(account)
    push({ account, kind: 'returned', lease })
  }

  const unsent = (): number => queue.length + (batch ? batch.length : 0)
  const unreported = (): number => unsent() + waiting.size()

  /**
   * Age in milliseconds of the oldest call outside the batch in flight that core has not received.
   */
  function unreportedMs(): bigint {
    const since = Math.min(waiting.since(), queuedSince)
    return since === Infinity ? 0n : BigInt(Math.ceil(Math.max(0, mono() - since)))
  }

  function nextBatch(): readonly Entry[] | null {
    waiting.takeOld()
    if (queue.length === 0) return null
    const count = findBatchSize(queue)
    const entries = count === queue.length ? queue : queue.slice(0, count)
    queue = count === queue.length ? [] : queue.slice(count)
    if (queue.length === 0) queuedSince = Infinity
    for (const entry of entries)
      if (entry.kind === 'calls' && entry.memory.run === entry) entry.memory.run = null
    return entries
  }

  /** Returns the batch that core has not answered, or the next one; null without entries. */
  function takeBatch(): readonly Entry[] | null {
    return (batch ??= nextBatch())
  }

  /** Forgets the batch, which core has stored. */
  function settle(): void {
    for (const entry of batch ?? []) {
      if (entry.kind === 'returned') entry.account.returning--
      else if (entry.kind === 'refused') refusedCalls--
      else if (entry.isOffline) offlineCalls -= entry.bounds.length
    }
    batch = null
  }

  return {
    add,
    addRefused,
    giveBack,
    takeBatch,
    settle,
    /** Moves all calls of an account, of a session, or of all to the next batches. */
    takeRuns: waiting.takeOf,
    takeSession: waiting.takeSession,
    takeAll: waiting.takeAll,
    unreported,
    unreportedMs,
    /** Number of entries in the next batches, without runs that still wait. */
    unsent,
    isLong: () => unsent() >= flushAt,
    isFull: () => queue.length >= maxEntries,
    hasBatch: () => batch !== null,
    hasOfflineCalls: () => offlineCalls > 0,
  }
}

/** Number of leading entries that fit into a batch. */
function findBatchSize(entries: readonly Entry[]): number {
  let calls = 0
  for (const [index, entry] of entries.entries()) {
    if (index === maxBatch || calls >= maxCalls) return index
    if (entry.kind === 'calls') calls += entry.bounds.length
  }
  return entries.length
}
