import type { AppId } from '../../platform/ids.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'

/** Months whose tickets are in files. */

export interface ArchivedPart {
  readonly appId: AppId
  readonly month: string
  readonly part: number
}

/** The archive of an app that a file is, by the checksum of its lines. */
export async function archiveOf(
  db: Db,
  appId: AppId,
  sha256: string,
): Promise<ArchivedPart | null> {
  const row = await maybeOne<{ month: string; part: number }>(
    db,
    sql`
    select to_char(month, 'YYYY-MM-DD') as month, part
    from ticket_archives
    where app_id = ${appId} and sha256 = ${sha256}
    -- A month that was put back and archived again is the same file twice; what is still away is the later one.
    order by tickets > 0 desc, month, part desc
    limit 1`,
  )
  return row && { appId, ...row }
}

/**
 * Puts tickets of an archive back as they were, with the charges and rates that they had, and takes them off what is
 * counted as archived. What is back already stays. Returns how many came back.
 */
export async function restoreTickets(
  db: Db,
  { appId, month, part }: ArchivedPart,
  { lines, at }: { lines: readonly string[]; at: Date },
): Promise<number> {
  await db.query(sql`
    select 1
    from ticket_archives
    where app_id = ${appId} and month = ${month}::date and part = ${part}
    for update`)
  const row = await one<{ put: bigint; counted: bigint }>(
    db,
    sql`
    with told as (
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
      from told t
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
    ), charges as (
      update archived_charges a
      set tickets = a.tickets - p.tickets, cost_attos = a.cost_attos - p.cost
      from (select user_id, charge_id, count(*) as tickets, sum(cost_attos) as cost from put group by user_id, charge_id) p
      where a.app_id = ${appId} and a.month = ${month}::date and a.part = ${part} and a.user_id = p.user_id
        and a.charge_id = p.charge_id
      returning p.tickets
    ), archives as (
      update ticket_archives a
      set tickets = a.tickets - p.tickets, fee_wei = a.fee_wei - p.fee, cost_attos = a.cost_attos - p.cost, restored_at = ${at}
      from (select count(*) as tickets, coalesce(sum(fee_wei), 0) as fee, coalesce(sum(cost_attos), 0) as cost from put) p
      where a.app_id = ${appId} and a.month = ${month}::date and a.part = ${part}
    )
    select (select count(*) from put) as put, (select coalesce(sum(tickets), 0)::bigint from charges) as counted`,
  )
  if (row.put !== row.counted) throw new Error('these tickets are not those of the archive')
  await db.query(sql`
    delete from archived_charges
    where app_id = ${appId} and month = ${month}::date and part = ${part} and tickets = 0`)
  return Number(row.put)
}

/** Months that are over by `before`, have tickets, and were not put back since `restoredBefore`; the oldest first. */
export async function monthsToArchive(
  db: Db,
  { before, restoredBefore }: { before: Date; restoredBefore: Date },
): Promise<string[]> {
  const rows = await many<{ month: string }>(
    db,
    sql`
    select month
    from (
      select replace(substr(c.relname, 9), '_', '-') as month
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'tickets'::regclass and c.relname ~ '^tickets_[0-9]{4}_[0-9]{2}$') parts
    where (month || '-01')::date::timestamp at time zone 'UTC' + interval '1 month' <= ${before}
      and not exists (
        select 1
        from ticket_archives a
        where a.month = (parts.month || '-01')::date and a.restored_at > ${restoredBefore})
    order by month`,
  )
  return rows.map((row) => row.month)
}

export interface MonthSums {
  readonly appId: string
  readonly clientId: string
  readonly tickets: bigint
  readonly unpriced: bigint
  readonly fee: bigint
  readonly cost: bigint
}

/** What a month holds, by app. */
export async function monthSums(
  db: Db,
  { from, to }: { from: Date; to: Date },
): Promise<MonthSums[]> {
  const rows = await many<{
    app_id: string
    client_id: string
    tickets: bigint
    unpriced: bigint
    fee: string
    cost: string
  }>(
    db,
    sql`
    select t.app_id, c.client_id, count(*) as tickets, count(*) filter (where t.cost_attos is null) as unpriced,
           sum(t.fee_wei) as fee, coalesce(sum(t.cost_attos), 0) as cost
    from tickets t
    join clients c on c.app_id = t.app_id and c.kind = 'public'
    where t.signed_at >= ${from} and t.signed_at < ${to}
    group by t.app_id, c.client_id
    order by t.app_id`,
  )
  return rows.map((row) => ({
    appId: row.app_id,
    clientId: row.client_id,
    tickets: row.tickets,
    unpriced: row.unpriced,
    fee: BigInt(row.fee),
    cost: BigInt(row.cost),
  }))
}

const monthName = /^\d{4}-\d{2}$/

/** Keeps everybody out of a month until the transaction ends; tickets that come for it wait. */
export async function lockMonth(db: Db, month: string): Promise<void> {
  if (!monthName.test(month)) throw new Error(`not a month: ${month}`)
  // Whoever reads all months would wait behind this; better to come again in an hour.
  await db.query(sql`set local lock_timeout = '2s'`)
  await db.query(sql`select pg_advisory_xact_lock(hashtext('tollgate.archive'))`)
  await db.query(`lock table tickets_${month.replace('-', '_')} in access exclusive mode`)
}

/** The number of an app's next file of a month. */
export async function nextPart(db: Db, appId: string, month: string): Promise<number> {
  const row = await one<{ part: number }>(
    db,
    sql`
    select coalesce(max(part), 0) + 1 as part
    from ticket_archives
    where app_id = ${appId} and month = ${`${month}-01`}::date`,
  )
  return row.part
}

export interface NewArchive {
  readonly sums: MonthSums
  readonly month: string
  readonly part: number
  readonly file: string
  readonly sha256: string
  readonly at: Date
}

/** Notes an archive, with what its tickets had in each charge. */
export async function insertArchive(
  db: Db,
  { sums, month, part, file, sha256, at }: NewArchive,
): Promise<void> {
  const start = `${month}-01`
  await db.query(sql`
    insert into ticket_archives (app_id, month, part, file, sha256, tickets, fee_wei, cost_attos, archived_at)
    values (${sums.appId}, ${start}::date, ${part}, ${file}, ${sha256}, ${sums.tickets}, ${sums.fee}, ${sums.cost}, ${at})`)
  await db.query(sql`
    insert into archived_charges (app_id, user_id, charge_id, month, part, tickets, cost_attos)
    select app_id, user_id, charge_id, ${start}::date, ${part}, count(*), sum(cost_attos)
    from tickets
    where app_id = ${sums.appId} and signed_at >= ${start}::date::timestamp at time zone 'UTC'
      and signed_at < (${start}::date + interval '1 month') at time zone 'UTC'
    group by app_id, user_id, charge_id`)
}

/**
 * Drops the tickets of a month. Its table stays, empty: that locks that month and no other, and a ticket that comes late
 * still has a place to go to.
 */
export async function dropMonth(db: Db, month: string): Promise<void> {
  if (!monthName.test(month)) throw new Error(`not a month: ${month}`)
  await db.query(`truncate tickets_${month.replace('-', '_')}`)
}
