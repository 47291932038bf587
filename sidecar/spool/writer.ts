import type { Log } from '../../core/lib/log.ts'
import type { Now } from '../../core/lib/time.ts'
import { DomainError } from '../../proto/errors.ts'
import { encodeRecords, recordBytes } from './log-format.ts'

export interface WriterOptions {
  /** Resolves when the bytes are on disk. */
  readonly write: (bytes: Buffer, events: number) => Promise<void>
  /** Number of the next event; unchanged after a failed write. */
  readonly nextSequence: () => number
  readonly capacity: Capacity
  readonly onWritten: (ms: number) => void
  readonly now: Now
}

interface PendingWrite {
  readonly envelopes: readonly Buffer[]
  readonly atMs: number
  readonly size: number
  readonly written: PromiseWithResolvers<void>
}

const groupBytes = 8 * 1024 * 1024

/**
 * Group commit: while one group is forced to disk, the next one is collected, so that one fsync
 * serves all waiting pushes. The row `spool` of `npm run bench` compares it with one fsync each.
 */
export function createSpoolWriter({
  write,
  nextSequence,
  capacity,
  onWritten,
  now,
}: WriterOptions) {
  const queue: PendingWrite[] = []
  let working: Promise<void> | null = null

  /** Resolves when all events are on disk; throws SPOOL_UNAVAILABLE when that is uncertain. */
  function append(envelopes: readonly Buffer[]): Promise<void> {
    const size = recordBytes(envelopes)
    capacity.reserve(size)
    const written = Promise.withResolvers<void>()
    queue.push({ envelopes, atMs: now().getTime(), size, written })
    working ??= work()
    return written.promise
  }

  async function work(): Promise<void> {
    while (queue.length > 0) await writeGroup(nextGroup(queue))
    // Reset here and not in a later promise, because a sender that was just answered may already
    // append again.
    working = null
  }

  async function writeGroup(group: readonly PendingWrite[]): Promise<void> {
    const { bytes, events } = encodeGroup(group, nextSequence())
    const started = performance.now()
    try {
      await write(bytes, events)
      onWritten(performance.now() - started)
      for (const { written } of group) written.resolve()
    } catch (error) {
      const unavailable = capacity.onWriteFailed(error)
      for (const { written } of group) written.reject(unavailable)
    } finally {
      capacity.release(bytes.length)
    }
  }

  /** Resolves when the queue is empty. */
  const idle = async (): Promise<void> => working ?? undefined

  return { append, idle }
}

/** Assigns the numbers, which follow the order of writing. */
function encodeGroup(group: readonly PendingWrite[], first: number) {
  let place = 0
  const parts = group.map(({ envelopes, atMs }) => {
    const bytes = encodeRecords(envelopes, atMs, { sequence: first + place, place })
    place += envelopes.length
    return bytes
  })
  const [only] = parts
  return { bytes: only && parts.length === 1 ? only : Buffer.concat(parts), events: place }
}

/** Removes the writes that fit into a group from the front of the queue, at least one. */
function nextGroup(queue: PendingWrite[]): PendingWrite[] {
  let size = 0
  const end = queue.findIndex((pending, i) => {
    size += pending.size
    return i > 0 && size > groupBytes
  })
  return queue.splice(0, end === -1 ? queue.length : end)
}

export interface CapacityOptions {
  readonly maxBytes: number
  readonly usedBytes: () => number
  /** Writes a little to the disk and removes it again; throws if that fails. */
  readonly probe: () => Promise<void>
  readonly log: Log
}

/** Share of the limit below which a full spool accepts events again. */
const resumeShare = 0.9
const probeEveryMs = 1_000
const diskFullCodes = new Set(['ENOSPC', 'EDQUOT', 'EFBIG'])

/** Decides whether the spool may grow: by its limit, and by whether writes to the disk succeed. */
export function createCapacity({ maxBytes, usedBytes, probe, log }: CapacityOptions) {
  let reserved = 0
  let full: 'limit' | 'disk' | null = null
  let timer: NodeJS.Timeout | null = null

  /** Reserves space for bytes to be written. Throws SPOOL_UNAVAILABLE when they do not fit. */
  function reserve(bytes: number): void {
    if (usedBytes() + reserved + bytes > maxBytes) {
      setFull('limit')
      throw new DomainError(
        'SPOOL_UNAVAILABLE',
        'the spool is full: core has not accepted its events yet; send these again later',
      )
    }
    reserved += bytes
  }

  const release = (bytes: number): void => void (reserved -= bytes)

  function setFull(why: 'limit' | 'disk'): void {
    if (full !== why) {
      log.error({ why, usedBytes: usedBytes(), maxBytes }, 'the spool is full: pushes are refused')
    }
    full = why
    // While the sidecar is not ready, no push may arrive, so it must probe the disk itself.
    if (why === 'disk') timer ??= setInterval(() => void probeDisk(), probeEveryMs).unref()
  }

  /** Returns the error for pushes after a failed write. */
  function onWriteFailed(error: unknown): DomainError {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
    setFull('disk')
    const isFull = diskFullCodes.has(code)
    const what = isFull ? 'the disk of the spool is full' : 'the spool cannot be written'
    return new DomainError('SPOOL_UNAVAILABLE', `${what} (${code}); send the events again later`, {
      cause: error,
    })
  }

  async function probeDisk(): Promise<void> {
    await probe().then(
      () => clearFull('disk'),
      () => {},
    )
  }

  function clearFull(why: 'limit' | 'disk'): void {
    if (full !== why) return
    full = null
    if (timer) clearInterval(timer)
    timer = null
    log.info({ usedBytes: usedBytes(), maxBytes }, 'the spool accepts events again')
  }

  /** Call after something was removed. */
  function onRemoved(): void {
    if (full === 'limit' && usedBytes() + reserved <= maxBytes * resumeShare) clearFull('limit')
  }

  const stop = (): void => void (timer && clearInterval(timer))

  const onWritten = (): void => clearFull('disk')
  const isFull = (): boolean => full !== null

  return { reserve, release, onWriteFailed, onWritten, onRemoved, isFull, stop }
}

export type Capacity = ReturnType<typeof createCapacity>
