import type { Log } from '../../core/lib/log.ts'
import { DomainError } from '../../proto/errors.ts'
import type {
  Rate,
  ReportRequest,
  ReportResponse,
  SidecarProcess,
} from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import type { Account } from './accounts.ts'
import type { EscrowCore } from '../core/escrow.ts'
import { groupByUser } from './report-entries.ts'
import { createReportQueue } from './report-queue.ts'

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

const quietMs = 10_000
/**
 * Core keeps the id of a killed process for three seconds, so its successor must not log an error
 * before that.
 */
const conflictMs = 5_000

/**
 * Reports allowed calls in numbered batches, one in flight, repeated until answered, so that each
 * counts once (docs/escrow.md, "Authorisation"). Has all functions of the queue.
 */
export function createReports({ core, process, mono, ageMono, log }: ReportsOptions) {
  let listener: ReportListener | null = null
  let number = 1n
  let standing: 'new' | 'accepted' | 'refused' = 'new'
  let flushing: Promise<void> | null = null
  let isAskedAgain = false
  let beating: Promise<unknown> | null = null
  let conflictAt = 0
  let lastContactAt = mono()
  let sharedThrough = 0n
  const complain = createComplaints({ process, mono, log })
  const onLong = (): void => void (standing === 'accepted' && flush())
  const queue = createReportQueue({ onLong, mono: ageMono })

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
      const batch = queue.takeBatch()
      if (!batch) return
      // Rebuild for each try, because the calls have aged.
      const users = groupByUser(batch, ageMono())
      const answer = await send({ number, users, stopped: false })
      if (!answer) return
      if (answer.through >= number) settle(answer)
      // Core has forgotten this process, because another process had the id in between.
      else if (answer.through + 1n < number) number = answer.through + 1n
      else return
    } while (isAskedAgain || queue.isLong())
  }

  function settle({ through }: ReportResponse): void {
    queue.settle()
    number = through + 1n
    if (!queue.hasOfflineCalls()) listener?.onReconciled()
  }

  /**
   * Keeps the process alive in core, and fetches rates and recalls. A report in flight has the same
   * effect, and core accepts one at a time. An unanswered batch goes first, because core assumes
   * that a process it has contact with has reported all older calls.
   */
  function heartbeat(): Promise<unknown> {
    if (flushing || queue.hasBatch()) return flush()
    beating ??= send({ number: 0n, users: [], stopped: false }).finally(() => (beating = null))
    return beating
  }

  /** Returns core's answer; null without one. */
  async function send(report: Content): Promise<ReportResponse | null> {
    const sentAt = mono()
    try {
      const progress = { unreportedMs: queue.unreportedMs(), sharedThrough }
      const answer = await core.report({ sidecar: process, ...report, ...progress })
      lastContactAt = Math.max(lastContactAt, sentAt)
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
    queue.takeRuns(account)
    await flush()
  }

  /** Reports everything and frees the id; gives up when core does not answer. */
  async function stop(): Promise<void> {
    queue.takeAll()
    await flush()
    const { unreported } = queue
    for (let left = unreported() + 1; unreported() > 0 && unreported() < left; await flush())
      left = unreported()
    if (standing === 'accepted') await send({ number: 0n, users: [], stopped: true })
  }

  return {
    ...queue,
    flush,
    heartbeat,
    join,
    returned,
    reported,
    stop,
    /** Milliseconds since the last answered report or heartbeat was sent. */
    msSinceLastContact: () => mono() - lastContactAt,
    /** Whether another process has the sidecar's id. */
    isRefused: () => standing === 'refused',
    listen: (to: ReportListener) => void (listener = to),
  }
}

export type Reports = ReturnType<typeof createReports>

/** Logs at most one error in ten seconds. */
function createComplaints({
  process,
  mono,
  log,
}: Pick<ReportsOptions, 'process' | 'mono' | 'log'>) {
  let quietUntil = 0

  return (details: object, message: string): void => {
    if (mono() < quietUntil) return
    quietUntil = mono() + quietMs
    log.error({ sidecarId: process.id, ...details }, message)
  }
}

type Content = Pick<ReportRequest, 'number' | 'users' | 'stopped'>
