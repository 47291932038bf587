import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
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
 * was moved, and its last move.
 */
export async function lockClock(
  db: Db,
  app: AppId,
): Promise<{ count: number; last: Move | null } | null> {
  const locked = await maybeOne(
    db,
    sql`select from apps where id = ${app} and is_test for no key update`,
  )
  if (!locked) return null
  const moves = (await listMoves(db, [app])).get(app) ?? []
  return { count: moves.length, last: moves.at(-1) ?? null }
}

/** Whoever writes has locked the clock. */
export async function insertMove(db: Db, app: AppId, { since, aheadMs }: Move): Promise<void> {
  await db.query(sql`
    insert into test_clock_moves (app_id, since, ahead_ms) values (${app}, ${since}, ${aheadMs})`)
}
