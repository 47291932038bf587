import { getOrInsert } from '../../lib/maps.ts'
import type { Db } from '../../lib/sql.ts'
import * as offsets from './offset-store.ts'
import { type Counts, type Outcome, type StreamRecord, outcomes as outcomeNames } from '../types.ts'

/** Which records of a batch are new to their stream, and how the stream's counters move on. */

/** By a record's index: was it taken before? */
export type Taken = readonly boolean[]

/** Locks the positions of the batch's partitions and tells what was taken before. */
export async function takePositions(db: Db, records: readonly StreamRecord[]): Promise<Taken> {
  const firsts = new Map<number, bigint>()
  for (const { partition, offset } of records) {
    const first = firsts.get(partition)
    if (offset !== null && (first === undefined || offset < first)) firsts.set(partition, offset)
  }
  const source = records[0]?.source
  if (firsts.size === 0 || source === undefined) return records.map(() => false)
  const positions = await offsets.lockPositions(db, source, firsts)
  const lasts = new Map([...positions].map(([partition, next]) => [partition, next - 1n]))
  return records.map(({ partition, offset }) => {
    if (offset === null) return false
    if (offset <= (lasts.get(partition) ?? -1n)) return true
    lasts.set(partition, offset)
    return false
  })
}

interface Counting {
  readonly records: readonly StreamRecord[]
  /** By a record's index; nothing for one that was taken before. */
  readonly outcomes: readonly (Outcome | undefined)[]
}

/** Moves the streams on by what their records became. */
export async function count(db: Db, { records, outcomes }: Counting): Promise<void> {
  const advances = new Map<
    number,
    { readonly counts: Record<Outcome, number>; last: bigint | null }
  >()
  outcomes.forEach((outcome, index) => {
    const record = records[index]
    if (outcome === undefined || record === undefined) return
    const { partition, offset } = record
    const advance = getOrInsert(advances, partition, () => ({ counts: noCounts(), last: null }))
    advance.counts[outcome] += 1
    if (offset !== null && (advance.last === null || offset > advance.last)) advance.last = offset
  })
  const source = records[0]?.source
  if (source === undefined || advances.size === 0) return
  await offsets.advance(
    db,
    source,
    [...advances].map(([partition, { counts, last }]) => ({
      partition,
      counts,
      nextOffset: last === null ? null : last + 1n,
    })),
  )
}

const noCounts = (): Record<Outcome, number> => ({
  ticket: 0,
  duplicate: 0,
  ignored: 0,
  quarantined: 0,
})

export function countOf(outcomes: Iterable<Outcome | undefined>): Counts {
  const counts = noCounts()
  for (const outcome of outcomes) {
    if (outcome !== undefined) counts[outcome] += 1
  }
  return counts
}

/** What became of several parts together. */
export function sumCounts(parts: readonly { readonly counts: Counts }[]): Counts {
  const sum = noCounts()
  for (const { counts } of parts) {
    for (const outcome of outcomeNames) sum[outcome] += counts[outcome]
  }
  return sum
}
