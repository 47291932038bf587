import { hash } from 'node:crypto'
import { listApps, lockInApps } from '../../shared/database/app-groups.ts'
import { type AppId, type UserId, appId } from '../../shared/ids.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { Link, StoredChain } from '../heads-store.ts'
import type { AppRef } from '../types.ts'
import type { CutMove, TestCut } from './test-days.ts'

/** Writes `receipt_days`, `test_days` and `receipt_roots`. */

/** `YYYY-MM-DD`. */
export type Day = string

export interface Cut {
  readonly day: Day
  readonly cutAt: Date
}

/**
 * Charges between the cuts of two days: visible in the later snapshot but not in the earlier one.
 */
export interface Window extends Cut {
  readonly snapshot: string
  readonly previous: string
}

/** Lets one core cut at a time, so that the order of days is the order of their snapshots. */
export async function lockCuts(db: Db): Promise<void> {
  await db.query(sql`select pg_advisory_xact_lock(hashtext('tollgate.receipt-days'))`)
}

/** Cuts a day, unless it or a later one is cut. The very first cut needs no roots. */
export async function insertCut(db: Db, { day, cutAt }: Cut): Promise<void> {
  await db.query(sql`
    insert into receipt_days (day, cut_at, snapshot, built_at)
    select ${day}::date, ${cutAt}, pg_current_snapshot(),
           case when not exists (select 1 from receipt_days) then ${cutAt}::timestamptz end
    where not exists (select 1 from receipt_days where day >= ${day}::date)`)
}

interface WindowRow {
  day: Day
  cut_at: Date
  snapshot: string
  previous: string
}

const toWindow = ({ cut_at: cutAt, ...row }: WindowRow): Window => ({ ...row, cutAt })

/** Lists the days without roots, oldest first. */
export async function windowsToBuild(db: Db, limit: number): Promise<Window[]> {
  const rows = await many<WindowRow>(
    db,
    sql`
    select to_char(d.day, 'YYYY-MM-DD') as day, d.cut_at, d.snapshot::text as snapshot, p.snapshot::text as previous
    from receipt_days d
    cross join lateral (
      select snapshot
      from receipt_days
      where day < d.day
      order by day desc
      limit 1) p
    where d.built_at is null
    order by d.day
    limit ${limit}`,
  )
  return rows.map(toWindow)
}

/**
 * The cuts of the app $1: those of all apps and, for a test app, its own from its first own cut on.
 */
const cutsOfApp = `
      select day, cut_at, snapshot, built_at
      from receipt_days
      where cut_at < coalesce((select min(cut_at) from test_days where app_id = $1), 'infinity')
      union all
      select day, cut_at, snapshot, built_at
      from test_days
      where app_id = $1`

/** Returns the window of an app's day; null for the first cut. */
export async function findWindow(db: Db, app: AppId, day: Day): Promise<Window | null> {
  const row = await maybeOne<WindowRow>(db, {
    text: `
    select to_char(day, 'YYYY-MM-DD') as day, cut_at, snapshot::text as snapshot, previous::text as previous
    from (select c.*, lag(snapshot) over (order by day) as previous from (${cutsOfApp}) c) d
    where d.day = $2::date and previous is not null`,
    values: [app, day],
  })
  return row && toWindow(row)
}

/** Lists test apps with clock moves. */
export async function appsWithMoves(db: Db): Promise<AppId[]> {
  const rows = await many<{ app_id: string }>(
    db,
    sql`select distinct app_id from test_clock_moves order by app_id`,
  )
  return rows.map((row) => appId(row.app_id))
}

/** Lists the moves of an app's clock in order. */
export async function listMoves(db: Db, app: AppId): Promise<CutMove[]> {
  const rows = await many<{ since: Date; ahead_ms: bigint; snapshot: string | null }>(
    db,
    sql`
    select since, ahead_ms, snapshot::text as snapshot
    from test_clock_moves
    where app_id = ${app}
    order by since`,
  )
  return rows.map(({ since, ahead_ms, snapshot }) => ({
    since,
    aheadMs: Number(ahead_ms),
    snapshot,
  }))
}

