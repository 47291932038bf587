import type { Db } from '../lib/sql.ts'
import type { Examined } from './batch.ts'
import * as offsets from './offset-store.ts'
import { type Counts, type Outcome, type StreamRecord, outcomes as outcomeNames } from './types.ts'

/** Which records of a batch are new to their stream, and how the stream's counters move on. */

export interface Indexed { readonly index: number; readonly examined: Examined }

/** Locks the positions of the batch's partitions and leaves out what was taken before. */
export async function skipTaken(
  db: Db, { records, indexed }: { records: readonly StreamRecord[]; indexed: readonly Indexed[] },
): Promise<readonly Indexed[]> {
  const firsts = new Map<number, bigint>()
  for (const { partition, offset } of records) {
    const first = firsts.get(partition)
    if (offset !== null && (first === undefined || offset < first)) firsts.set(partition, offset)
  }
  const source = records[0]?.source
  if (firsts.size === 0 || source === undefined) return indexed
  const positions = await offsets.lockPositions(db, source, firsts)
  return indexed.filter(({ index }) => {
    const { partition, offset } = records[index] ?? { partition: 0, offset: null }
    if (offset === null) return true
    if (offset < (positions.get(partition) ?? 0n)) return false
    positions.set(partition, offset + 1n)
    return true
  })
}

interface Counting {
  readonly records: readonly StreamRecord[]
  readonly fresh: readonly Indexed[]
  readonly outcomes: ReadonlyMap<number, Outcome>
}

export async function count(db: Db, { records, fresh, outcomes }: Counting): Promise<void> {
  const byPartition = Map.groupBy(fresh, ({ index }) => records[index]?.partition ?? 0)
  for (const [partition, taken] of [...byPartition].sort(([a], [b]) => a - b)) {
    const [first] = taken
    const source = (first && records[first.index]?.source) ?? ''
    const last = taken.reduce((highest: bigint, { index }) => bigMax(highest, records[index]?.offset ?? -1n), -1n)
    const counts = countOf(taken.map(({ index }) => {
      const outcome = outcomes.get(index)
      if (outcome === undefined) throw new Error(`record ${index} became nothing`)
      return outcome
    }))
    await offsets.advance(db, { source, partition, counts, nextOffset: last < 0n ? null : last + 1n })
  }
}

const bigMax = (a: bigint, b: bigint): bigint => (a > b ? a : b)

export function countOf(outcomes: Iterable<Outcome>): Counts {
  const counts = { ticket: 0, duplicate: 0, ignored: 0, quarantined: 0 }
  for (const outcome of outcomes) counts[outcome] += 1
  return counts
}

/** What became of several parts together. */
export function sumCounts(parts: readonly { readonly counts: Counts }[]): Counts {
  const sum = { ticket: 0, duplicate: 0, ignored: 0, quarantined: 0 }
  for (const { counts } of parts) {
    for (const outcome of outcomeNames) sum[outcome] += counts[outcome]
  }
  return sum
}
