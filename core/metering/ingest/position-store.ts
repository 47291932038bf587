import { getOrInsert } from '../../lib/maps.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import type { StreamRecord } from '../events/record.ts'

/** Stores stream positions and counts of record outcomes: the table `stream_offsets`. */

/** Every record of a stream has one of these outcomes. */
export const eventOutcomes = ['ticket', 'duplicate', 'ignored', 'quarantined'] as const
export type EventOutcome = (typeof eventOutcomes)[number]
export type OutcomeCounts = Readonly<Record<EventOutcome, number>>

/** By index: whether an earlier transaction consumed the record. */
export type AlreadyConsumed = readonly boolean[]

/**
 * Locks the positions of the batch's partitions until the transaction ends. Returns which records
 * are before them.
 */
export async function lockStreams(
  db: Db,
  records: readonly StreamRecord[],
): Promise<AlreadyConsumed> {
  const firsts = new Map<number, bigint>()
  for (const { partition, offset } of records) {
    const first = firsts.get(partition)
    if (offset !== null && (first === undefined || offset < first)) firsts.set(partition, offset)
  }
  const source = records[0]?.source
  if (firsts.size === 0 || source === undefined) return records.map(() => false)
  const positions = await lockPositions(db, source, firsts)
  const lasts = new Map([...positions].map(([partition, next]) => [partition, next - 1n]))
  return records.map(({ partition, offset }) => {
    if (offset === null) return false
    if (offset <= (lasts.get(partition) ?? -1n)) return true
    lasts.set(partition, offset)
    return false
  })
}

interface Settlement {
  readonly at: Date
  readonly records: readonly StreamRecord[]
  /** By index; undefined for records consumed before. */
  readonly outcomes: readonly (EventOutcome | undefined)[]
}

/** Advances the streams past their records and counts the outcomes. */
export async function advanceStreams(db: Db, { at, records, outcomes }: Settlement): Promise<void> {
  const advances = new Map<
    number,
    { readonly counts: Record<EventOutcome, number>; last: bigint | null; newestMs: number }
  >()
  outcomes.forEach((outcome, index) => {
    const record = records[index]
    if (outcome === undefined || record === undefined) return
    const { partition, offset, producedAtMs } = record
    const advance = getOrInsert(advances, partition, () => ({
      counts: noCounts(),
      last: null,
      newestMs: 0,
    }))
    advance.counts[outcome] += 1
    if (producedAtMs > advance.newestMs) advance.newestMs = producedAtMs
    if (offset !== null && (advance.last === null || offset > advance.last)) advance.last = offset
  })
  const source = records[0]?.source
  if (source === undefined || advances.size === 0) return
  await advance(
    db,
    { source, at },
    [...advances].map(([partition, { counts, last, newestMs }]) => ({
      partition,
      counts,
      nextOffset: last === null ? null : last + 1n,
      newestAt: toNewest(newestMs, at),
    })),
  )
}

/** The producer may set a record's time: one after `at` counts as `at`, none as unknown. */
const toNewest = (newestMs: number, at: Date): Date | null =>
  newestMs <= 0 ? null : new Date(Math.min(newestMs, at.getTime()))

const noCounts = (): Record<EventOutcome, number> => ({
  ticket: 0,
  duplicate: 0,
  ignored: 0,
  quarantined: 0,
})

export function countOutcomes(outcomes: Iterable<EventOutcome | undefined>): OutcomeCounts {
  const counts = noCounts()
  for (const outcome of outcomes) {
    if (outcome !== undefined) counts[outcome] += 1
  }
  return counts
}

/** Adds up the counts of several parts. */
export function sumCounts(parts: readonly { readonly counts: OutcomeCounts }[]): OutcomeCounts {
  const sum = noCounts()
  for (const { counts } of parts) {
    for (const outcome of eventOutcomes) sum[outcome] += counts[outcome]
  }
  return sum
}

export interface StreamPosition {
  readonly source: string
  readonly partition: number
  readonly nextOffset: bigint
}

/**
 * Locks the positions of a source's partitions, in order. A new partition starts at its offset in
 * `firsts`.
 */
async function lockPositions(
  db: Db,
  source: string,
  firsts: ReadonlyMap<number, bigint>,
): Promise<Map<number, bigint>> {
  const known = await lockKnown(db, source, [...firsts.keys()])
  if (known.size === firsts.size) return known
  const partitions = [...firsts.keys()]
  await db.query(sql`
    insert into stream_offsets (source, partition, first_offset, next_offset, tickets, duplicates, ignored, quarantined, missing)
    select ${source}, partition, first, first, 0, 0, 0, 0, 0
    from unnest(${partitions}::integer[], ${partitions.map((p) => firsts.get(p))}::bigint[]) as batch (partition, first)
    order by partition
    on conflict do nothing`)
  return lockKnown(db, source, partitions)
}

