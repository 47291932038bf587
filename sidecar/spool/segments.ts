import { type FileHandle, link, open, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Log } from '../../core/lib/log.ts'
import { asideSuffix, damagedPath, keepDamaged } from './losses.ts'
import { type ReadLimits, type SegmentRead, readRecords } from './log-format.ts'

/** A position in the spool: the number of a segment, and an offset in it. */
export interface LogPosition {
  readonly segment: number
  readonly offset: number
}

/** One file of the spool. */
export interface Segment {
  readonly number: number
  readonly path: string
  /** Bytes that are certainly on disk. */
  size: number
  /** Number of events that core has not acknowledged. */
  events: number
}

export const segmentPath = (directory: string, number: number): string =>
  join(directory, `${String(number).padStart(12, '0')}.events`)

/** Makes the names in a directory durable; a file's own fsync does not. */
export async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r')
  await handle.sync().finally(() => handle.close())
}

export interface SegmentsOptions {
  readonly directory: string
  /** The segments of earlier runs, oldest first. */
  readonly segments: Segment[]
  /** Total bytes of the files that earlier runs set aside. */
  readonly asideBytes: number
  /** Number of the next event. */
  readonly nextSequence: number
  /**
   * Stores that all events below a number are on disk, before they are acknowledged to their
   * senders.
   */
  readonly saveAcknowledged: (below: number) => Promise<void>
  /** Maximum total size of all files that are set aside. */
  readonly asideMaxBytes: number
  /** The lowest number that no segment has had. */
  readonly nextNumber: number
  /** Size from which the next segment is started. */
  readonly segmentBytes: number
  readonly log: Log
}

interface OpenSegment {
  readonly segment: Segment
  readonly file: FileHandle
}

/**
 * The files of the spool. One writer and one reader at a time. A segment is written once, from
 * start to end, and removed when it has been read completely and released.
 */
