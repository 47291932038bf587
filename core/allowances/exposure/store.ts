import { plainArray } from '../../lib/copy-sql.ts'
import { networkRatio } from '../../lib/money.ts'
import { type Db, many, maybeOne, one, prepared, sql } from '../../lib/sql.ts'
import type { Email } from '../../lib/text/email.ts'
import { type AppId, appId } from '../../platform/ids.ts'

/**
 * Writes network_exposures. Amounts are atto-dollars of network cost; owners are as in
 * `findOwners`.
 */

/**
 * The lowest ratio from which network cost is derived. Bounds of bounded apps use no lower ratio.
 */
export const leastRatio = networkRatio / 1_000_000n

/** An account id, or the id of an app without an owner. */
export type OwnerId = string

/** Returns the owners of these apps, by app. Omits platform-owned apps, which are not bounded. */
export async function findOwners(
  db: Db,
  apps: readonly AppId[],
): Promise<ReadonlyMap<AppId, OwnerId>> {
  const rows = await many<{ id: string; owner_id: string }>(
    db,
    prepared(
      'exposed-owners',
      sql`
    select a.id, coalesce(o.account_id, a.id) as owner_id
    from apps a
    left join billing_settings b on b.app_id = a.id
    left join lateral (
      select account_id
      from members
      where app_id = a.id and role = 'owner'
      order by created_at, account_id
      limit 1) o on true
    where a.id = any(${plainArray(apps)}::uuid[]) and not coalesce(b.is_platform_owned, false)`,
    ),
  )
  return new Map(rows.map((row) => [appId(row.id), row.owner_id]))
}

export interface Exposure {
  readonly owner: OwnerId
  /** Null means the deployment's default. */
  readonly max: bigint | null
  readonly bound: bigint
  readonly countedAt: Date | null
}

interface ExposureRow {
  owner_id: string
  max_attos: string | null
  bound_attos: string
  counted_at: Date | null
}

const fromRow = (row: ExposureRow): Exposure => ({
  owner: row.owner_id,
  max: row.max_attos === null ? null : BigInt(row.max_attos),
  bound: BigInt(row.bound_attos),
  countedAt: row.counted_at,
})

/** Locks the owners' rows in id order, and inserts missing ones. */
export async function lockExposures(db: Db, owners: readonly OwnerId[]): Promise<Exposure[]> {
  const lock = () =>
    many<ExposureRow>(
      db,
      prepared(
        'lock-exposures',
        sql`
    select owner_id, max_attos, bound_attos, counted_at
    from network_exposures
    where owner_id = any(${plainArray(owners)}::uuid[])
    order by owner_id
    for no key update`,
      ),
    )
  const rows = await lock()
  if (rows.length === owners.length) return rows.map(fromRow)
  await db.query(sql`
    insert into network_exposures (owner_id)
    select id from unnest(${plainArray(owners)}::uuid[]) as w (id) order by id
    on conflict do nothing`)
  return (await lock()).map(fromRow)
}

/** Saves the bounds of locked owners, with the times when they were counted. */
export async function saveBounds(
  db: Db,
  exposures: readonly Omit<Exposure, 'max'>[],
): Promise<void> {
  if (exposures.length === 0) return
  await db.query(
    prepared(
      'save-exposures',
      sql`
    update network_exposures e
    set bound_attos = n.bound, counted_at = n.counted_at
    from unnest(${plainArray(exposures.map(({ owner }) => owner))}::uuid[],
                ${plainArray(exposures.map(({ bound }) => bound))}::numeric[],
                ${plainArray(exposures.map(({ countedAt }) => countedAt && countedAt.toISOString()))}::timestamptz[])
      as n (owner_id, bound, counted_at)
    where e.owner_id = n.owner_id`,
    ),
  )
}

export async function saveMax(db: Db, owner: OwnerId, max: bigint | null): Promise<void> {
  await db.query(
    sql`update network_exposures set max_attos = ${max}::numeric where owner_id = ${owner}`,
  )
}

