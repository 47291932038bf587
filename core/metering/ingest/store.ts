import { copyRows, uuidArray } from '../../lib/copy-sql.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import type { AppId, UserId } from '../../shared/ids.ts'
import { ticketColumns } from '../batch/ticket-row.ts'
import type { Prices, PricedTicket } from '../batch/tariff.ts'
import { partitionOf } from '../../shared/database/ticket-months.ts'

/**
 * Writes `envelopes` and `tickets`. Every statement writes many rows in key order, so that
 * transactions never deadlock.
 */

/**
 * Inserts new ids. If one is not new, rejects with a unique violation, which aborts the
 * transaction.
 */
export const copyEventIds = (db: Db, rows: Buffer): Promise<void> =>
  copyRows(db, 'envelopes (key, digest)', rows)

/** Keys and digests of events, as 16 characters of one byte each. */
export interface EventKeys {
  readonly keys: readonly string[]
  readonly digests: readonly string[]
}

/**
 * Inserts ids and returns the keys that already existed. Waits for a transaction that is inserting
 * the same key.
 */
export async function insertEventIds(db: Db, { keys, digests }: EventKeys): Promise<Set<string>> {
  const { rows } = await db.query<{ key: Buffer }>(sql`
    with batch as materialized (
      select key, digest
      from unnest(${uuidArray(keys)}::uuid[], ${uuidArray(digests)}::uuid[]) as b (key, digest)
    ), inserted as (
      insert into envelopes (key, digest)
      select key, digest
      from batch
      order by key
      on conflict do nothing
      returning key
    )
    select uuid_send(key) as key
    from (select key from batch except all select key from inserted) earlier`)
  return new Set(rows.map((row) => row.key.toString('latin1')))
}

/** Returns the digests of existing ids, by key. */
export async function findDigests(db: Db, keys: readonly string[]): Promise<Map<string, string>> {
  if (keys.length === 0) return new Map()
  const { rows } = await db.query<{ key: Buffer; digest: Buffer }>(sql`
    select uuid_send(key) as key, uuid_send(digest) as digest
    from envelopes
    where key = any(${uuidArray(keys)}::uuid[])`)
  return new Map(rows.map((row) => [row.key.toString('latin1'), row.digest.toString('latin1')]))
}

/** Inserts complete rows, as encoded by `writeTicket` and `rowTailWriter`. */
export const copyTickets = (db: Db, rows: Buffer): Promise<void> =>
  copyRows(db, `tickets (${ticketColumns.join(', ')})`, rows)

