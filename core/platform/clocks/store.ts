import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import { type AppId, appId } from '../ids.ts'

/** Writes test_clock_moves. */

/** After `since`, in real time, the clock of an app is ahead by so much. */
export interface Move {
  readonly since: Date
  readonly aheadMs: number
}

/** Which of these apps there are, and whether each is a test app. */
export async function findKinds(db: Db, apps: readonly AppId[]): Promise<Map<AppId, boolean>> {
  const rows = await many<{ id: string; is_test: boolean }>(
    db,
    sql`select id, is_test from apps where id = any(${apps}::uuid[])`,
  )
  return new Map(rows.map((row) => [appId(row.id), row.is_test]))
}

/** By how much the clocks of apps are ahead; without those that are not. */
export async function findAhead(db: Db, apps: readonly AppId[]): Promise<Map<AppId, number>> {
  const rows = await many<{ app_id: string; ahead_ms: bigint }>(
    db,
    sql`
    select app_id, max(ahead_ms) as ahead_ms
    from test_clock_moves
    where app_id = any(${apps}::uuid[])
    group by app_id`,
  )
  return new Map(rows.map((row) => [appId(row.app_id), Number(row.ahead_ms)]))
}

/** The apps whose clocks are ahead, without deleted ones. */
export async function listAhead(db: Db): Promise<AppId[]> {
  const rows = await many<{ id: string }>(
    db,
    sql`
    select id
    from apps
    where is_test and status <> 'deleted' and exists (select from test_clock_moves where app_id = apps.id)
    order by id`,
  )
  return rows.map(({ id }) => appId(id))
}

/** All moves of apps, in their order. */
export async function listMoves(db: Db, apps: readonly AppId[]): Promise<Map<AppId, Move[]>> {
  const rows = await many<{ app_id: string; since: Date; ahead_ms: bigint }>(
    db,
    sql`
    select app_id, since, ahead_ms
    from test_clock_moves
    where app_id = any(${apps}::uuid[])
    order by app_id, since`,
  )
  return new Map(
    [...Map.groupBy(rows, (row) => row.app_id)].map(([app, moves]) => [
      appId(app),
      moves.map(({ since, ahead_ms }) => ({ since, aheadMs: Number(ahead_ms) })),
    ]),
  )
}

/**
 * Keeps others from moving the clock of an app until the transaction ends. Null unless it is a test app; then how often it
 * was moved, since when it shows what it shows, in milliseconds since 1970, and by how many it is ahead; 0 for never.
 */
export async function lockClock(
  db: Db,
  app: AppId,
): Promise<{ count: number; sinceMs: number; aheadMs: number } | null> {
  const locked = await maybeOne(
    db,
    sql`select from apps where id = ${app} and is_test for no key update`,
  )
  if (!locked) return null
  const row = await one<{ count: number; since: Date | null; ahead_ms: bigint | null }>(
    db,
    sql`
    select count(*)::int as count, max(since) as since, max(ahead_ms) as ahead_ms
    from test_clock_moves
    where app_id = ${app}`,
  )
  return {
    count: row.count,
    sinceMs: row.since?.getTime() ?? 0,
    aheadMs: Number(row.ahead_ms ?? 0),
  }
}

/** Whoever writes has locked the clock. */
export async function insertMove(db: Db, app: AppId, { since, aheadMs }: Move): Promise<void> {
  await db.query(sql`
    insert into test_clock_moves (app_id, since, ahead_ms) values (${app}, ${since}, ${aheadMs})`)
}
