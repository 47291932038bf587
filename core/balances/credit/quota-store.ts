import { type Db, maybeOne, one, sql } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'

/** Writes credit_quotas. Amounts are atto-dollars; a null limit means the deployment's default. */

interface LimitRow {
  max_attos: string | null
}

const limitOf = (row: LimitRow | null): bigint | null =>
  row === null || row.max_attos === null ? null : BigInt(row.max_attos)

/**
 * Raises the app's bound and locks its row. Returns false if the bound would exceed the limit, or
 * if the app has no row.
 */
export async function raiseBound(
  db: Db,
  app: AppId,
  { amount, fallback, at }: { amount: bigint; fallback: bigint; at: Date },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update credit_quotas set bound_attos = bound_attos + ${amount}::numeric, updated_at = ${at}
    where app_id = ${app} and bound_attos + ${amount}::numeric <= coalesce(max_attos, ${fallback}::numeric)`)
  return rowCount === 1
}

/**
 * Raises the app's bound above any limit, and locks its row. Returns false if the app has no row.
 */
export async function addToBound(
  db: Db,
  app: AppId,
  { amount, at }: { amount: bigint; at: Date },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update credit_quotas set bound_attos = bound_attos + ${amount}::numeric, updated_at = ${at}
    where app_id = ${app}`)
  return rowCount === 1
}

/** Locks the app's row and inserts it if missing. Returns its limit. */
export async function lockQuota(db: Db, app: AppId, at: Date): Promise<bigint | null> {
  const row = await one<LimitRow>(
    db,
    sql`
    insert into credit_quotas (app_id, bound_attos, updated_at) values (${app}, 0, ${at})
    on conflict (app_id) do update set updated_at = excluded.updated_at
    returning max_attos`,
  )
  return limitOf(row)
}

export async function findLimit(db: Db, app: AppId): Promise<bigint | null> {
  return limitOf(
    await maybeOne<LimitRow>(db, sql`select max_attos from credit_quotas where app_id = ${app}`),
  )
}

export async function setBound(db: Db, app: AppId, bound: bigint): Promise<void> {
  await db.query(
    sql`update credit_quotas set bound_attos = ${bound}::numeric where app_id = ${app}`,
  )
}

export async function setLimit(db: Db, app: AppId, limit: bigint | null): Promise<void> {
  await db.query(sql`update credit_quotas set max_attos = ${limit}::numeric where app_id = ${app}`)
}

/** Returns the remaining amount of credit that the app's users got through the API. */
export async function outstandingCredit(db: Db, app: AppId, at: Date): Promise<bigint> {
  const { sum } = await one<{ sum: string }>(
    db,
    sql`
    select coalesce(sum(remaining_attos), 0) as sum
    from grants
    where app_id = ${app} and kind = 'grant' and expired_at is null and remaining_attos > 0
      and (expires_at is null or expires_at > ${at})
      and id not in (select credit_id from payments where app_id = ${app} and credit_id is not null)`,
  )
  return BigInt(sum)
}
