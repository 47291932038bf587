import type { Log } from '../../core/lib/log.ts'
import { DomainError } from '../../proto/errors.ts'
import type {
  Rate,
  ReportRequest,
  ReportResponse,
  SidecarProcess,
} from '../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import type { Account, Lease } from './accounts.ts'
import { type AllowedCall, continuesRun, createRunPool, extendRun } from './call-runs.ts'
import type { EscrowCore } from './escrow-core.ts'
import { type Entry, groupByUser } from './report-entries.ts'
import type { Session } from './session.ts'
import type { SessionCalls } from './session-calls.ts'
import { createWaitingRuns } from './waiting-runs.ts'

export interface ReportsOptions {
  readonly core: Pick<EscrowCore, 'report'>
  readonly process: SidecarProcess
  readonly mono: () => number
  /**
   * Milliseconds of a clock that ignores changes of the wall clock, so that no call seems older
   * than it is.
   */
  readonly ageMono: () => number
  readonly log: Log
}

/** Receives core's answers to reports. */
export interface ReportListener {
  onRate(rate: Rate | undefined): void
  /** The leases of these users must be returned. */
  onRecalled(userIds: readonly string[]): void
  /** Another process has joined this session. */
  onShared(sessionId: string): void
  /** Another process has the sidecar's id: all leases here are void. */
  onConflict(): void
  /** Core has received all offline calls so far. */
  onReconciled(): void
}

const maxEntries = 100_000
const maxBatch = 2_000
/** Keeps a report below the maximum message size. */
const maxCalls = 20_000
/** A report of this size delays decisions by at most a millisecond. */
const flushAt = 250
const maxRefused = 10_000
const quietMs = 10_000
/**
 * Core keeps the id of a killed process for three seconds, so its successor must not log an error
 * before that.
 */
const conflictMs = 5_000

/**
 * Reports allowed calls in numbered batches, one in flight, repeated until answered, so that each
 * counts once (docs/escrow.md, "Authorisation"). Consecutive calls of a session become one entry,
 * which waits until the user's lease is renewed or returned; all else is sent by the next `flush`.
 * Calls, refusals and returned leases of a user keep their order.
 */
