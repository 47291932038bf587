import { rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { lockDirectory } from '../../core/lib/directory-lock.ts'
import type { Log } from '../../core/lib/log.ts'
import type { Metrics } from '../../core/lib/metrics.ts'
import type { Now } from '../../core/lib/time.ts'
import { startForwarder } from './forwarder.ts'
import { createSpoolMeters } from './metrics.ts'
import { openPosition } from './position.ts'
import { makeDirectory, recover } from './recovery.ts'
import { createRoom } from './room.ts'
import { createSegments } from './segments.ts'
import { createSpoolWriter } from './writer.ts'

export interface SpoolOptions {
  readonly directory: string
  /** Disk that it may take. */
  readonly maxBytes: number
  /** Returns when core has committed every envelope: at most 1,000 and 2 MiB of them, or one. */
  readonly deliver: (envelopes: Buffer[], correlationId: string) => Promise<unknown>
  readonly onDelivered: (events: number) => void
  readonly onFailed: () => void
  readonly metrics: Metrics
  readonly log: Log
  readonly now: Now
}

const usualSegment = 16 * 1024 * 1024
/** Enough that what core has taken holds little of the disk, and not too many to count. */
const segmentsOf = { least: 16, most: 256 } as const
const drainMs = 1_000
const probeBytes = 64 * 1024

/**
 * A queue on disk between the signer and core (decision 5). What `keep` has taken survives the end
 * of the process at any instant and reaches core at least once, in order, however long core is
 * away; core drops repeats by their id. Rejects with one clear line when the directory cannot be
 * used, or when another process uses it.
 */
export async function openSpool(options: SpoolOptions) {
  const directory = resolve(options.directory)
  const { maxBytes, log, now } = options
  const { position, segments, unlock } = await openFiles({ directory, maxBytes, log })
  const room = createRoom({
    maxBytes,
    usedBytes: segments.usedBytes,
    probe: () => probe(directory),
    log,
  })
  const meters = createSpoolMeters(options.metrics, () => {
    const oldestMs = forwarder.oldestMs()
    const oldestSeconds = oldestMs === null ? 0 : Math.max(0, (now().getTime() - oldestMs) / 1000)
    const [bytes, events, full] = [segments.usedBytes(), segments.waiting(), room.isFull()]
    return { bytes, events, oldestSeconds, full }
  })
  const forwarder = startForwarder({
    segments,
    position,
    log,
    deliver: options.deliver,
    onFailed: options.onFailed,
    onDelivered: options.onDelivered,
    onReleased: room.changed,
    onDamaged: meters.damaged,
  })
  const writer = createSpoolWriter({
    write: segments.write,
    room,
    now,
    onWritten: (ms) => {
      room.wrote()
      meters.wrote(ms)
      forwarder.wake()
    },
  })

  async function keep(envelopes: readonly Buffer[]): Promise<Record<string, number>> {
    if (envelopes.length > 0) await writer.keep(envelopes)
    return {}
  }

  /** Ends within about a second; what core does not have by then stays for the next start. */
  async function stop(): Promise<void> {
    await writer.settled()
    await forwarder.stop(drainMs)
    room.stop()
    await segments.close()
    await segments.release(forwarder.place())
    await position.close()
    await unlock()
  }

  return { keep, maxInFlight: 1_000, isFull: room.isFull, stop }
}

export type Spool = Awaited<ReturnType<typeof openSpool>>

type Opening = Pick<SpoolOptions, 'directory' | 'maxBytes' | 'log'>

async function openFiles({ directory, maxBytes, log }: Opening) {
  let unlock = async (): Promise<void> => {}
  try {
    await makeDirectory(directory)
    unlock = await lockDirectory(directory, 'SPOOL_DIR')
    const position = await openPosition(directory)
    const found = await recover(directory, position.start, log)
    const last = Math.max(position.start.segment, ...found.segments.map(({ number }) => number))
    const largest = Math.max(usualSegment, maxBytes / segmentsOf.most)
    const segmentBytes = Math.min(largest, maxBytes / segmentsOf.least)
    const segments = createSegments({ directory, found, nextNumber: last + 1, segmentBytes, log })
    return { position, segments, unlock }
  } catch (error) {
    await unlock()
    throw unusable(directory, error)
  }
}

// An error of the system names its call and a file; a person wants the setting.
function unusable(directory: string, error: unknown): unknown {
  if (!(error instanceof Error && 'syscall' in error && 'code' in error)) return error
  const hint = 'set SPOOL_DIR to a folder that this user may write'
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
