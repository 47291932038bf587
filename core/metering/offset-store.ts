import { type Db, many, sql } from '../lib/sql.ts'
import type { Counts } from './types.ts'

/** How far each stream was taken. */

export interface StreamPosition {
  readonly source: string
  readonly partition: number
  readonly nextOffset: bigint
}

/** Locks the positions of a source's partitions, in order; one seen for the first time starts at `firsts`. */
export async function lockPositions(
  db: Db, source: string, firsts: ReadonlyMap<number, bigint>,
): Promise<Map<number, bigint>> {
  const partitions = [...firsts.keys()].sort((a, b) => a - b)
  await db.query(sql`
    insert into stream_offsets (source, partition, first_offset, next_offset, tickets, duplicates, ignored, quarantined, missing)
    select ${source}, partition, first, first, 0, 0, 0, 0, 0
    from unnest(${partitions}::integer[], ${partitions.map((p) => firsts.get(p))}::bigint[]) as batch (partition, first)
    order by partition
    on conflict do nothing`)
  const rows = await many<{ partition: number; next_offset: bigint }>(db, sql`
    select partition, next_offset
    from stream_offsets
    where source = ${source} and partition = any(${partitions}::integer[])
    order by partition
    for update`)
  return new Map(rows.map((row) => [row.partition, row.next_offset]))
}

export interface Advance {
  readonly source: string
  readonly partition: number
  readonly counts: Counts
  /** Where the stream goes on; null where it has no offsets and the counters are all there is. */
  readonly nextOffset: bigint | null
}

/** Counts what was taken. Offsets that brought no record are counted as missing. */
export async function advance(db: Db, { source, partition, counts, nextOffset }: Advance): Promise<void> {
  const taken = counts.ticket + counts.duplicate + counts.ignored + counts.quarantined
  await db.query(sql`
    insert into stream_offsets as s
      (source, partition, first_offset, next_offset, tickets, duplicates, ignored, quarantined, missing)
    values (${source}, ${partition}, 0, ${taken}, ${counts.ticket}, ${counts.duplicate}, ${counts.ignored},
            ${counts.quarantined}, 0)
    on conflict (source, partition) do update
    set next_offset = coalesce(${nextOffset}::bigint, s.next_offset + ${taken}),
        tickets = s.tickets + excluded.tickets,
        duplicates = s.duplicates + excluded.duplicates,
        ignored = s.ignored + excluded.ignored,
        quarantined = s.quarantined + excluded.quarantined,
        missing = s.missing + coalesce(${nextOffset}::bigint - s.next_offset - ${taken}, 0)`)
}

/** Where each partition of a source goes on. */
export async function readPositions(db: Db, source: string): Promise<Map<number, bigint>> {
  const rows = await many<{ partition: number; next_offset: bigint }>(db, sql`
    select partition, next_offset
    from stream_offsets
    where source = ${source}`)
  return new Map(rows.map((row) => [row.partition, row.next_offset]))
}

/** Books a loss at the broker: the log now ends before the position, so that what comes next is new. */
export async function rewind(db: Db, { source, partition, nextOffset }: StreamPosition): Promise<void> {
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
    source: string; partition: number; next_offset: bigint
    tickets: bigint; duplicates: bigint; ignored: bigint; quarantined: bigint
  }>(db, sql`
    select source, partition, next_offset, tickets, duplicates, ignored, quarantined
    from stream_offsets
    order by source, partition
    limit 10000`)
  return rows.map(({ next_offset: nextOffset, ...row }) => ({ ...row, nextOffset }))
}