export function createReports({ core, process, mono, ageMono, log }: ReportsOptions) {
  let listener: ReportListener | null = null
  let queue: Entry[] = []
  let batch: readonly Entry[] | null = null
  let number = 1n
  let standing: 'new' | 'accepted' | 'refused' = 'new'
  let flushing: Promise<void> | null = null
  let isAskedAgain = false
  let beating: Promise<void> | null = null
  let refusedCalls = 0
  let offlineCalls = 0
  let quietUntil = 0
  let conflictAt = 0
  let heardAt = mono()
  let sharedThrough = 0n
  /** When the oldest call of the queue was decided. */
  let queuedSince = Infinity
  const pool = createRunPool()
  const waiting = createWaitingRuns({ take: push, mono: ageMono })

  function push(entry: Entry): void {
    if (entry.kind === 'calls') queuedSince = Math.min(queuedSince, entry.firstAt)
    if (queue.push(entry) === flushAt && standing === 'accepted') void flush()
  }

  /** Adds a call that `memory` has just stored. */
  function add(account: Account, call: AllowedCall, memory: SessionCalls): void {
    if (call.isOffline) offlineCalls++
    const at = ageMono()
    const { run } = memory
    if (run && !memory.isReplay && continuesRun(run, call, at)) return extendRun(run, call, at)
    const next = pool.take(call, at, { account, memory })
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
    return since === Infinity ? 0n : BigInt(Math.ceil(Math.max(0, ageMono() - since)))
  }

  /**
   * Sends all due entries; concurrent callers share one run. The next run repeats a failed report.
   * Only a report that core refuses is logged.
   */
  function flush(): Promise<void> {
    // Also send entries added since the current batch, because core waits for recalled leases.
    isAskedAgain = flushing !== null
    if (flushing) return flushing
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    // Set before the start, because building a batch may request a flush.
    flushing = promise
    void flushNow()
      .finally(() => (flushing = null))
      .then(resolve, reject)
    return promise
  }

  async function flushNow(): Promise<void> {
    do {
      isAskedAgain = false
      batch ??= nextBatch()
      if (!batch) return
      // Rebuild for each try, because the calls have aged.
      const users = groupByUser(batch, ageMono())
      const answer = await send({ number, users, stopped: false })
      if (!answer) return
      if (answer.through >= number) settle(batch, answer)
      // Core has forgotten this process, because another process had the id in between.
      else if (answer.through + 1n < number) number = answer.through + 1n
      else return
    } while (isAskedAgain || unsent() >= flushAt)
  }

  function settle(entries: readonly Entry[], { through }: ReportResponse): void {
    batch = null
    number = through + 1n
    for (const entry of entries) {
      if (entry.kind === 'returned') entry.account.returning--
      else if (entry.kind === 'refused') refusedCalls--
      else {
        if (entry.isOffline) offlineCalls -= entry.bounds.length
        pool.giveBack(entry)
      }
    }
    if (offlineCalls === 0) listener?.onReconciled()
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

  /**
   * Keeps the process alive in core, and fetches rates and recalls. A report in flight has the same
   * effect, and core accepts one at a time. An unanswered batch goes first, because core assumes
   * that a process it has contact with has reported all older calls.
   */
  function heartbeat(): Promise<void> {
    if (flushing || batch) return flush()
    return (beating ??= beat().finally(() => (beating = null)))
  }

  async function beat(): Promise<void> {
    await send({ number: 0n, users: [], stopped: false })
  }

  /** Returns core's answer; null without one. */
  async function send(report: Content): Promise<ReportResponse | null> {
    const sentAt = mono()
    try {
      const progress = { unreportedMs: unreportedMs(), sharedThrough }
      const answer = await core.report({ sidecar: process, ...report, ...progress })
      heardAt = Math.max(heardAt, sentAt)
      if (standing === 'refused')
        log.info({ sidecarId: process.id }, 'the sidecar has its id at core')
      standing = 'accepted'
      listener?.onRate(answer.rate)
      for (const id of answer.sharedSessions) listener?.onShared(id)
      sharedThrough = answer.sharedThrough
      if (answer.recalled.length > 0) listener?.onRecalled(answer.recalled)
      return answer
    } catch (error) {
      if (error instanceof DomainError) onRefused(error)
      return null
    }
  }

  function onRefused(error: DomainError): void {
    if (error.reason === 'CONFLICT') {
      if (standing !== 'refused') conflictAt = mono()
      standing = 'refused'
      listener?.onConflict()
      if (mono() - conflictAt < conflictMs) return
      complain(
        {},
        'another process uses the id of this sidecar, so no call is allowed until the id is free; set SIDECAR_ID',
      )
    }
    // Retries cannot succeed, so an operator must be informed.
    if (error.reason === 'REQUEST_INVALID')
      complain(
        { err: error },
        'core refuses the reports of this sidecar, so the calls that it allowed are not recorded',
      )
  }

  function complain(details: object, message: string): void {
    if (mono() < quietUntil) return
    quietUntil = mono() + quietMs
    log.error({ sidecarId: process.id, ...details }, message)
  }

  /** Resolves once core has accepted this process under its id; throws otherwise. */
  async function join(): Promise<void> {
    if (standing !== 'accepted') await heartbeat()
    if (standing !== 'accepted')
      throw new DomainError('UNAVAILABLE', 'core has not accepted the sidecar')
  }

  /** Resolves once core has taken back the account's leases; throws otherwise. */
  async function returned(account: Account): Promise<void> {
    for (let tries = 0; account.returning > 0 && tries < 2; tries++) await flush()
    if (account.returning > 0)
      throw new DomainError('UNAVAILABLE', 'a lease is still being returned')
  }

  /** Reports the account's waiting calls. Resolves even when core does not answer. */
  async function reported(account: Account): Promise<void> {
    if (!account.runs) return
    waiting.takeOf(account)
    await flush()
  }

  /** Reports everything and frees the id; gives up when core does not answer. */
  async function stop(): Promise<void> {
    waiting.takeAll()
    await flush()
    for (let left = unreported() + 1; unreported() > 0 && unreported() < left; await flush())
      left = unreported()
    if (standing === 'accepted') await send({ number: 0n, users: [], stopped: true })
  }

  return {
    add,
    addRefused,
    giveBack,
    flush,
    heartbeat,
    join,
    returned,
    reported,
    /** Moves all calls of an account, or of a session, to the next batches. */
    takeRuns: waiting.takeOf,
    takeSession: waiting.takeSession,
    stop,
    unreported,
    /** Number of entries in the next batches, without runs that still wait. */
    unsent,
    /** Milliseconds since the last answered report or heartbeat was sent. */
    unheardMs: () => mono() - heardAt,
    isFull: () => queue.length >= maxEntries,
    /** Whether another process has the sidecar's id. */
    isRefused: () => standing === 'refused',
    listen: (to: ReportListener) => void (listener = to),
  }
}

export type Reports = ReturnType<typeof createReports>

type Content = Pick<ReportRequest, 'number' | 'users' | 'stopped'>

/** Number of leading entries that fit into a batch. */
function findBatchSize(entries: readonly Entry[]): number {
  let calls = 0
  for (const [index, entry] of entries.entries()) {
    if (index === maxBatch || calls >= maxCalls) return index
    if (entry.kind === 'calls') calls += entry.bounds.length
  }
  return entries.length
}
