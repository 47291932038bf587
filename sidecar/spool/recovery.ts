import { type FileHandle, mkdir, open, readdir, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { crc32 } from 'node:zlib'
import type { Log } from '../../core/lib/log.ts'
import { type ReadLimits, readRecords } from './log-format.ts'
import { type LogPosition, type Segment, asideSuffix, syncDirectory } from './segments.ts'

const segmentName = /^(\d{12})\.events$/
const scanLimits: ReadLimits = { count: 100_000, bytes: 1024 * 1024 }

/** Makes the directory, so that it is still there after a power cut. */
export async function makeDirectory(directory: string): Promise<void> {
  const topmost = await mkdir(directory, { recursive: true, mode: 0o700 })
  if (topmost === undefined) return
  for (let at = directory; at !== dirname(topmost); at = dirname(at))
    await syncDirectory(dirname(at))
}

const checkpointBytes = 20

/**
 * Opens the file that holds the position up to which core has acknowledged events. It is not forced
 * to disk: after a power cut an older position is read, and events that are sent again are
 * duplicates by their id.
 */
export async function openCheckpoint(directory: string) {
  const path = join(directory, 'position')
  const file = await open(path, 'r+').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return open(path, 'w+', 0o600)
    throw error
  })
  const start = await readCheckpoint(file)

  async function save({ segment, offset }: LogPosition): Promise<void> {
    const bytes = Buffer.alloc(checkpointBytes)
    bytes.writeDoubleLE(segment, 0)
    bytes.writeDoubleLE(offset, 8)
    bytes.writeUInt32LE(crc32(bytes.subarray(0, 16)), 16)
    await file.write(bytes, 0, checkpointBytes, 0)
  }

  return { start, save, close: () => file.close() }
}

export type Checkpoint = Awaited<ReturnType<typeof openCheckpoint>>

/** The start of the spool when the file is new or was torn. */
async function readCheckpoint(file: FileHandle): Promise<LogPosition> {
  const bytes = Buffer.alloc(checkpointBytes)
  const { bytesRead } = await file.read(bytes, 0, checkpointBytes, 0)
  const isWhole =
    bytesRead === checkpointBytes && crc32(bytes.subarray(0, 16)) === bytes.readUInt32LE(16)
  return isWhole
    ? { segment: bytes.readDoubleLE(0), offset: bytes.readDoubleLE(8) }
    : { segment: 0, offset: 0 }
}

export interface RecoveredSegments {
  /** The oldest first. */
  readonly segments: Segment[]
  /** Bytes of the files that earlier runs set aside. */
  readonly asideBytes: number
}

/**
 * Recovers the segments of earlier runs. Reads every record once, removes segments that core has
 * acknowledged, and cuts off records that were never acknowledged to the sender because their
 * writer was killed before their end.
 */
export async function recoverSegments(
  directory: string,
  position: LogPosition,
  log: Log,
): Promise<RecoveredSegments> {
  const names = (await readdir(directory)).toSorted()
  const segments: Segment[] = []
  for (const name of names.filter((name) => segmentName.test(name))) {
    const number = Number(name.slice(0, 12))
    const segment = { number, path: join(directory, name), size: 0, events: 0 }
    const from = number === position.segment ? position.offset : 0
    if (number >= position.segment) {
      const file = await open(segment.path, 'r+')
      await scan(file, { segment, from, log }).finally(() => file.close())
    }
    if (segment.size > 0) segments.push(segment)
    else await rm(segment.path)
  }
  const asideNames = names.filter((name) => name.endsWith(asideSuffix))
  const asideStats = await Promise.all(asideNames.map((name) => stat(join(directory, name))))
  const events = segments.reduce((sum, { events }) => sum + events, 0)
  if (events > 0) log.info({ events }, 'the spool holds events of an earlier run')
  return { segments, asideBytes: asideStats.reduce((sum, { size }) => sum + size, 0) }
}

interface SegmentScan {
  readonly segment: Segment
  readonly from: number
  readonly log: Log
}

/** Determines the segment's size, and counts its events from `from` on. */
async function scan(file: FileHandle, { segment, from, log }: SegmentScan): Promise<void> {
  const end = (await file.stat()).size
  for (let at = Math.min(from, end); ;) {
    const read = await readRecords(file, { from: at, end }, scanLimits)
    if (read.kind === 'records') segment.events += read.records.length
    if (read.kind === 'torn') {
      await file.truncate(at)
      await file.datasync()
      log.warn(
        { segment: segment.path, bytes: end - at },
        'cut off a record that was not written to its end',
      )
    }
    if (read.kind === 'torn' || read.kind === 'end') {
      segment.size = read.kind === 'torn' ? at : end
      return
    }
    at = read.next
  }
}
