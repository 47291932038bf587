import { type Db, many, sql } from '../../lib/sql.ts'
import { type StreamEnd, type StreamLag, type StreamProgress, streamLag } from './lag.ts'

/** Stores the ends of streams at the broker: the table `stream_ends`. */

/** The offsets that the broker has of a partition. */
export interface PartitionRange {
  readonly partition: number
  readonly start: bigint
  readonly end: bigint
}

export interface SourceRanges {
  readonly source: string
  readonly ranges: readonly PartitionRange[]
}

/**
 * The next offset to book, in a join of `stream_offsets` with the ranges. Events before the start
 * do not wait: the broker has deleted them.
 */
const nextOffset = 'greatest(next_offset, start_offset)'

/**
 * Stores what a collector read at `at`. Deletes ends that no collector has read for a day, such as
 * those of a topic that was created again.
 */
export async function saveEnds(db: Db, { source, ranges }: SourceRanges, at: Date): Promise<void> {
  await db.query({
    text: `
    insert into stream_ends as e (source, partition, start_offset, end_offset, read_at, caught_up_at)
    select $1::text, r.partition, r.start_offset, r.end_offset, $2::timestamptz,
           case when ${nextOffset} >= r.end_offset then $2::timestamptz end
    from unnest($3::integer[], $4::bigint[], $5::bigint[]) as r (partition, start_offset, end_offset)
    left join stream_offsets s on s.source = $1 and s.partition = r.partition
    order by r.partition
    on conflict (source, partition) do update
    set start_offset = excluded.start_offset, end_offset = excluded.end_offset, read_at = excluded.read_at,
        caught_up_at = coalesce(excluded.caught_up_at, e.caught_up_at)
    where e.read_at < excluded.read_at`,
    values: [
      source,
      at,
      ranges.map(({ partition }) => partition),
      ranges.map(({ start }) => start),
      ranges.map(({ end }) => end),
    ],
  })
  await db.query(sql`
    delete from stream_ends
    where read_at < ${at}::timestamptz - interval '1 day'`)
}

interface StreamRow extends StreamProgress {
  readonly source: string
  readonly partition: number
  readonly tickets: bigint
  readonly duplicates: bigint
  readonly ignored: bigint
  readonly quarantined: bigint
}

/**
 * Returns all streams with their counters, in order. Of partitions without a booked event, only
 * those with events at the broker.
 */
async function listStreams(db: Db): Promise<StreamRow[]> {
  const rows = await many<{
    source: string
    partition: number
    next_offset: bigint
    tickets: bigint
    duplicates: bigint
    ignored: bigint
    quarantined: bigint
    newest_at: Date | null
    booked_at: Date | null
    end_offset: bigint | null
    read_at: Date | null
    caught_up_at: Date | null
  }>(db, {
    text: `
    select source, partition, ${nextOffset} as next_offset, coalesce(s.tickets, 0) as tickets,
           coalesce(s.duplicates, 0) as duplicates, coalesce(s.ignored, 0) as ignored,
           coalesce(s.quarantined, 0) as quarantined, s.newest_at, s.booked_at, e.end_offset, e.read_at, e.caught_up_at
    from stream_offsets s
    full join stream_ends e using (source, partition)
    where s.source is not null or e.end_offset > e.start_offset
    order by source, partition
    limit 10000`,
    values: [],
  })
  return rows.map((row) => ({
    source: row.source,
    partition: row.partition,
    nextOffset: row.next_offset,
    tickets: row.tickets,
    duplicates: row.duplicates,
    ignored: row.ignored,
    quarantined: row.quarantined,
    newestAt: row.newest_at,
    bookedAt: row.booked_at,
    end: toEnd(row),
  }))
}

export interface StreamStatus extends StreamRow {
  /** Null if the end of the stream is unknown. */
  readonly lag: StreamLag | null
}

/** Returns all streams with what waits in each. */
export const readStreams = async (db: Db, now: Date): Promise<StreamStatus[]> =>
  (await listStreams(db)).map((row) => ({ ...row, lag: streamLag(row, now) }))

const toEnd = (row: {
  end_offset: bigint | null
  read_at: Date | null
  caught_up_at: Date | null
}): StreamEnd | null =>
  row.end_offset === null || row.read_at === null
    ? null
    : { endOffset: row.end_offset, readAt: row.read_at, caughtUpAt: row.caught_up_at }
