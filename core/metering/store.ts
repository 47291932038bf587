import { type Db, many, sql } from '../lib/sql.ts'
import type { UsdAttos } from '../lib/money.ts'
import { plainArray, textArray } from './arrays.ts'
import type { Problem, SignedTicket, Subject } from './types.ts'

/** What ingest writes. Every statement is set-based and touches its rows in key order, so that batches never deadlock. */

/** What stands in `envelopes` for an event: 128 bits of its id and 128 of its bytes, both written as a UUID. */
export interface Envelope {
  readonly key: string
  readonly digest: string
}

/** Enters envelopes; returns the keys that were there before. Waits for a rival that is entering the same key. */
export async function insertEnvelopes(db: Db, envelopes: readonly Envelope[]): Promise<Set<string>> {
  const rows = await many<{ key: string }>(db, sql`
    with batch as materialized (
      select key, digest
      from unnest(${plainArray(envelopes.map(({ key }) => key))}::uuid[],
                  ${plainArray(envelopes.map(({ digest }) => digest))}::uuid[]) as b (key, digest)
    ), entered as (
      insert into envelopes (key, digest)
      select key, digest
      from batch
      order by key
      on conflict do nothing
      returning key
    )
    select key from batch
    except all
    select key from entered`)
  return new Set(rows.map((row) => row.key))
}

/** The digests under which keys were entered. */
export async function digestsOf(db: Db, keys: readonly string[]): Promise<Map<string, string>> {
  if (keys.length === 0) return new Map()
  const rows = await many<Envelope>(db, sql`
    select key, digest
    from envelopes
    where key = any(${plainArray(keys)}::uuid[])`)
  return new Map(rows.map((row) => [row.key, row.digest]))
}

/** A ticket about to be written: whose it is and what it costs; without a rate it waits. */
export interface NewTicket {
  readonly ticket: SignedTicket
  readonly subject: Subject
  readonly price: { readonly rateId: bigint; readonly cost: UsdAttos } | null
  /** Another ticket of this batch has the same session and sequence number. */
  readonly replayed: boolean
}

// State replays come within the life of a session; beyond this a 32-bit session id that recurs is another session.
const replayWindowMs = 31 * 86_400_000

/**
 * Writes tickets and adds them to their hours, in one statement. Not a prepared one: a plan made while the table was
 * small would look for replays row by row through a table that has grown since.
 */
export async function insertTickets(db: Db, rows: readonly NewTicket[], options: { chargeId: string; at: Date }): Promise<void> {
  const column = <T>(value: (ticket: SignedTicket) => T): T[] => rows.map((row) => value(row.ticket))
  const times = column((t) => t.signedAtMs)
  const from = new Date(times.reduce((a, b) => Math.min(a, b)) - replayWindowMs)
  const to = new Date(times.reduce((a, b) => Math.max(a, b)) + replayWindowMs)
  await db.query(sql`
    with batch as materialized (
      select *
      from unnest(
        ${plainArray(rows.map((row) => row.subject.appId))}::uuid[], ${plainArray(rows.map((row) => row.subject.userId))}::uuid[],
        ${textArray(column((t) => t.eventId))}::text[], ${plainArray(column((t) => t.signedAt))}::timestamptz[],
        ${textArray(column((t) => t.sessionId))}::text[], ${plainArray(column((t) => t.sequenceNumber))}::bigint[],
        ${textArray(column((t) => t.requestId))}::text[], ${textArray(column((t) => t.manifestId))}::text[],
        ${textArray(column((t) => t.appName))}::text[], ${textArray(column((t) => t.pipeline))}::text[], ${textArray(column((t) => t.modelId))}::text[],
        ${plainArray(column((t) => String(t.fee)))}::numeric[], ${plainArray(rows.map((row) => row.price?.rateId ?? null))}::bigint[],
        ${plainArray(rows.map((row) => row.price?.cost ?? null))}::numeric[], ${plainArray(column((t) => t.billableSecs))}::numeric[],
        ${plainArray(column((t) => t.pixels))}::numeric[], ${plainArray(column((t) => t.numTickets))}::integer[],
        ${textArray(column((t) => t.orchAddress))}::text[], ${textArray(column((t) => t.orchUrl))}::text[],
        ${plainArray(rows.map((row) => row.replayed))}::boolean[], ${plainArray(column((t) => t.emittedAtMs))}::float8[])
        as b (app_id, user_id, event_id, signed_at, session_id, sequence_number, request_id, manifest_id, app_name,
              pipeline, model_id, fee_wei, rate_id, cost_attos, billable_secs, pixels, num_tickets, orch_address,
              orch_url, replayed, emitted_ms)
    ), written as (
      insert into tickets (app_id, user_id, event_id, signed_at, session_id, sequence_number, request_id, manifest_id,
                           app_name, pipeline, model_id, fee_wei, rate_id, cost_attos, charge_id, billable_secs, pixels,
                           num_tickets, orch_address, orch_url, replayed, emitted_at, received_at)
      select b.app_id, b.user_id, b.event_id, b.signed_at, b.session_id, b.sequence_number, b.request_id, b.manifest_id,
             b.app_name, b.pipeline, b.model_id, b.fee_wei, b.rate_id, b.cost_attos,
             case when b.rate_id is null then null else ${options.chargeId}::uuid end, b.billable_secs, b.pixels,
             b.num_tickets, b.orch_address, b.orch_url,
             -- Counted, not "exists": that may be planned as a hash of the whole partition, read anew for each batch.
             b.replayed or 0 < (
               select count(*)
               from tickets t
               where t.app_id = b.app_id and t.user_id = b.user_id and t.session_id = b.session_id and t.sequence_number = b.sequence_number
                 and t.signed_at >= ${from}::timestamptz and t.signed_at < ${to}::timestamptz),
             to_timestamp(b.emitted_ms / 1000), ${options.at}::timestamptz
      from batch b
    )
    insert into usage_hourly (app_id, user_id, hour, pipeline, model_id, ticket_count, unpriced_count, fee_wei,
                              cost_attos, billable_secs, pixels)
    select app_id, user_id, date_trunc('hour', signed_at, 'UTC') as hour, pipeline, model_id, count(*),
           count(*) filter (where rate_id is null), sum(fee_wei), coalesce(sum(cost_attos), 0), sum(billable_secs),
           sum(pixels)
    from batch
    group by app_id, user_id, date_trunc('hour', signed_at, 'UTC'), pipeline, model_id
    order by app_id, user_id, hour, pipeline, model_id
    on conflict (app_id, user_id, hour, pipeline, model_id) do update
    set ticket_count = usage_hourly.ticket_count + excluded.ticket_count,
        unpriced_count = usage_hourly.unpriced_count + excluded.unpriced_count,
        fee_wei = usage_hourly.fee_wei + excluded.fee_wei,
        cost_attos = usage_hourly.cost_attos + excluded.cost_attos,
        billable_secs = usage_hourly.billable_secs + excluded.billable_secs,
        pixels = usage_hourly.pixels + excluded.pixels`)
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
export async function insertQuarantined(db: Db, rows: readonly Quarantined[], at: Date): Promise<void> {
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

