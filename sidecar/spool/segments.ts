import { type FileHandle, link, open, rm, writeFile } from 'node:fs/promises'
import type { Log } from '../../core/lib/log.ts'
import type { Place } from './position.ts'
import { type Limits, type Read, readAt, readRecords } from './reader.ts'
import { type Found, type Segment, asideSuffix, segmentPath, syncDirectory } from './recovery.ts'

export interface SegmentsOptions {
  readonly directory: string
  readonly found: Found
  /** The lowest number that no segment has had. */
  readonly nextNumber: number
  /** Size at which a segment is followed by the next. */
  readonly segmentBytes: number
  readonly log: Log
}

interface Open {
  readonly segment: Segment
  readonly file: FileHandle
}

/**
 * The files of the spool. One writer and one reader at a time; a segment is written once, from its
 * beginning to its end, and removed when all of it has been read and released.
 */
export function createSegments(options: SegmentsOptions) {
  const { directory, found, segmentBytes, log } = options
  const { segments } = found
  let number = options.nextNumber
  let asideBytes = found.asideBytes
  let writing: Open | null = null
  let reading: Open | null = null

  const usedBytes = (): number => segments.reduce((sum, { size }) => sum + size, asideBytes)

  const waiting = (): number => segments.reduce((sum, { events }) => sum + events, 0)

  /** Notes that core has taken events of a segment. */
  function taken(number: number, count: number): void {
    const segment = segments.find((one) => one.number === number)
    if (segment) segment.events -= count
  }

  /** Returns when the events are on disk. When it throws none of them is; others may be tried. */
  async function write(bytes: Buffer, events: number): Promise<void> {
    if (writing && writing.segment.size + bytes.length > segmentBytes) await retire()
    writing ??= await create()
    const { segment, file } = writing
    try {
      await writeAll(file, bytes, segment.size)
      await file.datasync()
      segment.size += bytes.length
      segment.events += events
    } catch (error) {
      writing = null
      await abandon({ segment, file })
      throw error
    }
  }

  async function create(): Promise<Open> {
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

  // What the system holds of a file whose fsync failed is not to be trusted: nothing follows it.
  async function abandon({ segment, file }: Open): Promise<void> {
    await file.truncate(segment.size).catch(() => {})
    await file.close().catch(() => {})
    if (segment.size > 0) return
    segments.splice(segments.indexOf(segment), 1)
    await rm(segment.path, { force: true }).catch(() => {})
  }

  /** The first segment that has anything from `place` on, and where in it that is. */
  function locate(place: Place): { segment: Segment; offset: number } | null {
    const segment = segments.find(({ number, size }) =>
      number > place.segment ? size > 0 : number === place.segment && size > place.offset,
    )
    if (!segment) return null
    return { segment, offset: segment.number === place.segment ? place.offset : 0 }
  }

  /** What stands at `place` or, where nothing does, at the next one that holds something. */
  async function read(place: Place, limits: Limits): Promise<Read & { readonly at: Place }> {
    const next = locate(place)
    if (!next) return { kind: 'end', at: place }
    const { segment, offset } = next
    if (reading?.segment !== segment) await turnTo(segment)
    const at = { segment: segment.number, offset }
    if (!reading) return { kind: 'end', at }
    return { ...(await readRecords(reading.file, { from: offset, end: segment.size }, limits)), at }
  }

  async function turnTo(segment: Segment): Promise<void> {
    await closeReading()
    reading = { segment, file: await open(segment.path, 'r') }
  }

  async function closeReading(): Promise<void> {
    const last = reading
    reading = null
    await last?.file.close()
  }

  /**
   * Keeps the whole file of the segment that `place` is in, which cannot be read, beside the spool.
   * Returns where the segment ends.
   */
  async function giveUp(place: Place): Promise<Place> {
    const next = locate(place)
    if (!next) return place
    const { number, path, size } = next.segment
    try {
      await link(path, `${path}${asideSuffix}`)
      asideBytes += size
    } catch (error) {
      log.error({ err: error, segment: path }, 'a segment of the spool is lost')
    }
    return { segment: number, offset: size }
  }

  /** Keeps bytes that are no events, for a person to look at. */
  async function setAside(from: Place, to: number): Promise<string> {
    const path = `${segmentPath(directory, from.segment)}-${from.offset}${asideSuffix}`
    try {
      if (!reading) throw new Error('the segment cannot be opened')
      const bytes = await readAt(reading.file, from.offset, to - from.offset)
      await writeFile(path, bytes, { mode: 0o600 })
      asideBytes += bytes.length
    } catch (error) {
      log.error(
        { err: error, segment: from.segment, from: from.offset, to },
        'damaged bytes of the spool could not be kept',
      )
    }
    return path
  }

  /** Removes the segments that are all before `place`. */
  async function release(place: Place): Promise<void> {
    const isDone = ({ number, size }: Segment): boolean =>
      number < place.segment || (number === place.segment && size <= place.offset)
    for (const segment of segments.filter((one) => isDone(one) && one !== writing?.segment)) {
      if (reading?.segment === segment) await closeReading()
      await rm(segment.path, { force: true })
      segments.splice(segments.indexOf(segment), 1)
    }
  }

  async function close(): Promise<void> {
    await retire()
    await closeReading()
  }

  return { write, read, taken, giveUp, setAside, release, usedBytes, waiting, close }
}

export type Segments = ReturnType<typeof createSegments>

async function writeAll(file: FileHandle, bytes: Buffer, at: number): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, at + done)
    done += bytesWritten
  }
}
