import { type RowBuffer, copyRows } from '../../lib/copy-sql.ts'
import { decimalText } from '../../lib/decimal.ts'
import { type Db, type Statement, sql } from '../../lib/sql.ts'
import { plainArray, textArray, uuidArray } from '../../lib/arrays.ts'
import type { HourSums } from '../batch/sums.ts'
import { ticketColumns } from '../batch/ticket-row.ts'
import type { Problem } from '../types.ts'

/** What ingest writes. Every statement is set-based and touches its rows in key order, so that batches never deadlock. */

/** 16 bytes of an event's id and 16 of its bytes, a character a byte. */
export interface Envelope {
  readonly key: string
  readonly digest: string
}

/** The envelopes that were entered before, by key. */
export async function knownEnvelopes(
  db: Db,
  keys: readonly string[],
): Promise<Map<string, string>> {
  if (keys.length === 0) return new Map()
  const { rows } = await db.query<{ key: Buffer; digest: Buffer }>(sql`
    select uuid_send(key) as key, uuid_send(digest) as digest
    from envelopes
    where key = any(${uuidArray(keys)}::uuid[])`)
  return new Map(rows.map((row) => [row.key.toString('latin1'), row.digest.toString('latin1')]))
}

/** Writes the row of an envelope, whose key stands at `at` in `ids` and whose digest follows it. */
export function writeEnvelope(rows: RowBuffer, ids: Uint8Array, at: number): void {
  rows.row(2)
  rows.uuid(ids, at)
  rows.uuid(ids, at + 16)
}

/** Enters new envelopes. Rejects with a unique violation, the transaction lost, when one is not new. */
export const copyEnvelopes = (db: Db, rows: Buffer): Promise<void> =>
  copyRows(db, 'envelopes (key, digest)', rows)

/** Enters envelopes; returns the keys that were there before. Waits for a rival that is entering the same key. */
export async function insertEnvelopes(
  db: Db,
  envelopes: readonly Envelope[],
): Promise<Set<string>> {
  const { rows } = await db.query<{ key: Buffer }>(sql`
    with batch as materialized (
      select key, digest
      from unnest(${uuidArray(envelopes.map(({ key }) => key))}::uuid[],
                  ${uuidArray(envelopes.map(({ digest }) => digest))}::uuid[]) as b (key, digest)
    ), entered as (
      insert into envelopes (key, digest)
      select key, digest
      from batch
      order by key
      on conflict do nothing
      returning key
    )
    select uuid_send(key) as key
    from (select key from batch except all select key from entered) old`)
  return new Set(rows.map((row) => row.key.toString('latin1')))
}

/** Writes rows made by `writeTicket` and `writeOutcome`. */
export const copyTickets = (db: Db, rows: Buffer): Promise<void> =>
  copyRows(db, `tickets (${ticketColumns.join(', ')})`, rows)

/** What adds sums to their hours, which are given in the order of their key. */
export function addingHours(sums: readonly HourSums[]): Statement {
  const column = <T>(value: (row: HourSums) => T): T[] => sums.map(value)
  return sql`
    insert into usage_hourly (app_id, user_id, hour, pipeline, model_id, ticket_count, unpriced_count, fee_wei,
                              cost_attos, billable_secs, pixels)
    select app_id, user_id, to_timestamp(hour_ms / 1000), pipeline, model_id, tickets, unpriced, fee, cost, secs, pixels
    from unnest(
      ${plainArray(column((s) => s.subject.appId))}::uuid[], ${plainArray(column((s) => s.subject.userId))}::uuid[],
      ${plainArray(column((s) => s.hourMs))}::bigint[], ${textArray(column((s) => s.feature.pipeline))}::text[],
      ${textArray(column((s) => s.feature.modelId))}::text[], ${plainArray(column((s) => s.tickets))}::bigint[],
      ${plainArray(column((s) => s.unpriced))}::bigint[], ${plainArray(column((s) => s.fee))}::numeric[],
      ${plainArray(column((s) => s.cost))}::numeric[], ${plainArray(column((s) => decimalText(s.billableSecs)))}::numeric[],
      ${plainArray(column((s) => s.pixels))}::numeric[]) with ordinality
      as b (app_id, user_id, hour_ms, pipeline, model_id, tickets, unpriced, fee, cost, secs, pixels, position)
    order by position
    on conflict (app_id, user_id, hour, pipeline, model_id) do update
    set ticket_count = usage_hourly.ticket_count + excluded.ticket_count,
        unpriced_count = usage_hourly.unpriced_count + excluded.unpriced_count,
        fee_wei = usage_hourly.fee_wei + excluded.fee_wei,
        cost_attos = usage_hourly.cost_attos + excluded.cost_attos,
        billable_secs = usage_hourly.billable_secs + excluded.billable_secs,
        pixels = usage_hourly.pixels + excluded.pixels`
}

export async function addHours(db: Db, adding: Statement): Promise<void> {
  await db.query(adding)
}

/** An event on its way to quarantine. */
export interface Quarantined extends Problem {
  readonly id: string
  readonly digest: string
  readonly bytes: Buffer
  readonly byteCount: number
  readonly source: string
  readonly partition: number
  readonly offset: bigint | null
}

/** Keeps what cannot be used. The same bytes, delivered again, only count as another delivery. */
export async function insertQuarantined(
  db: Db,
  rows: readonly Quarantined[],
  at: Date,
): Promise<void> {
  const column = <T>(value: (row: Quarantined) => T): T[] => rows.map(value)
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

// One statement cannot meet the same conflict twice: the first of equal rows stands for all, the others count zero.
function deliveries(rows: readonly Quarantined[]): number[] {
  const totals = Map.groupBy(rows, (row) => row.digest)
  return rows.map((row) => {
    const group = totals.get(row.digest) ?? []
    return group[0] === row ? group.length : 0
  })
}
