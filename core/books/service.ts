import type { Invalidations } from '../platform/invalidations.ts'
import type { Log } from '../lib/log.ts'
import type { Metrics } from '../lib/metrics.ts'
import type { Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { type DoorDeps, createDoor, refusingPoison } from '../metering/ingest/manual-ingest.ts'
import { type Loop, startLoop } from '../lib/loop.ts'
import { createPartitions } from '../metering/ingest/partitions.ts'
import { createQuarantine } from '../metering/quarantine/quarantine.ts'
import { createQuarantineMetrics } from '../metering/quarantine/metrics.ts'
import { createQuarantineRpc } from '../metering/quarantine/rpc.ts'
import { createArchive } from './archive/archive.ts'
import type { BooksConfig } from './config.ts'
import { createExport } from './transfer/export.ts'
import { createImport } from './transfer/import.ts'
import { createRebuild } from './rebuild/rebuild.ts'
import { createBooksRpc } from './rpc.ts'
import { createVerify } from './verify/verify.ts'

export interface BooksDeps extends Omit<DoorDeps, 'partitions'> {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  readonly metrics: Metrics
  readonly config: BooksConfig
  readonly invalidations: Invalidations
}

const archivePauseMs = 3_600_000

/** What operators do with the books: prove and repair them, move and archive tickets, decide about quarantined events. */
export function createBooks({
  pool,
  now,
  log,
  metrics,
  config,
  invalidations,
  ...admitting
}: BooksDeps) {
  const door = createDoor({ ...admitting, partitions: createPartitions(pool, now) })
  const quarantine = createQuarantine({ pool, now, log, door, invalidations })
  const tickets = {
    ...createExport({ pool }),
    ...createImport({ pool, now, log, door, refusingPoison, invalidations }),
  }
  const archive = createArchive({ pool, now, log, config, pages: tickets.pages })
  createQuarantineMetrics(metrics, quarantine.waiting)
  let archiving: Loop | null = null

  /** Archives by policy from now on. */
  function start(): void {
    if (config.retentionMonths === 0) return
    archiving = startLoop({
      name: 'archive',
      log,
      pauseMs: archivePauseMs,
      delayed: true,
      round: (signal) => archive.run({ dryRun: false, signal, tell: () => {} }),
    })
  }

  const stop = async (): Promise<void> => archiving?.stop()

  const verify = createVerify({ pool })
  const rebuild = createRebuild({ pool, now })
  return {
    ...createBooksRpc({ verify, rebuild, tickets, archive }),
    ...createQuarantineRpc({ quarantine }),
    start,
    stop,
  }
}