export async function findMax(db: Db, owner: OwnerId): Promise<bigint | null> {
  const [row] = await many<{ max_attos: string | null }>(
    db,
    sql`select max_attos from network_exposures where owner_id = ${owner}`,
  )
  const max = row?.max_attos ?? null
  return max === null ? null : BigInt(max)
}

/** Finds the account with that e-mail address; null if there is no such account. */
export async function findAccount(db: Db, email: Email): Promise<OwnerId | null> {
  const row = await maybeOne<{ id: string }>(
    db,
    sql`select id from accounts where email = ${email}`,
  )
  return row && row.id
}

/**
 * Returns a readable name of an owner: the account's e-mail address, or the public client id of an
 * app without an owner.
 */
export async function nameOf(
  db: Db,
  owner: OwnerId,
): Promise<{ readonly email: string; readonly clientId: string }> {
  const row = await one<{ email: string; client_id: string }>(
    db,
    sql`
    select coalesce((select email from accounts where id = ${owner}), '') as email,
           coalesce((select client_id from clients where app_id = ${owner} and kind = 'public'), '') as client_id`,
  )
  return { email: row.email, clientId: row.client_id }
}

/**
 * Returns owners whose bound is near or above their quota, highest bound first. The bound may
 * exceed the unpaid cost.
 */
export async function findReached(db: Db, fallback: bigint, limit: number): Promise<OwnerId[]> {
  const rows = await many<{ owner_id: string }>(
    db,
    sql`
    select owner_id
    from network_exposures
    where bound_attos >= 0.9 * coalesce(max_attos, ${fallback}::numeric)
    order by bound_attos desc
    limit ${limit}`,
  )
  return rows.map((row) => row.owner_id)
}

/**
 * Returns the most that an owner's apps may cost: the users' held money, plus the cost booked since
 * the day of `since` that is not paid. Reads holds first, so that a ticket booked between the two
 * statements counts twice, never zero times.
 */
export async function countExposure(db: Db, owner: OwnerId, since: Date): Promise<bigint> {
  const held = await heldNetwork(db, owner)
  return held + (await unpaidNetwork(db, owner, since))
}

async function heldNetwork(db: Db, owner: OwnerId): Promise<bigint> {
  const { held } = await one<{ held: string }>(
    db,
    sql`
    with own as materialized (
      select a.id
      from apps a
      left join billing_settings b on b.app_id = a.id
      left join lateral (
        select account_id
        from members
        where app_id = a.id and role = 'owner'
        order by created_at, account_id
        limit 1) o on true
      where (a.id = ${owner} or a.id in (select app_id from members where account_id = ${owner} and role = 'owner'))
        and coalesce(o.account_id, a.id) = ${owner} and not coalesce(b.is_platform_owned, false)
    )
    select (select coalesce(sum(ceil((amount_attos - used_attos) * 10::numeric ^ 18 / greatest(retail_ratio, ${leastRatio}::numeric))), 0)
            from leases
            where app_id in (select id from own))
           + (select coalesce(sum(coalesce(network_attos, bound_attos)), 0)
              from authorisations
              where app_id in (select id from own) and state = 'pending') as held`,
  )
  return BigInt(held)
}

/** Returns the unpaid network cost. Payments are not collected yet, so all booked cost counts. */
export async function unpaidNetwork(db: Db, owner: OwnerId, since: Date): Promise<bigint> {
  const { booked } = await one<{ booked: string }>(
    db,
    sql`
    select coalesce(sum(c.cost_attos), 0) as booked
    from network_costs c
    left join billing_settings b on b.app_id = c.app_id
    where c.owner_id = ${owner} and c.day >= (${since}::timestamptz at time zone 'UTC')::date
      and not coalesce(b.is_platform_owned, false)`,
  )
  return BigInt(booked)
}
