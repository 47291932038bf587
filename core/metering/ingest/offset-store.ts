import { type Db, many, sql } from '../../lib/sql.ts'
import type { Counts } from '../types.ts'

/** How far each stream was taken. */

export interface StreamPosition {
  readonly source: string
  readonly partition: number
  readonly nextOffset: bigint
}

/** Locks the positions of a source's partitions, in order; one seen for the first time starts at `firsts`. */
export async function lockPositions(
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

export interface Advance {
  readonly partition: number
  readonly counts: Counts
  /** Where the stream goes on; null where it has no offsets and the counters are all there is. */
  readonly nextOffset: bigint | null
}

/** Counts what was taken of a source. Offsets that brought no record are counted as missing. */
export async function advance(db: Db, source: string, advances: readonly Advance[]): Promise<void> {
  const column = <T>(value: (advance: Advance) => T): T[] => advances.map(value)
  await db.query(sql`
    insert into stream_offsets as s
      (source, partition, first_offset, next_offset, tickets, duplicates, ignored, quarantined, missing)
    select ${source}, partition, 0, tickets + duplicates + ignored + quarantined, tickets, duplicates, ignored,
           quarantined, 0
    from unnest(
      ${column((a) => a.partition)}::integer[], ${column((a) => a.counts.ticket)}::bigint[],
      ${column((a) => a.counts.duplicate)}::bigint[], ${column((a) => a.counts.ignored)}::bigint[],
      ${column((a) => a.counts.quarantined)}::bigint[])
      as batch (partition, tickets, duplicates, ignored, quarantined)
    order by partition
    on conflict (source, partition) do update
    set next_offset = s.next_offset + excluded.next_offset,
        tickets = s.tickets + excluded.tickets,
        duplicates = s.duplicates + excluded.duplicates,
        ignored = s.ignored + excluded.ignored,
        quarantined = s.quarantined + excluded.quarantined`)
  const placed = advances.filter(({ nextOffset }) => nextOffset !== null)
  if (placed.length === 0) return
  await db.query(sql`
    update stream_offsets s
    set next_offset = reached.next_offset, missing = s.missing + reached.next_offset - s.next_offset
    from unnest(${placed.map((a) => a.partition)}::integer[], ${placed.map((a) => a.nextOffset)}::bigint[])
      as reached (partition, next_offset)
    where s.source = ${source} and s.partition = reached.partition and s.next_offset <> reached.next_offset`)
}

/** Where each partition of a source goes on. */
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

/** Books a loss at the broker: the log now ends before the position, so that what comes next is new. */
export async function rewind(
  db: Db,
  { source, partition, nextOffset }: StreamPosition,
): Promise<void> {
  await db.query(sql`
    update stream_offsets
    set next_offset = ${nextOffset}, missing = missing + ${nextOffset} - next_offset
    where source = ${source} and partition = ${partition} and next_offset > ${nextOffset}`)
}

export interface StreamRow extends StreamPosition {
  readonly tickets: bigint
  readonly duplicates: bigint
  readonly ignored: bigint
  readonly quarantined: bigint
}

/** Every stream with its counters. */
export async function streams(db: Db): Promise<StreamRow[]> {
  const rows = await many<{
    source: string
    partition: number
    next_offset: bigint
    tickets: bigint
    duplicates: bigint
    ignored: bigint
    quarantined: bigint
  }>(
    db,
    sql`
    select source, partition, next_offset, tickets, duplicates, ignored, quarantined
    from stream_offsets
    order by source, partition
    limit 10000`,
  )
  return rows.map(({ next_offset: nextOffset, ...row }) => ({ ...row, nextOffset }))
}
