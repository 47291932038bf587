import { type RowBuffer, copyRows } from '../../lib/copy-sql.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import { uuidArray } from '../../lib/arrays.ts'
import { ticketColumns } from '../batch/ticket-row.ts'
import type { UsdAttos } from '../../lib/money.ts'
import type { AppId, UserId } from '../../platform/ids.ts'

/** Writes `envelopes` and `tickets`. Every statement is set-based and touches its rows in key order, so that batches never deadlock. */

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

/** A ticket that gets its price after it was stored. */
export interface LatePriced {
  readonly appId: AppId
  readonly userId: UserId
  readonly eventId: string
  readonly signedAt: string
  readonly rateId: bigint
  readonly cost: UsdAttos
}

/** Fixes the cost of tickets that the caller has locked. */
export async function priceTickets(
  db: Db,
  tickets: readonly LatePriced[],
  chargeId: string,
): Promise<void> {
  const column = <T>(value: (ticket: LatePriced) => T): T[] => tickets.map(value)
  const { rowCount } = await db.query(sql`
    update tickets t
    set rate_id = b.rate_id, cost_attos = b.cost_attos, charge_id = ${chargeId}
    from unnest(
      ${column((t) => t.appId)}::uuid[], ${column((t) => t.userId)}::uuid[], ${column((t) => t.eventId)}::text[],
      ${column((t) => t.signedAt)}::timestamptz[], ${column((t) => t.rateId)}::bigint[], ${column((t) => t.cost)}::numeric[])
      as b (app_id, user_id, event_id, signed_at, rate_id, cost_attos)
    where t.app_id = b.app_id and t.user_id = b.user_id and t.signed_at = b.signed_at and t.event_id = b.event_id`)
  if (rowCount !== tickets.length) throw new Error('a locked ticket is gone')
}

/** What restored tickets of a user add to one charge. */
export interface RestoredSum {
  readonly userId: string
  readonly chargeId: string | null
  readonly tickets: bigint
  readonly fee: bigint
  readonly cost: bigint
}

/**
 * Puts archived tickets of a month (`YYYY-MM-DD`, its first day) back, with the charges and rates that they had. `lines`
 * are lines of a ticket file. A ticket that is there already stays as it is and is not counted. Returns sums by user and
 * charge.
 */
export async function restoreTickets(
  db: Db,
  { appId, month, lines }: { appId: AppId; month: string; lines: readonly string[] },
): Promise<RestoredSum[]> {
  const rows = await many<{
    user_id: string
    charge_id: string | null
    tickets: bigint
    fee: string
    cost: string
  }>(
    db,
    sql`
    with lines as (
      select t.*
      from unnest(${lines}::text[]) as line
      cross join lateral jsonb_to_record(line::jsonb) as t (
        id text, digest text, "user" text, "signedAt" timestamptz, session text, sequence bigint, request text, manifest text,
        app text, pipeline text, model text, "feeWei" numeric, "costAttos" numeric, "rateAttosPerEth" numeric,
        "rateSource" text, "rateObservedAt" timestamptz, charge uuid, "billableSecs" numeric, pixels numeric, tickets integer,
        "orchAddress" text, "orchUrl" text, replayed boolean, "emittedAt" timestamptz,
        "statedUsd" numeric, "receivedAt" timestamptz)
      where date_trunc('month', t."signedAt", 'UTC') = ${month}::date::timestamp at time zone 'UTC'
    ), put as (
      insert into tickets (app_id, user_id, event_id, signed_at, session_id, sequence_number, request_id, manifest_id,
                           app_name, pipeline, model_id, fee_wei, rate_id, cost_attos, charge_id, billable_secs, pixels,
                           num_tickets, orch_address, orch_url, replayed, emitted_at, stated_usd, received_at)
      select ${appId}, u.id, t.id, t."signedAt", t.session, t.sequence, t.request, t.manifest, t.app, t.pipeline, t.model,
             t."feeWei", r.id, t."costAttos", t.charge, t."billableSecs", t.pixels, t.tickets, t."orchAddress", t."orchUrl",
             t.replayed, t."emittedAt", t."statedUsd", t."receivedAt"
      from lines t
      join end_users u on u.app_id = ${appId} and u.external_user_id = t."user"
      join envelopes e on e.digest = t.digest::uuid and e.key = case
        when t.id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then t.id::uuid
        else left(encode(sha256(convert_to(t.id, 'UTF8')), 'hex'), 32)::uuid end
      cross join lateral (
        select min(id) as id
        from rates
        where observed_at = t."rateObservedAt" and source = t."rateSource" and usd_attos_per_eth = t."rateAttosPerEth") r
      order by u.id, t."signedAt", t.id
      on conflict do nothing
      returning user_id, charge_id, fee_wei, cost_attos
    )
    select user_id, charge_id, count(*) as tickets, sum(fee_wei) as fee, coalesce(sum(cost_attos), 0) as cost
    from put
    group by user_id, charge_id`,
  )
  return rows.map((row) => ({
    userId: row.user_id,
    chargeId: row.charge_id,
    tickets: row.tickets,
    fee: BigInt(row.fee),
    cost: BigInt(row.cost),
  }))
}

const monthName = /^\d{4}-\d{2}$/

/**
 * Removes the tickets of a month (`YYYY-MM`). The partition stays, empty: a truncate locks that month and no other, and a
 * late ticket still finds its partition.
 */
export async function truncateMonth(db: Db, month: string): Promise<void> {
  if (!monthName.test(month)) throw new Error(`not a month: ${month}`)
  await db.query(`truncate tickets_${month.replace('-', '_')}`)
}