/** Returns the last cut of an app; null before the very first cut. */
export async function findLastCut(db: Db, app: AppId): Promise<Cut | null> {
  const row = await maybeOne<{ day: Day; cut_at: Date }>(db, {
    text: `
    select to_char(day, 'YYYY-MM-DD') as day, cut_at
    from (${cutsOfApp}) c
    order by c.day desc
    limit 1`,
    values: [app],
  })
  return row && { day: row.day, cutAt: row.cut_at }
}

/** The caller holds the lock on cuts. */
export async function insertTestCut(db: Db, app: AppId, cut: TestCut): Promise<void> {
  await db.query(sql`
    insert into test_days (app_id, day, cut_at, snapshot)
    values (${app}, ${cut.day}::date, ${cut.cutAt}, coalesce(${cut.snapshot}::pg_snapshot, pg_current_snapshot()))`)
}

/** Lists the days of test apps without roots, by app, oldest first. */
export async function testWindowsToBuild(
  db: Db,
  limit: number,
): Promise<{ app: AppRef; window: Window }[]> {
  const rows = await many<WindowRow & { app_id: string; client_id: string }>(
    db,
    sql`
    select d.app_id, c.client_id, to_char(d.day, 'YYYY-MM-DD') as day, d.cut_at, d.snapshot::text as snapshot,
           p.snapshot::text as previous
    from test_days d
    join clients c on c.app_id = d.app_id and c.kind = 'public'
    cross join lateral (
      select snapshot
      from (
        select day, snapshot
        from receipt_days
        where cut_at < (select min(cut_at) from test_days where app_id = d.app_id)
        union all
        select day, snapshot
        from test_days
        where app_id = d.app_id and day < d.day) cuts
      order by day desc
      limit 1) p
    where d.built_at is null
    order by d.app_id, d.day
    limit ${limit}`,
  )
  return rows.map(({ app_id: id, client_id: clientId, ...window }) => ({
    app: { id: appId(id), clientId },
    window: toWindow(window),
  }))
}

export async function markTestDayBuilt(
  db: Db,
  { app, day }: { app: AppId; day: Day },
  at: Date,
): Promise<void> {
  await db.query(sql`
    update test_days set built_at = ${at} where app_id = ${app} and day = ${day}::date and built_at is null`)
}

export async function markBuilt(db: Db, day: Day, at: Date): Promise<void> {
  await db.query(sql`
    update receipt_days set built_at = ${at} where day = ${day}::date and built_at is null`)
}

/**
 * Returns the time since which roots are missing: the oldest cut with missing roots, or the end of
 * an uncut day; null if no root is missing.
 */
export async function unbuiltSince(db: Db, at: Date): Promise<Date | null> {
  const row = await one<{ since: Date | null }>(
    db,
    sql`
    select least(
             (select min(cut_at) from test_days where built_at is null),
             min(cut_at) filter (where built_at is null),
             case when max(day) + 2 <= (${at}::timestamptz at time zone 'UTC')::date
               then (max(day) + 2)::timestamp at time zone 'UTC' end) as since
    from receipt_days`,
  )
  return row.since
}

/**
 * Returns the first day with a cut that sees the ledger entry `seq`, and whether its roots are
 * built; null while the day is not cut.
 */
export async function dayOfCharge(
  db: Db,
  { app, user, seq }: { app: AppId; user: UserId; seq: bigint },
): Promise<{ day: Day; isBuilt: boolean } | null> {
  return maybeOne<{ day: Day; isBuilt: boolean }>(db, {
    text: `
    select to_char(d.day, 'YYYY-MM-DD') as day, d.built_at is not null as "isBuilt"
    from ledger_entries e
    join (${cutsOfApp}) d on pg_visible_in_snapshot(e.xact::text::xid8, d.snapshot)
    where e.app_id = $1 and e.user_id = $2 and e.seq = $3
    order by d.day
    limit 1`,
    values: [app, user, seq],
  })
}

