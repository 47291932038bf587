import type { AppId } from '../../shared/ids.ts'
import type { UsdAttos } from '../../lib/money.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import { partitionOf } from '../../shared/database/ticket-months.ts'

/** Writes `ticket_archives` and `archived_charges`: months with tickets in files. */

export interface ArchivedPart {
  readonly appId: AppId
  readonly month: string
  readonly part: number
}

/** Finds the archive that a file belongs to, by the checksum of its lines. */
export async function findArchive(
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
    -- A month that was restored and archived again may be the same file twice; the later one still holds tickets.
    order by tickets > 0 desc, month, part desc
    limit 1`,
  )
  return row && { appId, ...row }
}

/** Amounts that a user's restored tickets take off an archived charge. */
export interface RestoredCharge {
  readonly userId: string
  readonly chargeId: string | null
  readonly tickets: bigint
  readonly fee: bigint
  readonly cost: bigint
  readonly markup: bigint
  readonly platformFee: bigint
  readonly platformWei: bigint
}

/** Locks an archive until the transaction ends, so that a second restore waits. */
export async function lockArchive(db: Db, { appId, month, part }: ArchivedPart): Promise<void> {
  await db.query(sql`
    select 1
    from ticket_archives
    where app_id = ${appId} and month = ${month}::date and part = ${part}
    for update`)
}

/**
 * Subtracts restored tickets from a locked archive. Throws when the tickets do not belong to it.
 */
export async function subtractRestored(
  db: Db,
  { appId, month, part }: ArchivedPart,
  { charges, at }: { charges: readonly RestoredCharge[]; at: Date },
): Promise<void> {
  const column = <T>(value: (charge: RestoredCharge) => T): T[] => charges.map(value)
  const row = await one<{ restored: bigint; counted: bigint }>(
    db,
    sql`
    with restored as materialized (
      select *
      from unnest(
        ${column((c) => c.userId)}::uuid[], ${column((c) => c.chargeId)}::uuid[], ${column((c) => c.tickets)}::bigint[],
        ${column((c) => c.fee)}::numeric[], ${column((c) => c.cost)}::numeric[], ${column((c) => c.markup)}::numeric[],
        ${column((c) => c.platformFee)}::numeric[], ${column((c) => c.platformWei)}::numeric[])
        as r (user_id, charge_id, tickets, fee, cost, markup, platform_fee, platform_wei)
    ), charges as (
      update archived_charges a
      set tickets = a.tickets - r.tickets, cost_attos = a.cost_attos - r.cost - r.markup,
          owner_attos = greatest(0, a.owner_attos - r.cost - r.platform_fee)
      from restored r
      where a.app_id = ${appId} and a.month = ${month}::date and a.part = ${part} and a.user_id = r.user_id
        and a.charge_id = r.charge_id
      returning r.tickets
    ), archives as (
      update ticket_archives a
      set tickets = a.tickets - r.tickets, fee_wei = a.fee_wei - r.fee, cost_attos = a.cost_attos - r.cost,
          markup_attos = a.markup_attos - r.markup, platform_fee_attos = a.platform_fee_attos - r.platform_fee,
          platform_fee_wei = a.platform_fee_wei - r.platform_wei, restored_at = ${at}
      from (
        select coalesce(sum(tickets), 0) as tickets, coalesce(sum(fee), 0) as fee, coalesce(sum(cost), 0) as cost,
               coalesce(sum(markup), 0) as markup, coalesce(sum(platform_fee), 0) as platform_fee,
               coalesce(sum(platform_wei), 0) as platform_wei
        from restored) r
      where a.app_id = ${appId} and a.month = ${month}::date and a.part = ${part}
    )
    select (select coalesce(sum(tickets), 0)::bigint from restored) as restored,
           (select coalesce(sum(tickets), 0)::bigint from charges) as counted`,
  )
  if (row.restored !== row.counted)
    throw new Error('the tickets in the database differ from those in the archive')
  await db.query(sql`
    delete from archived_charges
    where app_id = ${appId} and month = ${month}::date and part = ${part} and tickets = 0`)
}

/**
 * Lists months that ended by `before`, have a partition, and were not restored since
 * `restoredBefore`, oldest first.
 */
export async function monthsToArchive(
  db: Db,
  { before, restoredBefore }: { before: Date; restoredBefore: Date },
): Promise<string[]> {
  const rows = await many<{ month: string }>(
    db,
    sql`
    with restored as materialized (
      select month from ticket_archives where restored_at > ${restoredBefore}
    )
    select month
    from (
      select replace(substr(c.relname, 9), '_', '-') as month
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'tickets'::regclass and c.relname ~ '^tickets_[0-9]{4}_[0-9]{2}$') parts
    where (month || '-01')::date::timestamp at time zone 'UTC' + interval '1 month' <= ${before}
      and (month || '-01')::date not in (select month from restored)
    order by month`,
  )
  return rows.map((row) => row.month)
}

export interface MonthSums {
  readonly appId: string
  readonly clientId: string
  readonly tickets: bigint
  readonly unpriced: bigint
  /** Tickets with a charge on a day that has no roots yet. */
  readonly unrooted: bigint
  /** Tickets of charges that will be on an invoice. */
  readonly uninvoiced: bigint
  readonly fee: bigint
  readonly cost: bigint
  readonly markup: bigint
  readonly platformFee: bigint
  readonly platformWei: bigint
}

/** Returns the sums of a month, by app. Debts below `minimumCharge` are not invoiced. */
export async function monthSums(
  db: Db,
  { from, to }: { from: Date; to: Date },
  minimumCharge: UsdAttos,
): Promise<MonthSums[]> {
  const rows = await many<{
    app_id: string
    client_id: string
    tickets: bigint
    unpriced: bigint
    unrooted: bigint
    uninvoiced: bigint
    fee: string
    cost: string
    markup: string
    platform_fee: string
    platform_wei: string
  }>(
    db,
    sql`
    with built as materialized (
      select c.app_id, d.snapshot
      from clients c
      cross join lateral (
        select snapshot
        from (
          select day, snapshot
          from receipt_days
          where built_at is not null
            and cut_at < coalesce((select min(cut_at) from test_days where app_id = c.app_id), 'infinity')
          union all
          select day, snapshot
          from test_days
          where app_id = c.app_id and built_at is not null) cuts
        order by day desc
        limit 1) d
      where c.kind = 'public'
    ), unrooted as materialized (
      select distinct e.app_id, e.user_id, e.cause_id
      from built b
      join ledger_entries e on e.app_id = b.app_id and e.xact >= pg_snapshot_xmin(b.snapshot)::text::bigint
      where e.kind = 'charge' and not pg_visible_in_snapshot(e.xact::text::xid8, b.snapshot)
    ), uninvoiced as materialized (
      -- Less may wait for long; its invoice then has one line without tickets.
      select e.app_id, e.user_id, e.cause_id
      from balances b
      join ledger_entries e on e.app_id = b.app_id and e.user_id = b.user_id
      where b.collects_by is not null and b.overage_attos - b.collected_attos - b.invoiced_attos >= ${minimumCharge}
        and e.kind = 'charge' and e.charged_app_id is null and e.overage_attos > 0
        and e.seq > (
          select coalesce(max(through_seq), 0)
          from invoices
          where app_id = b.app_id and user_id = b.user_id)
    )
    select t.app_id, c.client_id, count(*) as tickets, count(*) filter (where t.cost_attos is null) as unpriced,
           count(t.charge_id) filter (
             -- Before the first day is cut nobody knows yet on which day a charge will be.
             where not exists (select 1 from built) or ((t.app_id, t.user_id, t.charge_id) in (select * from unrooted)) is true
           ) as unrooted,
           count(*) filter (where ((t.app_id, t.user_id, t.charge_id) in (select * from uninvoiced)) is true) as uninvoiced,
           sum(t.fee_wei) as fee, coalesce(sum(t.cost_attos), 0) as cost,
           coalesce(sum(t.retail_attos - t.cost_attos), 0) as markup,
           coalesce(sum(t.platform_fee_attos), 0) as platform_fee, coalesce(sum(t.platform_fee_wei), 0) as platform_wei
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
    unrooted: row.unrooted,
    uninvoiced: row.uninvoiced,
    fee: BigInt(row.fee),
    cost: BigInt(row.cost),
    markup: BigInt(row.markup),
    platformFee: BigInt(row.platform_fee),
    platformWei: BigInt(row.platform_wei),
  }))
}

