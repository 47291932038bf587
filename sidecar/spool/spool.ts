import { rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { lockDirectory } from '../../core/lib/directory-lock.ts'
import type { Log } from '../../core/lib/log.ts'
import type { Metrics } from '../../core/lib/metrics.ts'
import type { Now } from '../../core/lib/time.ts'
import { startForwarder } from './forwarder.ts'
import { createSpoolMetrics } from './metrics.ts'
import { openCheckpoint } from './checkpoint.ts'
import type { Loss } from './losses.ts'
import { makeDirectory, recoverSegments } from './recovery.ts'
import { createSegments } from './segments.ts'
import { createCapacity, createSpoolWriter } from './writer.ts'

export interface SpoolOptions {
  readonly directory: string
  /** Disk space that the spool may use. */
  readonly maxBytes: number
  /** Resolves when core has committed every envelope: at most 1,000 and 2 MiB, or a single one. */
  readonly deliver: (envelopes: Buffer[], correlationId: string) => Promise<unknown>
  readonly onDelivered: (events: number) => void
  readonly onFailed: () => void
  readonly metrics: Metrics
  readonly log: Log
  readonly now: Now
}

const usualSegmentBytes = 16 * 1024 * 1024
/** Small enough segments that an acknowledged part wastes little disk, but not too many to scan. */
const segmentCount = { least: 16, most: 256 } as const
const drainMs = 1_000
const probeBytes = 64 * 1024

/**
 * A queue on disk between the signer and core (decision 5). Events accepted by `store` survive the
 * end of the process at any instant and reach core at least once, in order, however long core is
 * unavailable; core drops duplicates by their id. Rejects with one clear line when the directory
 * cannot be used, or when another process uses it.
 */
export async function openSpool(options: SpoolOptions) {
  const directory = resolve(options.directory)
  const { maxBytes, log, now } = options
  const spoolMetrics = createSpoolMetrics(options.metrics)
  const onLost = spoolMetrics.countLoss
  const { checkpoint, segments, recovered, unlock } = await openFiles({
    directory,
    maxBytes,
    onLost,
    log,
  })
  const capacity = createCapacity({
    maxBytes,
    usedBytes: segments.usedBytes,
    probe: () => probe(directory),
    log,
  })
  spoolMetrics.observe(() => {
    const oldestMs = forwarder.oldestMs()
    const oldestSeconds = oldestMs === null ? 0 : Math.max(0, (now().getTime() - oldestMs) / 1000)
    const [bytes, events, full] = [segments.usedBytes(), segments.waiting(), capacity.isFull()]
    return { bytes, events, oldestSeconds, full, maxBytes }
  })
  const forwarder = startForwarder({
    segments,
    checkpoint,
    startSequence: recovered.startSequence,
    knownGaps: recovered.gaps,
    onLost,
    log,
    deliver: options.deliver,
    onFailed: options.onFailed,
    onDelivered: options.onDelivered,
    onRemoved: capacity.onRemoved,
    onDamaged: spoolMetrics.countDamage,
  })
  const writer = createSpoolWriter({
    write: segments.write,
    nextSequence: segments.nextSequence,
    capacity,
    now,
    onWritten: (ms) => {
      capacity.onWritten()
      spoolMetrics.observeWrite(ms)
      forwarder.wake()
    },
  })

  async function store(envelopes: readonly Buffer[]): Promise<Record<string, number>> {
    if (envelopes.length > 0) await writer.append(envelopes)
    return {}
  }

  /** Ends within about a second; events that core has not acknowledged by then stay on disk. */
  async function stop(): Promise<void> {
    await writer.idle()
    await forwarder.stop(drainMs)
    capacity.stop()
    await segments.close()
    await segments.release(forwarder.position())
    await checkpoint.close()
    await unlock()
  }

  return { store, maxInFlight: 1_000, isFull: capacity.isFull, stop }
}

export type Spool = Awaited<ReturnType<typeof openSpool>>

interface Opening extends Pick<SpoolOptions, 'maxBytes' | 'log'> {
  readonly directory: string
  readonly onLost: (loss: Loss) => void
}

/** Share of the limit that damaged bytes may use. */
const asideShare = 0.5

async function openFiles({ directory, maxBytes, onLost, log }: Opening) {
  let unlock = async (): Promise<void> => {}
  try {
    await makeDirectory(directory)
    unlock = await lockDirectory(directory, 'SPOOL_DIR')
    const checkpoint = await openCheckpoint(directory)
    const asideMaxBytes = maxBytes * asideShare
    const recovered = await recoverSegments(directory, { checkpoint, asideMaxBytes, onLost, log })
    const last = Math.max(
      checkpoint.start.segment,
      ...recovered.segments.map(({ number }) => number),
    )
    const largest = Math.max(usualSegmentBytes, maxBytes / segmentCount.most)
    const segments = createSegments({
      directory,
      ...recovered,
      saveAcknowledged: checkpoint.saveAcknowledged,
      asideMaxBytes,
      nextNumber: last + 1,
      segmentBytes: Math.min(largest, maxBytes / segmentCount.least),
      log,
    })
    return { checkpoint, segments, recovered, unlock }
  } catch (error) {
    await unlock()
    throw unusableDirectory(directory, error)
  }
}

// A system error contains its call and a file, but the operator needs the setting's name.
function unusableDirectory(directory: string, error: unknown): unknown {
  if (!(error instanceof Error && 'syscall' in error && 'code' in error)) return error
  const isFull = error.code === 'ENOSPC' || error.code === 'EDQUOT'
  const hint = isFull
    ? 'free space, or set SPOOL_DIR to a folder on another disk'
    : 'set SPOOL_DIR to a folder that this user may write'
  return new Error(`cannot use the spool ${directory} (${String(error.code)}); ${hint}`, {
    cause: error,
  })
}

async function probe(directory: string): Promise<void> {
  const path = join(directory, 'probe')
  await writeFile(path, Buffer.alloc(probeBytes), { flush: true }).finally(() =>
    rm(path, { force: true }),
  )
}