/** Lets one core build roots until the transaction ends. Returns false when another core builds. */
export async function tryBuilding(db: Db): Promise<boolean> {
  const row = await one<{ locked: boolean }>(
    db,
    sql`select pg_try_advisory_xact_lock(hashtext('tollgate.receipt-roots')) as locked`,
  )
  return row.locked
}

/**
 * Lists apps with charges in the window but without a root for its day, by id. A window of all apps
 * leaves out apps that have their own days.
 */
export async function appsWithoutRoot(
  db: Db,
  { day, cutAt, snapshot, previous }: Window,
  { onlyApp, limit, isOwn = false }: AppsOfWindow,
): Promise<AppRef[]> {
  const others = isOwn ? [] : await appsWithOwnDays(db, cutAt)
  const rows = await lockInApps(db, {
    app: onlyApp,
    limit,
    findApps: () => listApps(db),
    lock: (app, most) =>
      many<{ app_id: string; client_id: string }>(
        db,
        sql`
    select c.app_id, c.client_id
    from clients c
    where c.kind = 'public' and (${app}::uuid is null or c.app_id = ${app}) and c.app_id <> all(${others}::uuid[])
      and not exists (select 1 from receipt_roots where app_id = coalesce(${app}, c.app_id) and day = ${day}::date)
      and exists (
        select 1
        from ledger_entries e
        where e.app_id = coalesce(${app}, c.app_id) and e.kind = 'charge' and e.charged_app_id is null
          and e.xact >= pg_snapshot_xmin(${previous}::pg_snapshot)::text::bigint
          and e.xact < pg_snapshot_xmax(${snapshot}::pg_snapshot)::text::bigint
          and pg_visible_in_snapshot(e.xact::text::xid8, ${snapshot}::pg_snapshot)
          and not pg_visible_in_snapshot(e.xact::text::xid8, ${previous}::pg_snapshot))
    order by c.app_id
    limit ${most}`,
      ),
  })
  return rows.map((row) => ({ id: appId(row.app_id), clientId: row.client_id }))
}

/** Lists test apps that have their own days at `cutAt`. */
async function appsWithOwnDays(db: Db, cutAt: Date): Promise<string[]> {
  const rows = await many<{ app_id: string }>(
    db,
    sql`select distinct app_id from test_days where cut_at <= ${cutAt}`,
  )
  return rows.map((row) => row.app_id)
}

interface AppsOfWindow {
  /** Null for all apps. */
  readonly onlyApp: AppId | null
  readonly limit: number
  /** True for the day of a test app. */
  readonly isOwn?: boolean
}

export interface RootRow {
  readonly day: Day
  readonly treeSize: number
  readonly rootHash: Buffer
  readonly statement: string
  readonly jwk: Readonly<Record<string, string>>
  readonly createdAt: Date
}

interface RootColumns {
  day: Day
  tree_size: bigint
  root_hash: Buffer
  statement: string
  jwk: Readonly<Record<string, string>>
  created_at: Date
}

const toRoot = (row: RootColumns): RootRow => ({
  day: row.day,
  treeSize: Number(row.tree_size),
  rootHash: row.root_hash,
  statement: row.statement,
  jwk: row.jwk,
  createdAt: row.created_at,
})

/** First and last day, inclusive. */
export interface RootsRange {
  readonly app: AppId
  readonly from: Day
  readonly to: Day
  readonly limit: number
}

