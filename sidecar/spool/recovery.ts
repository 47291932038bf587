import { type FileHandle, mkdir, open, readdir, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Log } from '../../core/lib/log.ts'
import type { Checkpoint } from './checkpoint.ts'
import { type ReadLimits, readRecords } from './log-format.ts'
import {
  type DamagedBytes,
  type Gap,
  type GapSearch,
  type Loss,
  asideSuffix,
  countBytes,
  createGapSearch,
  damagedPath,
  keepDamaged,
  lostIn,
} from './losses.ts'
import { type LogPosition, type Segment, syncDirectory } from './segments.ts'

const segmentName = /^(\d{12})\.events$/
const scanLimits: ReadLimits = { count: 100_000, bytes: 1024 * 1024 }

/** Creates the directory durably, so that it survives a power cut. */
export async function makeDirectory(directory: string): Promise<void> {
  const topmost = await mkdir(directory, { recursive: true, mode: 0o700 })
  if (topmost === undefined) return
  for (let at = directory; at !== dirname(topmost); at = dirname(at))
    await syncDirectory(dirname(at))
}

export interface RecoveredSegments {
  /** Oldest first. */
  readonly segments: Segment[]
  /** Total bytes of the files that were set aside. */
  readonly asideBytes: number
  /** Number of the next event. */
  readonly nextSequence: number
  /** Number of the event at the position; null when unknown. */
  readonly startSequence: number | null
  /** All gaps, which are already reported. */
  readonly gaps: readonly Gap[]
}

export interface RecoveryOptions {
  readonly checkpoint: Checkpoint
  /** Maximum total size of all files that are set aside. */
  readonly asideMaxBytes: number
  readonly onLost: (loss: Loss) => void
  readonly log: Log
}

/**
 * Recovers the segments of earlier runs. Reads every record once, removes segments that core has
 * acknowledged, cuts off incomplete records of a killed writer, which were never acknowledged to
 * the sender, and reports acknowledged records that are lost.
 */
export async function recoverSegments(
  directory: string,
  options: RecoveryOptions,
): Promise<RecoveredSegments> {
  const { checkpoint, log } = options
  const { start } = checkpoint
  const names = (await readdir(directory)).toSorted()
  const segmentNames = names.filter((name) => segmentName.test(name))
  const isNew = segmentNames.length === 0 && checkpoint.acknowledgedBelow === null
  const startSequence = start.sequence ?? (isNew ? 1 : null)
  const search = createGapSearch(startSequence)
  const { segments, torn } = await scanSegments(directory, segmentNames, { start, search })
  const { gaps, acknowledgedBelow, next } = search.end(checkpoint.acknowledgedBelow)
  let asideBytes = await asideBytesOf(directory, names)
  for (const gap of gaps)
    asideBytes += await report(gap, { ...options, acknowledgedBelow, asideBytes })
  for (const end of torn) await cutOff(end, log)
  for (const { path } of segments.filter(({ size }) => size === 0)) await rm(path)
  await checkpoint.saveAcknowledged(next)
  if (isNew) await checkpoint.save({ ...start, sequence: startSequence })
  const events = segments.reduce((sum, { events }) => sum + events, 0)
  if (events > 0) log.info({ events }, 'the spool holds events of an earlier run')
  const whole = segments.filter(({ size }) => size > 0)
  return { segments: whole, asideBytes, nextSequence: next, startSequence, gaps }
}

interface DirectoryScan {
  readonly start: LogPosition
  readonly search: GapSearch
}

/** Returns all segments, and the torn ends of their files. */
async function scanSegments(
  directory: string,
  names: readonly string[],
  { start, search }: DirectoryScan,
) {
  const segments: Segment[] = []
  const torn: DamagedBytes[] = []
  for (const name of names) {
    const number = Number(name.slice(0, 12))
    const segment = { number, path: join(directory, name), size: 0, events: 0 }
    const from = number === start.segment ? start.offset : 0
    if (number >= start.segment) {
      const file = await open(segment.path, 'r')
      const end = await scan(file, { segment, from, search }).finally(() => file.close())
      if (end) torn.push(end)
    }
    segments.push(segment)
  }
  return { segments, torn }
}

async function asideBytesOf(directory: string, names: readonly string[]): Promise<number> {
  const asideNames = names.filter((name) => name.endsWith(asideSuffix))
  const stats = await Promise.all(asideNames.map((name) => stat(join(directory, name))))
  return stats.reduce((sum, { size }) => sum + size, 0)
}

interface SegmentScan {
  readonly segment: Segment
  readonly from: number
  readonly search: GapSearch
}

/**
 * Determines the segment's size, and counts its events from `from` on. Returns its torn end, if
 * any.
 */
async function scan(
  file: FileHandle,
  { segment, from, search }: SegmentScan,
): Promise<DamagedBytes | null> {
  const end = (await file.stat()).size
  const { number, path } = segment
  for (let at = Math.min(from, end); ;) {
    const read = await readRecords(file, { from: at, end }, scanLimits)
    segment.size = read.kind === 'torn' ? at : end
    if (read.kind === 'end') return null
    if (read.kind === 'torn') {
      const bytes = { segment: number, path, from: at, to: end, isEnd: true }
      search.addDamage(bytes)
      return bytes
    }
    if (read.kind === 'records') {
      segment.events += read.records.length
      search.addRecords(read.records)
    } else search.addDamage({ segment: number, path, from: at, to: read.next, isEnd: false })
    at = read.next
  }
}

interface Report extends RecoveryOptions {
  readonly acknowledgedBelow: number
  readonly asideBytes: number
}

/**
 * Reports acknowledged events that are lost, and keeps the damaged bytes in their place. Returns
 * the number of bytes kept.
 */
async function report(
  gap: Gap,
  { acknowledgedBelow, onLost, log, ...aside }: Report,
): Promise<number> {
  const records = lostIn(gap, acknowledgedBelow)
  if (records === 0) return 0
  let kept = 0
  let keptBefore = 0
  for (const bytes of gap.damage) {
    const room = aside.asideMaxBytes - aside.asideBytes - kept
    try {
      const size = await keepBytes(bytes, room)
      kept += size
      if (size === 0) keptBefore += 1
    } catch (error) {
      log.error({ err: error, ...bytes }, 'damaged bytes of the spool could not be kept')
    }
  }
  const bytes = countBytes(gap.damage)
  const damage = gap.damage.map((bytes) => ({ ...bytes, kept: damagedPath(bytes) }))
  const loss = { records, bytes, from: gap.from, to: gap.to, damage }
  if (keptBefore > 0 && keptBefore === gap.damage.length) {
    log.warn(loss, 'an earlier run has reported that these events are lost')
    return 0
  }
  log.error(
    loss,
    'events that were acknowledged are lost: the spool is damaged; what follows is forwarded',
  )
  onLost({ records, bytes })
  return kept
}

async function keepBytes(bytes: DamagedBytes, room: number): Promise<number> {
  const file = await open(bytes.path, 'r')
  return keepDamaged(file, bytes, room).finally(() => file.close())
}

async function cutOff({ path, from, to }: DamagedBytes, log: Log): Promise<void> {
  const file = await open(path, 'r+')
  try {
    await file.truncate(from)
    await file.datasync()
  } finally {
    await file.close()
  }
  log.debug({ segment: path, bytes: to - from }, 'cut off an incomplete write')
}