async function lockKnown(
  db: Db,
  source: string,
  partitions: readonly number[],
): Promise<Map<number, bigint>> {
  const rows = await many<{ partition: number; next_offset: bigint }>(
    db,
    sql`
    select partition, next_offset
    from stream_offsets
    where source = ${source} and partition = any(${partitions}::integer[])
    order by partition
    for update`,
  )
  return new Map(rows.map((row) => [row.partition, row.next_offset]))
}

interface Advance {
  readonly partition: number
  readonly counts: OutcomeCounts
  /**
   * The offset to continue at; null for a stream without offsets, where only the counters change.
   */
  readonly nextOffset: bigint | null
  /** When the stream received its newest record; null if no record has a time. */
  readonly newestAt: Date | null
}

/** Adds to a source's counters and moves its positions. Counts skipped offsets as missing. */
async function advance(
  db: Db,
  { source, at }: { readonly source: string; readonly at: Date },
  advances: readonly Advance[],
): Promise<void> {
  const column = <T>(value: (advance: Advance) => T): T[] => advances.map(value)
  await db.query(sql`
    insert into stream_offsets as s
      (source, partition, first_offset, next_offset, tickets, duplicates, ignored, quarantined, missing, newest_at,
       booked_at)
    select ${source}, partition, 0, tickets + duplicates + ignored + quarantined, tickets, duplicates, ignored,
           quarantined, 0, newest_at, ${at}::timestamptz
    from unnest(
      ${column((a) => a.partition)}::integer[], ${column((a) => a.counts.ticket)}::bigint[],
      ${column((a) => a.counts.duplicate)}::bigint[], ${column((a) => a.counts.ignored)}::bigint[],
      ${column((a) => a.counts.quarantined)}::bigint[], ${column((a) => a.newestAt)}::timestamptz[])
      as batch (partition, tickets, duplicates, ignored, quarantined, newest_at)
    order by partition
    on conflict (source, partition) do update
    set next_offset = s.next_offset + excluded.next_offset,
        tickets = s.tickets + excluded.tickets,
        duplicates = s.duplicates + excluded.duplicates,
        ignored = s.ignored + excluded.ignored,
        quarantined = s.quarantined + excluded.quarantined,
        newest_at = greatest(s.newest_at, excluded.newest_at),
        booked_at = greatest(s.booked_at, excluded.booked_at)`)
  const placed = advances.filter(({ nextOffset }) => nextOffset !== null)
  if (placed.length === 0) return
  await db.query(sql`
    update stream_offsets s
    set next_offset = reached.next_offset, missing = s.missing + reached.next_offset - s.next_offset
    from unnest(${placed.map((a) => a.partition)}::integer[], ${placed.map((a) => a.nextOffset)}::bigint[])
      as reached (partition, next_offset)
    where s.source = ${source} and s.partition = reached.partition and s.next_offset <> reached.next_offset`)
}

/** Returns the offset at which each partition of a source continues. */
export async function readPositions(db: Db, source: string): Promise<Map<number, bigint>> {
  const rows = await many<{ partition: number; next_offset: bigint }>(
    db,
    sql`
    select partition, next_offset
    from stream_offsets
    where source = ${source}`,
  )
  return new Map(rows.map((row) => [row.partition, row.next_offset]))
}

/**
 * Moves a position back to the end of a log that the broker truncated, so that later records count
 * as new.
 */
export async function rewind(
  db: Db,
  { source, partition, nextOffset }: StreamPosition,
): Promise<void> {
  await db.query(sql`
    update stream_offsets
    set next_offset = ${nextOffset}, missing = missing + ${nextOffset} - next_offset
    where source = ${source} and partition = ${partition} and next_offset > ${nextOffset}`)
}

/** Returns the outcome of each record, by index; undefined for records consumed before. */
export function listOutcomes(
  indexes: Readonly<Record<EventOutcome, readonly number[]>>,
): EventOutcome[] {
  const outcomes: EventOutcome[] = []
  const assign = (outcome: EventOutcome): void => {
    for (const index of indexes[outcome]) outcomes[index] = outcome
  }
  assign('ticket')
  assign('duplicate')
  assign('ignored')
  assign('quarantined')
  return outcomes
}