/**
 * Locks a month against readers and writers until the transaction ends. Arriving tickets of the
 * month wait.
 */
export async function lockMonth(db: Db, month: string): Promise<void> {
  const partition = partitionOf(month)
  // Readers of all months would queue behind this lock, so it gives up after 2 s; the next round is
  // in an hour.
  await db.query(sql`set local lock_timeout = '2s'`)
  await db.query(sql`select pg_advisory_xact_lock(hashtext('tollgate.archive'))`)
  await db.query(`lock table ${partition} in access exclusive mode`)
}

/** Returns the number of an app's next file for a month. */
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

/** Records an archive, with the share of its tickets in each charge. */
export async function insertArchive(
  db: Db,
  { sums, month, part, file, sha256, at }: NewArchive,
): Promise<void> {
  const start = `${month}-01`
  await db.query(sql`
    insert into ticket_archives (app_id, month, part, file, sha256, tickets, fee_wei, cost_attos, markup_attos,
                                 platform_fee_attos, platform_fee_wei, archived_at)
    values (${sums.appId}, ${start}::date, ${part}, ${file}, ${sha256}, ${sums.tickets}, ${sums.fee}, ${sums.cost},
            ${sums.markup}, ${sums.platformFee}, ${sums.platformWei}, ${at})`)
  await db.query(sql`
    insert into archived_charges (app_id, user_id, charge_id, month, part, tickets, cost_attos, owner_attos)
    select app_id, user_id, charge_id, ${start}::date, ${part}, count(*), sum(coalesce(retail_attos, cost_attos)),
           sum(cost_attos + coalesce(platform_fee_attos, 0))
    from tickets
    where app_id = ${sums.appId} and signed_at >= ${start}::date::timestamp at time zone 'UTC'
      and signed_at < (${start}::date + interval '1 month') at time zone 'UTC'
    group by app_id, user_id, charge_id`)
}