export function createSegments(options: SegmentsOptions) {
  const { directory, segments, segmentBytes, log } = options
  let number = options.nextNumber
  let sequence = options.nextSequence
  let asideBytes = options.asideBytes
  let writing: OpenSegment | null = null
  const reader = createSegmentReader(segments)

  const usedBytes = (): number => segments.reduce((sum, { size }) => sum + size, asideBytes)

  const waiting = (): number => segments.reduce((sum, { events }) => sum + events, 0)

  /** Records that core has acknowledged events of a segment. */
  function acknowledge(number: number, count: number): void {
    const segment = segments.find((each) => each.number === number)
    if (segment) segment.events -= count
  }

  /**
   * Resolves when the events are on disk. When it throws, no event of this call is on disk;
   * further writes may be tried.
   */
  async function write(bytes: Buffer, events: number): Promise<void> {
    if (writing && writing.segment.size + bytes.length > segmentBytes) await retire()
    writing ??= await create()
    const { segment, file } = writing
    try {
      await writeAll(file, bytes, segment.size)
      await file.datasync()
      segment.size += bytes.length
      segment.events += events
      sequence += events
    } catch (error) {
      writing = null
      await abandon({ segment, file })
      throw error
    }
    await options
      .saveAcknowledged(sequence)
      .catch((error: unknown) =>
        log.warn({ err: error }, 'the position that the spool has reached was not stored'),
      )
  }

  async function create(): Promise<OpenSegment> {
    const segment = { number, path: segmentPath(directory, number), size: 0, events: 0 }
    number += 1
    const file = await open(segment.path, 'wx', 0o600)
    segments.push(segment)
    try {
      await syncDirectory(directory)
      return { segment, file }
    } catch (error) {
      await abandon({ segment, file })
      throw error
    }
  }

  async function retire(): Promise<void> {
    const last = writing
    writing = null
    await last?.file.close()
  }

  // Write nothing after a failed fsync, because the state of the file in the system is unknown.
  async function abandon({ segment, file }: OpenSegment): Promise<void> {
    await file.truncate(segment.size).catch(() => {})
    await file.close().catch(() => {})
    if (segment.size > 0) return
    segments.splice(segments.indexOf(segment), 1)
    await rm(segment.path, { force: true }).catch(() => {})
  }

  /**
   * Gives up the segment of `position`, which cannot be read: keeps its whole file under another
   * name. Returns the end of the segment.
   */
  async function giveUp(position: LogPosition): Promise<LogPosition> {
    const next = locate(segments, position)
    if (!next) return position
    const { number, path, size } = next.segment
    try {
      await link(path, `${path}${asideSuffix}`)
      asideBytes += size
    } catch (error) {
      log.error({ err: error, segment: path }, 'a segment of the spool is lost')
    }
    return { segment: number, offset: size }
  }

  /**
   * Copies bytes that are not events to a separate file for inspection, unless recovery has done
   * that.
   */
  async function setAside(
    from: LogPosition,
    to: number,
  ): Promise<{ path: string; isNew: boolean }> {
    const segment = segmentPath(directory, from.segment)
    const range = { path: segment, from: from.offset, to }
    try {
      const file = reader.file()
      if (!file) throw new Error('the segment cannot be opened')
      const bytes = await keepDamaged(file, range, options.asideMaxBytes - asideBytes)
      asideBytes += bytes
      return { path: damagedPath(range), isNew: bytes > 0 }
    } catch (error) {
      log.error({ err: error, ...range }, 'damaged bytes of the spool could not be kept')
      return { path: damagedPath(range), isNew: true }
    }
  }

  /** Removes the segments that end at or before `position`. */
  async function release(position: LogPosition): Promise<void> {
    const isDone = ({ number, size }: Segment): boolean =>
      number < position.segment || (number === position.segment && size <= position.offset)
    for (const segment of segments.filter((each) => isDone(each) && each !== writing?.segment)) {
      await reader.leave(segment)
      await rm(segment.path, { force: true })
      segments.splice(segments.indexOf(segment), 1)
    }
  }

  async function close(): Promise<void> {
    await retire()
    await reader.close()
  }

  const nextSequence = (): number => sequence

  return {
    write,
    nextSequence,
    read: reader.read,
    acknowledge,
    giveUp,
    setAside,
    release,
    usedBytes,
    waiting,
    close,
  }
}

export type Segments = ReturnType<typeof createSegments>

/** Returns the first segment with data at or after `position`, and the offset of that data. */
function locate(
  segments: readonly Segment[],
  position: LogPosition,
): { segment: Segment; offset: number } | null {
  const segment = segments.find(({ number, size }) =>
    number > position.segment ? size > 0 : number === position.segment && size > position.offset,
  )
  if (!segment) return null
  return { segment, offset: segment.number === position.segment ? position.offset : 0 }
}

/** Reads segments, with one file open at a time. */
function createSegmentReader(segments: readonly Segment[]) {
  let reading: OpenSegment | null = null

  /** Reads at `position` or, if there is no data, at the next position with data. */
  async function read(
    position: LogPosition,
    limits: ReadLimits,
  ): Promise<SegmentRead & { readonly at: LogPosition }> {
    const next = locate(segments, position)
    if (!next) return { kind: 'end', at: position }
    const { segment, offset } = next
    const file = await openFile(segment)
    const at = { segment: segment.number, offset }
    return { ...(await readRecords(file, { from: offset, end: segment.size }, limits)), at }
  }

  async function openFile(segment: Segment): Promise<FileHandle> {
    if (reading?.segment === segment) return reading.file
    await close()
    const file = await open(segment.path, 'r')
    reading = { segment, file }
    return file
  }

  async function leave(segment: Segment): Promise<void> {
    if (reading?.segment === segment) await close()
  }

  async function close(): Promise<void> {
    const last = reading
    reading = null
    await last?.file.close()
  }

  return { read, leave, close, file: (): FileHandle | undefined => reading?.file }
}

async function writeAll(file: FileHandle, bytes: Buffer, at: number): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, at + done)
    done += bytesWritten
  }
}
