import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { EventProblem } from '../events/parse.ts'

/**
 * Writes `quarantine`: events that could not become tickets, and the decisions about them. Their
 * bytes never change.
 */

export const statuses = ['open', 'redriven', 'discarded'] as const
export type Status = (typeof statuses)[number]

export interface QuarantineEntry {
  readonly id: string
  readonly status: string
  readonly reason: string
  readonly detail: string
  readonly eventId: string | null
  readonly authId: string | null
  readonly fee: bigint | null
  readonly receivedAt: Date
  readonly source: string
  readonly partition: number
  readonly offset: bigint | null
  readonly deliveries: bigint
  readonly byteCount: number
  readonly resolvedAt: Date | null
  readonly resolvedBy: string | null
  readonly resolution: string | null
  readonly attributedTo: string | null
  readonly ticketEventId: string | null
}

interface Row {
  id: string
  status: string
  reason: string
  detail: string
  event_id: string | null
  auth_id: string | null
  fee_wei: string | null
  received_at: Date
  source: string
  partition: number
  stream_offset: bigint | null
  deliveries: bigint
  byte_count: number
  resolved_at: Date | null
  resolved_by: string | null
  resolution: string | null
  attributed_to: string | null
  ticket_event_id: string | null
}

const fromRow = (row: Row): QuarantineEntry => ({
  id: row.id,
  status: row.status,
  reason: row.reason,
  detail: row.detail,
  eventId: row.event_id,
  authId: row.auth_id,
  fee: row.fee_wei === null ? null : BigInt(row.fee_wei),
  receivedAt: row.received_at,
  source: row.source,
  partition: row.partition,
  offset: row.stream_offset,
  deliveries: row.deliveries,
  byteCount: row.byte_count,
  resolvedAt: row.resolved_at,
  resolvedBy: row.resolved_by,
  resolution: row.resolution,
  attributedTo: row.attributed_to,
  ticketEventId: row.ticket_event_id,
})

export interface Filter {
  readonly status: Status
  readonly reason: string | null
  readonly authId: string | null
  readonly from: Date | null
  readonly to: Date | null
  readonly after: { readonly createdAt: Date; readonly id: string } | null
  readonly limit: number
}

/** Lists the oldest first. */
export async function list(
  db: Db,
  { status, reason, authId, from, to, after, limit }: Filter,
): Promise<QuarantineEntry[]> {
  const rows = await many<Row>(
    db,
    sql`
    select id, status, reason, detail, event_id, auth_id, fee_wei, received_at, source, partition, stream_offset, deliveries,
           byte_count, resolved_at, resolved_by, resolution, attributed_to, ticket_event_id
    from quarantine
    where status = ${status} and (${reason}::text is null or reason = ${reason})
      and (${authId}::text is null or auth_id = ${authId})
      and received_at >= coalesce(${from}::timestamptz, '-infinity') and received_at <= coalesce(${to}::timestamptz, 'infinity')
      and (${after?.id ?? null}::uuid is null
           or (received_at, id) > (${after?.createdAt ?? null}::timestamptz, ${after?.id ?? null}::uuid))
    order by received_at, id
    limit ${limit}`,
  )
  return rows.map(fromRow)
}

// The exact number does not matter beyond this.
const countBound = 1_000_000

/** Sums undecided events by reason, over at most the million oldest. */
export async function waiting(db: Db): Promise<{ reason: string; events: bigint; fee: bigint }[]> {
  const rows = await many<{ reason: string; events: bigint; fee: string }>(
    db,
    sql`
    select reason, count(*) as events, coalesce(sum(fee_wei), 0) as fee
    from (
      select reason, fee_wei
      from quarantine
      where status = 'open'
      order by received_at, id
      limit ${countBound}) open
    group by reason
    order by reason`,
  )
  return rows.map((row) => ({ ...row, fee: BigInt(row.fee) }))
}

export interface QuarantinedEvent extends QuarantineEntry {
  /** SHA-256 of all bytes of the event, in hexadecimal. */
  readonly digest: string
  readonly bytes: Buffer
}

