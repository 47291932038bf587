import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import { type AppId, appId } from '../ids.ts'

/** Writes test_clock_moves. */

/** After the real instant `since`, an app's clock is ahead by `aheadMs`. */
export interface Move {
  readonly since: Date
  readonly aheadMs: number
}

/** Whether each of these apps is a test app. Omits apps that do not exist. */
export async function findKinds(db: Db, apps: readonly AppId[]): Promise<Map<AppId, boolean>> {
  const rows = await many<{ id: string; is_test: boolean }>(
    db,
    sql`select id, is_test from apps where id = any(${apps}::uuid[])`,
  )
  return new Map(rows.map((row) => [appId(row.id), row.is_test]))
}

/** Milliseconds by which the clocks of these apps are ahead. Omits apps at real time. */
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

/** Apps whose clocks are ahead, without deleted apps. */
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

/** All moves of these apps, in order. */
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
 * Locks an app's clock until the transaction ends. Returns null unless it is a test app; otherwise
 * the number of moves, the instant of the last move (milliseconds since 1970) and the milliseconds
 * by which the clock is ahead; both 0 if it was never moved.
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

/** Inserts a move. The caller must hold the lock of `lockClock`. */
export async function insertMove(db: Db, app: AppId, { since, aheadMs }: Move): Promise<void> {
  await db.query(sql`
    insert into test_clock_moves (app_id, since, ahead_ms) values (${app}, ${since}, ${aheadMs})`)
}
