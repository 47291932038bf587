import { Counter, Gauge } from 'prom-client'
import { startLoop } from '../../lib/loop.ts'
import type { Log } from '../../lib/log.ts'
import { type Metrics, startAtZero } from '../../lib/metrics.ts'
import type { Reloadable } from '../../lib/settings/reloadable.ts'
import { toMessage } from '../../lib/process.ts'
import { type Pool, createPool, isUnavailable } from '../../lib/sql.ts'
import { replayedPosition, writtenPosition } from './store.ts'

export interface ReplicaConfig {
  readonly url: Reloadable<string>
  readonly maxLagSeconds: number
}

/** Runs a query whose answer may be some seconds old. */
export type Read = <T>(work: (pool: Pool) => Promise<T>) => Promise<T>

export interface Reads {
  readonly read: Read
  stop(): Promise<void>
}

export interface ReplicaDeps {
  readonly primary: Pool
  readonly poolMax: number
  readonly log: Log
  readonly metrics: Metrics
}

const pauseMs = 1_000
const statementTimeoutMs = 10_000
const measuringMs = 2_000
// A standby cancels a query that blocks its replay with the code of a failed serialization.
const conflict = '40001'
const outOfTime = '57014'

/** Positions in the primary's log, each with the time when it was read; the oldest first. */
type Positions = { readonly lsn: bigint; readonly at: number }[]

export const readPrimary = (primary: Pool): Reads => ({
  read: (work) => work(primary),
  stop: async () => {},
})

/**
 * Sends reads to the replica while it has replayed everything that the primary wrote until
 * `maxLagSeconds` ago; to the primary otherwise. The lag comes from positions in the log, so that
 * neither an idle primary nor a wrong clock counts as lag. Never use it to decide, or to read what
 * the same request wrote.
 */
export function openReplica({ url, maxLagSeconds }: ReplicaConfig, deps: ReplicaDeps): Reads {
  const { primary, log } = deps
  const pool = createPool({
    url,
    max: deps.poolMax,
    name: 'tollgate-core-reads',
    statementTimeoutMs,
  })
  // Reports that fill the other pool are not lag.
  const measuringPool = createPool({
    url,
    max: 1,
    name: 'tollgate-core-lag',
    statementTimeoutMs: measuringMs,
  })
  const { reads } = createReplicaMetrics(deps.metrics, () => lagSeconds())
  let positions: Positions = []
  let freshAt = Number.NEGATIVE_INFINITY
  let isUsed: boolean | null = null

  const lagSeconds = (): number => (performance.now() - freshAt) / 1_000
  const isFresh = (): boolean => lagSeconds() <= maxLagSeconds

  async function measure(): Promise<void> {
    const why = await compare().then(
      () => `it lags by more than ${maxLagSeconds} s (DATABASE_READ_MAX_LAG_SECONDS)`,
      (error: unknown) => toMessage(error),
    )
    report(why)
  }

  /** Finds the latest known position that the replica has replayed. */
  async function compare(): Promise<void> {
    const replayed = await replayedPosition(measuringPool)
    if (replayed === null) throw new Error('DATABASE_READ_URL is not a replica')
    const written = await writtenPosition(primary)
    const at = performance.now()
    if (replayed > written)
      throw new Error('it is not a replica of DATABASE_URL: it is ahead of it')
    positions.push({ lsn: written, at })
    const reached = positions.findLastIndex(({ lsn }) => lsn <= replayed)
    freshAt = positions[reached]?.at ?? freshAt
    const oldest = at - 1_000 * maxLagSeconds
    positions = positions.slice(Math.max(reached, 0)).filter((position) => position.at >= oldest)
  }

  function report(why: string): void {
    if (isFresh() === isUsed) return
    isUsed = isFresh()
    if (isUsed) log.info('usage is read from the replica of DATABASE_READ_URL')
    else log.warn({ why }, 'usage is read from the primary: the replica cannot be used')
  }

  async function read<T>(work: (pool: Pool) => Promise<T>): Promise<T> {
    if (isFresh()) {
      try {
        const answer = await work(pool)
        reads.inc({ source: 'replica' })
        return answer
      } catch (error) {
        if (!isReplicaFault(error)) throw error
      }
    }
    reads.inc({ source: 'primary' })
    return work(primary)
  }

  const measuring = startLoop({
    name: 'replica',
    log,
    metrics: deps.metrics,
    pauseMs,
    round: measure,
  })

  async function stop(): Promise<void> {
    void measuring.stop()
    await Promise.all([pool.end(), measuringPool.end()])
  }

  return { read, stop }
}

/** A read that ran out of its time would do so on the primary, too, which has more to do. */
function isReplicaFault(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return code === conflict || (isUnavailable(error) && code !== outOfTime)
}

function createReplicaMetrics(metrics: Metrics, lagSeconds: () => number) {
  const reads = new Counter({
    name: 'tollgate_core_reads_total',
    help: 'Reads of usage, by the database that answered: replica or primary.',
    labelNames: ['source'],
    registers: [metrics],
  })
  startAtZero(reads, { source: ['replica', 'primary'] })
  const lag = new Gauge({
    name: 'tollgate_core_replica_lag_seconds',
    help: 'Age of the data of the replica; Infinity if it is unknown.',
    registers: [metrics],
    collect() {
      this.set(lagSeconds())
    },
  })
  return { reads, lag }
}
