import { type FileHandle, stat, writeFile } from 'node:fs/promises'
import { type RecordNumbers, type SpooledEvent, readAt } from './log-format.ts'

/** Bytes of a segment that were changed after they were written. */
export interface DamagedBytes {
  readonly segment: number
  readonly path: string
  readonly from: number
  readonly to: number
  /** Whether the file ends here, within a record. */
  readonly isEnd: boolean
}

/** Missing numbers between two events or at the end, and the damaged bytes in their place. */
export interface Gap {
  /** First missing number; null when the number before is unknown. */
  readonly from: number | null
  /** First number after the gap; null when unknown. */
  readonly to: number | null
  readonly damage: readonly DamagedBytes[]
}

/**
 * Finds the gaps in the numbers of a spool that is read from its position to its end. `expected` is
 * the number at the position, null when unknown.
 */
export function createGapSearch(expected: number | null) {
  const gaps: Gap[] = []
  let next = expected
  let acknowledged = 0
  let damage: DamagedBytes[] = []

  const addDamage = (bytes: DamagedBytes): void => void damage.push(bytes)

  function addRecords(records: readonly SpooledEvent[]): void {
    for (const { number } of records) {
      const sequence = number?.sequence ?? null
      closeGap(sequence)
      if (number === null) continue
      next = Math.max(next ?? 0, number.sequence + 1)
      acknowledged = Math.max(acknowledged, number.sequence - number.place)
    }
  }

  function closeGap(to: number | null): void {
    const isMissing = next !== null && to !== null && to > next
    if (isMissing || damage.length > 0) gaps.push({ from: next, to, damage })
    damage = []
  }

  /**
   * Returns all gaps. All numbers below `acknowledgedBelow` were acknowledged to senders, and all
   * before any group that was read.
   */
  function end(acknowledgedBelow: number | null) {
    const below = Math.max(acknowledged, acknowledgedBelow ?? 0)
    closeGap(Math.max(below, next ?? 0))
    return { gaps, acknowledgedBelow: below, next: next ?? Math.max(below, 1) }
  }

  return { addDamage, addRecords, end }
}

export type GapSearch = ReturnType<typeof createGapSearch>

/**
 * Returns how many acknowledged events a gap has lost: at least one if only damage proves the loss.
 * An incomplete record at the end of a file, without further evidence, was never acknowledged.
 */
export function lostIn({ from, to, damage }: Gap, acknowledgedBelow: number): number {
  if (from === null || to === null) return damage.some(({ isEnd }) => !isEnd) ? 1 : 0
  return Math.max(0, Math.min(to, acknowledgedBelow) - from)
}

export const countBytes = (damage: readonly DamagedBytes[]): number =>
  damage.reduce((sum, { from, to }) => sum + to - from, 0)

export interface Loss {
  readonly records: number
  readonly bytes: number
}

export interface LossTrackerOptions {
  /** Number of the next event to read; null when unknown. */
  readonly expected: number | null
  /** Gaps that recovery has reported. */
  readonly reported: readonly Gap[]
  readonly onLost: (loss: Loss) => void
}

/** Reports gaps found after the start: damage to bytes that were intact then. */
export function createLossTracker({ expected, reported, onLost }: LossTrackerOptions) {
  let next = expected
  let damagedBytes = 0

  const knownEnd = (): number | null =>
    reported.find(({ from, to }) => from !== null && from === next && to !== null)?.to ?? null

  /** Call when damaged bytes are skipped. */
  function onDamage(bytes: number): void {
    const end = knownEnd()
    if (end === null) damagedBytes += bytes
    else next = end
  }

  /** Call with the number of the next event or, at the end, the number to be written next. */
  function reach(sequence: number): void {
    if (knownEnd() === sequence) next = sequence
    if (next !== null && sequence > next) onLost({ records: sequence - next, bytes: damagedBytes })
    damagedBytes = 0
    next = Math.max(next ?? 0, sequence)
  }

  /** Call when the event with this number is forwarded. */
  function pass(number: RecordNumbers | null): void {
    if (number) next = Math.max(next ?? 0, number.sequence + 1)
  }

  return { onDamage, reach, pass, next: () => next }
}

export const asideSuffix = '.damaged'

export interface FileRange {
  readonly path: string
  readonly from: number
  readonly to: number
}

/** The file that keeps these bytes of a segment. */
export const damagedPath = ({ path, from }: FileRange): string => `${path}-${from}${asideSuffix}`

/**
 * Copies damaged bytes of a segment to a separate file. Returns the number of bytes written: 0 if
 * the file existed. Throws if they exceed `room`.
 */
export async function keepDamaged(
  file: FileHandle,
  range: FileRange,
  room: number,
): Promise<number> {
  const path = damagedPath(range)
  const size = range.to - range.from
  if ((await sizeOf(path)) === size) return 0
  if (size > room)
    throw new Error(
      'the files of damaged bytes use up part of the spool; inspect them, then delete them',
    )
  await writeFile(path, await readAt(file, range.from, size), { mode: 0o600, flush: true })
  return size
}

const sizeOf = (path: string): Promise<number | null> =>
  stat(path).then(
    ({ size }) => size,
    () => null,
  )