/** A ticket priced after it was stored. */
export interface LatePriced extends Prices {
  readonly appId: AppId
  readonly userId: UserId
  readonly eventId: string
  readonly signedAt: string
  readonly rateId: bigint
  readonly sale: PricedTicket
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
    set rate_id = b.rate_id, cost_attos = b.cost_attos, charge_id = ${chargeId}, terms_id = b.terms_id,
        retail_attos = nullif(b.retail_attos, b.cost_attos), platform_fee_attos = nullif(b.platform_fee_attos, 0),
        platform_fee_wei = nullif(b.platform_fee_wei, 0)
    from unnest(
      ${column((t) => t.appId)}::uuid[], ${column((t) => t.userId)}::uuid[], ${column((t) => t.eventId)}::text[],
      ${column((t) => t.signedAt)}::timestamptz[], ${column((t) => t.rateId)}::bigint[], ${column((t) => t.cost)}::numeric[],
      ${column((t) => t.sale.termsId)}::bigint[], ${column((t) => t.retail)}::numeric[],
      ${column((t) => t.platformFee)}::numeric[], ${column((t) => t.platformWei)}::numeric[])
      as b (app_id, user_id, event_id, signed_at, rate_id, cost_attos, terms_id, retail_attos, platform_fee_attos,
            platform_fee_wei)
    where t.app_id = b.app_id and t.user_id = b.user_id and t.signed_at = b.signed_at and t.event_id = b.event_id`)
  if (rowCount !== tickets.length) throw new Error('a locked ticket is gone')
}

/** Sums of a user's restored tickets for one charge. */
export interface RestoredSum {
  readonly userId: string
  readonly chargeId: string | null
  readonly tickets: bigint
  readonly fee: bigint
  readonly cost: bigint
  readonly markup: bigint
  readonly platformFee: bigint
  readonly platformWei: bigint
}

/**
 * Restores a month's archived tickets (`YYYY-MM-DD`, its first day) with their charges and rates.
 * `lines` are lines of a ticket file. An existing ticket stays unchanged and is not counted.
 * Returns sums by user and charge.
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
    markup: string
    platform_fee: string
    platform_wei: string
  }>(
    db,
    sql`
    with lines as (
      select t.*
      from unnest(${lines}::text[]) as line
      cross join lateral jsonb_to_record(line::jsonb) as t (
        id text, digest text, "user" text, "signedAt" timestamptz, session text, sequence bigint, request text, manifest text,
        app text, pipeline text, model text, "feeWei" numeric, "costAttos" numeric, "retailAttos" numeric,
        "platformFeeAttos" numeric, "platformFeeWei" numeric, plan uuid, "planVersion" integer, "rateAttosPerEth" numeric,
        "rateSource" text, "rateObservedAt" timestamptz, charge uuid, "billableSecs" numeric, pixels numeric, tickets integer,
        "orchAddress" text, "orchUrl" text, replayed boolean, "emittedAt" timestamptz,
        "statedUsd" numeric, "receivedAt" timestamptz, "clockMs" bigint)
      where date_trunc('month', t."signedAt", 'UTC') = ${month}::date::timestamp at time zone 'UTC'
    ), put as (
      insert into tickets (app_id, user_id, event_id, signed_at, session_id, sequence_number, request_id, manifest_id,
                           app_name, pipeline, model_id, fee_wei, rate_id, cost_attos, charge_id, retail_attos,
                           platform_fee_attos, platform_fee_wei, terms_id, billable_secs, pixels,
                           num_tickets, orch_address, orch_url, replayed, emitted_at, stated_usd, received_at, clock_ms)
      select ${appId}, u.id, t.id, t."signedAt", t.session, t.sequence, t.request, t.manifest, t.app, t.pipeline, t.model,
             t."feeWei", r.id, t."costAttos", t.charge, nullif(t."retailAttos", t."costAttos"),
             nullif(t."platformFeeAttos", 0), nullif(t."platformFeeWei", 0), v.id, t."billableSecs", t.pixels, t.tickets, t."orchAddress", t."orchUrl",
             t.replayed, t."emittedAt", t."statedUsd", t."receivedAt", t."clockMs"
      from lines t
      join end_users u on u.app_id = ${appId} and u.external_user_id = t."user"
      join envelopes e on e.digest = t.digest::uuid and e.key = case
        when t.id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then t.id::uuid
        else left(encode(sha256(convert_to(t.id, 'UTF8')), 'hex'), 32)::uuid end
      cross join lateral (
        select min(id) as id
        from rates
        where observed_at = t."rateObservedAt" and source = t."rateSource" and usd_attos_per_eth = t."rateAttosPerEth") r
      left join plan_versions v on v.app_id = ${appId} and v.plan_id = t.plan and v.version = t."planVersion"
      order by u.id, t."signedAt", t.id
      on conflict do nothing
      returning user_id, charge_id, fee_wei, cost_attos, retail_attos, platform_fee_attos, platform_fee_wei
    )
    select user_id, charge_id, count(*) as tickets, sum(fee_wei) as fee, coalesce(sum(cost_attos), 0) as cost,
           coalesce(sum(retail_attos - cost_attos), 0) as markup, coalesce(sum(platform_fee_attos), 0) as platform_fee,
           coalesce(sum(platform_fee_wei), 0) as platform_wei
    from put
    group by user_id, charge_id`,
  )
  return rows.map((row) => ({
    userId: row.user_id,
    chargeId: row.charge_id,
    tickets: row.tickets,
    fee: BigInt(row.fee),
    cost: BigInt(row.cost),
    markup: BigInt(row.markup),
    platformFee: BigInt(row.platform_fee),
    platformWei: BigInt(row.platform_wei),
  }))
}

/**
 * Removes a month's tickets (`YYYY-MM`). Keeps the empty partition: a truncate locks only that
 * month, and a late ticket still finds its partition.
 */
export async function truncateMonth(db: Db, month: string): Promise<void> {
  await db.query(`truncate ${partitionOf(month)}`)
}
