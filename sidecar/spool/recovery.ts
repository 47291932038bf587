import { type FileHandle, mkdir, open, readdir, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Log } from '../../core/lib/log.ts'
import type { Place } from './position.ts'
import { type Limits, readRecords } from './reader.ts'

/** One file of the spool. */
export interface Segment {
  readonly number: number
  readonly path: string
  /** Bytes of it that are on disk for certain. */
  size: number
  /** How many events of it core has not taken. */
  events: number
}

export interface Found {
  /** The oldest first. */
  readonly segments: Segment[]
  /** Bytes of what an earlier run set aside. */
  readonly asideBytes: number
}

const segmentName = /^(\d{12})\.events$/
export const asideSuffix = '.damaged'
const counting: Limits = { count: 100_000, bytes: 1024 * 1024 }

export const segmentPath = (directory: string, number: number): string =>
  join(directory, `${String(number).padStart(12, '0')}.events`)

/** Makes the directory, so that it is still there after a power cut. */
export async function makeDirectory(directory: string): Promise<void> {
  const made = await mkdir(directory, { recursive: true, mode: 0o700 })
  if (made === undefined) return
  for (let at = directory; at !== dirname(made); at = dirname(at)) await syncDirectory(dirname(at))
}

/** Makes the names in a directory durable: a file's own fsync does not. */
export async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r')
  await handle.sync().finally(() => handle.close())
}

/**
 * What an earlier run has left: reads every record once, removes what core has acknowledged, and
 * cuts off records that nobody was told of because their writer was killed over them.
 */
export async function recover(directory: string, place: Place, log: Log): Promise<Found> {
  const names = (await readdir(directory)).toSorted()
  const segments: Segment[] = []
  for (const name of names.filter((name) => segmentName.test(name))) {
    const number = Number(name.slice(0, 12))
    const segment = { number, path: join(directory, name), size: 0, events: 0 }
    const from = number === place.segment ? place.offset : 0
    if (number >= place.segment) {
      const file = await open(segment.path, 'r+')
      await scan(file, { segment, from, log }).finally(() => file.close())
    }
    if (segment.size > 0) segments.push(segment)
    else await rm(segment.path)
  }
  const aside = names.filter((name) => name.endsWith(asideSuffix))
  const kept = await Promise.all(aside.map((name) => stat(join(directory, name))))
  const events = segments.reduce((sum, { events }) => sum + events, 0)
  if (events > 0) log.info({ events }, 'the spool holds events of an earlier run')
  return { segments, asideBytes: kept.reduce((sum, { size }) => sum + size, 0) }
}

interface Scanning {
  readonly segment: Segment
  readonly from: number
  readonly log: Log
}

/** Finds the segment's size and how many events stand from `from` on. */
async function scan(file: FileHandle, { segment, from, log }: Scanning): Promise<void> {
  const end = (await file.stat()).size
  for (let at = Math.min(from, end); ;) {
    const read = await readRecords(file, { from: at, end }, counting)
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