/** Returns a page of an app's roots, oldest first, and the first day of the next page. */
export async function rootsPage(
  db: Db,
  { app, from, to, limit }: RootsRange,
): Promise<{ roots: RootRow[]; next: Day | null }> {
  const rows = await many<RootColumns>(
    db,
    sql`
    select to_char(day, 'YYYY-MM-DD') as day, tree_size, root_hash, statement, jwk, created_at
    from receipt_roots
    where app_id = ${app} and day >= ${from}::date and day <= ${to}::date
    order by receipt_roots.day
    limit ${limit + 1}`,
  )
  return { roots: rows.slice(0, limit).map(toRoot), next: rows[limit]?.day ?? null }
}

/** Days before and after every other. */
export const [firstDay, lastDay]: readonly [Day, Day] = ['0001-01-01', '9999-12-31']

/** Lists days with built roots on which the app was charged but has no root. */
export async function daysWithoutRoot(db: Db, app: AppId): Promise<Day[]> {
  const rows = await many<{ day: Day }>(db, {
    text: `
    select to_char(d.day, 'YYYY-MM-DD') as day
    from (
      select day, snapshot, built_at, lag(snapshot) over (order by day) as previous
      from (${cutsOfApp}) c) d
    where d.built_at is not null and d.previous is not null
      and not exists (select 1 from receipt_roots where app_id = $1 and day = d.day)
      and exists (
        select 1
        from ledger_entries e
        where e.app_id = $1 and e.kind = 'charge' and e.charged_app_id is null and e.xact >= pg_snapshot_xmin(d.previous)::text::bigint
          and e.xact < pg_snapshot_xmax(d.snapshot)::text::bigint
          and pg_visible_in_snapshot(e.xact::text::xid8, d.snapshot)
          and not pg_visible_in_snapshot(e.xact::text::xid8, d.previous))
    order by d.day
    limit 100`,
    values: [app],
  })
  return rows.map((row) => row.day)
}

type Statement = Pick<RootRow, 'day' | 'statement'>

/** Returns an app's last root before a day. */
export async function rootBefore(db: Db, app: AppId, day: Day): Promise<Statement | null> {
  return maybeOne<Statement>(
    db,
    sql`
    select to_char(day, 'YYYY-MM-DD') as day, statement
    from receipt_roots
    where app_id = ${app} and day < ${day}::date
    order by receipt_roots.day desc
    limit 1`,
  )
}

const daySeconds = 86_400

/** Converts a root to a link of the app's chain. */
export const findLink = ({ day, statement }: Statement): Link => ({
  number: BigInt(Date.parse(day) / 1000 / daySeconds),
  hash: hash('sha256', statement, 'hex'),
})

/** The chain of an app's roots, up to this one. */
export const readChain = (db: Db, app: AppId, last: Statement | null): StoredChain => ({
  kind: 'root',
  last: last && findLink(last),
  hashAt: async (number) => {
    const day = dayOfLink(number)
    const { roots } = await rootsPage(db, { app, from: day, to: day, limit: 1 })
    return roots[0] ? findLink(roots[0]).hash : null
  },
})

export const dayOfLink = (number: bigint): Day =>
  new Date(Number(number) * daySeconds * 1000).toISOString().slice(0, 10)

/** Returns the current hashes of a checkpoint and a price chain item; null for missing ones. */
export async function hashesAt(
  db: Db,
  app: AppId,
  { checkpoint, price }: { checkpoint: string | null; price: string | null },
): Promise<{ checkpoint: string | null; price: string | null }> {
  return one(
    db,
    sql`
    select (select encode(head, 'hex') from checkpoints where app_id = ${app} and number = ${checkpoint}::bigint) as checkpoint,
           (select encode(hash, 'hex') from price_chain where app_id = ${app} and number = ${price}::bigint) as price`,
  )
}

export async function insertRoot(db: Db, app: AppId, root: RootRow): Promise<void> {
  await db.query(sql`
    insert into receipt_roots (app_id, day, tree_size, root_hash, statement, jwk, created_at)
    values (${app}, ${root.day}::date, ${root.treeSize}, ${root.rootHash}, ${root.statement}, ${root.jwk}, ${root.createdAt})`)
}