export async function find(db: Db, id: string): Promise<QuarantinedEvent | null> {
  const row = await maybeOne<Row & { digest: Buffer; bytes: Buffer }>(
    db,
    sql`
    select id, status, reason, detail, event_id, auth_id, fee_wei, received_at, source, partition, stream_offset, deliveries,
           byte_count, resolved_at, resolved_by, resolution, attributed_to, ticket_event_id, digest, bytes
    from quarantine
    where id = ${id}`,
  )
  return row && { ...fromRow(row), digest: row.digest.toString('hex'), bytes: row.bytes }
}

/** Locks an event and returns its status, so that a second decision sees the first. */
export async function lockStatus(db: Db, id: string): Promise<string | null> {
  const row = await maybeOne<{ status: string }>(
    db,
    sql`
    select status
    from quarantine
    where id = ${id}
    for update`,
  )
  return row?.status ?? null
}

export interface Resolution {
  readonly id: string
  readonly status: 'redriven' | 'discarded'
  readonly at: Date
  readonly by: string
  readonly resolution: string
  readonly attributedTo: string | null
  readonly ticketEventId: string | null
}

/** Records the decision about a locked, open event. */
export async function resolve(db: Db, resolution: Resolution): Promise<void> {
  const { rowCount } = await db.query(sql`
    update quarantine
    set status = ${resolution.status}, resolved_at = ${resolution.at}, resolved_by = ${resolution.by},
        resolution = ${resolution.resolution}, attributed_to = ${resolution.attributedTo}, ticket_event_id = ${resolution.ticketEventId}
    where id = ${resolution.id} and status = 'open'`)
  if (rowCount !== 1) throw new Error('a locked event is no longer open')
}

/** A new event for quarantine. */
export interface NewQuarantineEntry extends EventProblem {
  readonly id: string
  readonly digest: string
  readonly bytes: Buffer
  readonly byteCount: number
  readonly source: string
  readonly partition: number
  readonly offset: bigint | null
}

/** Inserts events. A repeated delivery of the same bytes only increases the count of deliveries. */
export async function insertQuarantined(
  db: Db,
  rows: readonly NewQuarantineEntry[],
  at: Date,
): Promise<void> {
  const column = <T>(value: (row: NewQuarantineEntry) => T): T[] => rows.map(value)
  await db.query(sql`
    insert into quarantine (id, digest, event_id, reason, detail, auth_id, fee_wei, bytes, byte_count, source, partition,
                            stream_offset, deliveries, received_at)
    select id, decode(digest, 'hex'), event_id, reason, detail, auth_id, fee_wei, bytes, byte_count, source, partition,
           stream_offset, deliveries, ${at}::timestamptz
    from unnest(
      ${column((q) => q.id)}::uuid[], ${column((q) => q.digest)}::text[], ${column((q) => q.eventId)}::text[],
      ${column((q) => q.reason)}::text[], ${column((q) => q.detail)}::text[], ${column((q) => q.authId)}::text[],
      ${column((q) => q.fee)}::numeric[], ${column((q) => q.bytes)}::bytea[], ${column((q) => q.byteCount)}::integer[],
      ${column((q) => q.source)}::text[], ${column((q) => q.partition)}::integer[], ${column((q) => q.offset)}::bigint[],
      ${deliveries(rows)}::bigint[])
      as batch (id, digest, event_id, reason, detail, auth_id, fee_wei, bytes, byte_count, source, partition,
                stream_offset, deliveries)
    where deliveries > 0
    order by digest
    on conflict (digest) do update set deliveries = quarantine.deliveries + excluded.deliveries`)
}

// One statement cannot update a row twice, so the first of equal rows carries the count and the
// others 0.
function deliveries(rows: readonly NewQuarantineEntry[]): number[] {
  const totals = Map.groupBy(rows, (row) => row.digest)
  return rows.map((row) => {
    const group = totals.get(row.digest) ?? []
    return group[0] === row ? group.length : 0
  })
}

/** Counts the distinct undecided events in quarantine, up to a million. */
export async function countQuarantined(db: Db): Promise<bigint> {
  const row = await one<{ count: bigint }>(
    db,
    sql`
    select count(*) as count
    from (select 1 from quarantine where status = 'open' limit ${countBound}) open`,
  )
  return row.count
}
