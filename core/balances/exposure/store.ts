import { plainArray, uuids } from '../../lib/copy-sql.ts'
import { networkRatio } from '../../lib/money.ts'
import { type Db, many, one, prepared, sql } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import { everything } from '../accounts/credits.ts'
import { type AppId, type UserKey, appId, ownerAccountPrefix, userId } from '../../shared/ids.ts'

/** Writes owner_holds. Amounts are atto-dollars of owner charge. */

/**
 * The lowest ratio from which network cost is derived. Bounds of apps with an owner use no lower
 * ratio.
 */
export const leastRatio = networkRatio / 1_000_000n

/** The owner who pays for an app. */
export interface Payer {
  readonly appId: AppId
  /** Its account user in the platform app. */
  readonly owner: UserKey
  /** The app's highest cut that its calls may get, in hundredths of a percent. */
  readonly cut: bigint
}

/** Like `Payer`; the owner is null if it has no account user yet. */
export interface FoundPayer extends Pick<Payer, 'appId' | 'cut'> {
  readonly owner: UserKey | null
}

/** A call gets the cut of its signing time. This is longer ago than any call that is held. */
const cutSeconds = 86_400

interface PayerRow {
  id: string
  platform_app_id: string | null
  user_id: string | null
  cut: string
}

/**
 * The highest cut of an app that begins after `since`, is announced, or applied at `since`; in
 * percent. Both arguments are SQL.
 */
const highestCut = (app: string, since: string): string => `(
  select coalesce(max(percent), 0)
  from platform_cuts
  where app_id = ${app} and since >= coalesce((
    select max(since)
    from platform_cuts
    where app_id = ${app} and since <= ${since}::timestamptz), '-infinity'))`

/** Finds the first owners of apps. Omits platform-owned apps, and apps without an owner. */
export async function findPayers(db: Db, apps: readonly AppId[], at: Date): Promise<FoundPayer[]> {
  const rows = await many<PayerRow>(db, {
    name: 'find-payers',
    text: `
    select a.app_id as id, p.app_id as platform_app_id, u.id as user_id,
           (${highestCut('a.app_id', '$3')} * 100)::bigint::text as cut
    from app_payers a
    left join platform_app p on true
    left join end_users u on u.app_id = p.app_id and u.external_user_id = $2 || a.account_id::text
    where a.app_id = any($1::uuid[])`,
    values: [plainArray(apps), ownerAccountPrefix, addSeconds(at, -cutSeconds)],
  })
  return rows.map((row) => ({
    appId: appId(row.id),
    owner:
      row.platform_app_id === null || row.user_id === null
        ? null
        : { appId: appId(row.platform_app_id), userId: userId(row.user_id) },
    cut: BigInt(row.cut),
  }))
}

/** What is held for the apps of an owner. */
export interface OwnerHolds {
  readonly owner: UserKey
  /** An upper bound, as owner charge. */
  readonly held: bigint
  /** When it was counted; null if never. */
  readonly countedAt: Date | null
}

interface HoldsRow {
  app_id: string
  user_id: string
  held_attos: string
  counted_at: Date | null
}

const fromRow = (row: HoldsRow): OwnerHolds => ({
  owner: { appId: appId(row.app_id), userId: userId(row.user_id) },
  held: BigInt(row.held_attos),
  countedAt: row.counted_at,
})

const appsOf = (owners: readonly UserKey[]) => uuids(owners.map((owner) => owner.appId))
const usersOf = (owners: readonly UserKey[]) => uuids(owners.map((owner) => owner.userId))

/**
 * Locks the rows of different owners in id order, and inserts missing ones. Locks nothing before all
 * rows exist, so that a transaction that waits for another one's insert holds no row that the other
 * one needs.
 */
export async function lockHolds(db: Db, owners: readonly UserKey[]): Promise<OwnerHolds[]> {
  const rows = await lockAll(db, owners)
  if (rows.length === owners.length) return rows.map(fromRow)
  await db.query(sql`
    insert into owner_holds (app_id, user_id)
    select app_id, user_id
    from unnest(${appsOf(owners)}::uuid[], ${usersOf(owners)}::uuid[]) as w (app_id, user_id)
    order by user_id
    on conflict do nothing`)
  return (await lockAll(db, owners)).map(fromRow)
}

/** Returns no row, and locks none, if a row is missing. */
const lockAll = (db: Db, owners: readonly UserKey[]): Promise<HoldsRow[]> =>
  many<HoldsRow>(
    db,
    prepared('lock-owner-holds')`
    with w as materialized (
      select * from unnest(${appsOf(owners)}::uuid[], ${usersOf(owners)}::uuid[]) as w (app_id, user_id)
    )
    select app_id, user_id, held_attos, counted_at
    from owner_holds
    where (app_id, user_id) in (select app_id, user_id from w)
      and (select count(*) from owner_holds h join w using (app_id, user_id)) = ${owners.length}::int
    order by user_id
    for no key update of owner_holds`,
  )

export async function readHolds(db: Db, owners: readonly UserKey[]): Promise<OwnerHolds[]> {
  const rows = await many<HoldsRow>(
    db,
    prepared('read-owner-holds')`
    select app_id, user_id, held_attos, counted_at
    from owner_holds
    where (app_id, user_id) in (select * from unnest(${appsOf(owners)}::uuid[], ${usersOf(owners)}::uuid[]))`,
  )
  return rows.map(fromRow)
}

export interface ExceededSearch {
  readonly at: Date
  /** Credit that ends earlier does not count. */
  readonly until: Date
  readonly limit: number
}

/**
 * Finds owners who may hold more than their money, and whose apps have leases that were not
 * recalled. Compares the bound of what they hold with credit that pays for anything, without the
 * next period. Returns those that were counted longest ago.
 */
export async function findExceeded(
  db: Db,
  { at, until, limit }: ExceededSearch,
): Promise<UserKey[]> {
  const rows = await many<{ app_id: string; user_id: string }>(
    db,
    prepared('find-exceeded')`
    with h as materialized (
      select h.app_id, h.user_id, h.held_attos, h.counted_at
      from owner_holds h
      where h.held_attos > 0 and exists (
        select
        -- Only accounts of owners have an external id that ends in a UUID: offset 0 keeps the cast from
        -- the rows of other users.
        from (select external_user_id from end_users where app_id = h.app_id and id = h.user_id offset 0) u
        join members m on m.account_id = substr(u.external_user_id, length(${ownerAccountPrefix}) + 1)::uuid
        join app_payers p on p.app_id = m.app_id and p.account_id = m.account_id
        join leases l on l.app_id = p.app_id and l.recalled_at is null and l.ends_at > ${at})
    )
    select h.app_id, h.user_id
    from h
    join balances b on b.app_id = h.app_id and b.user_id = h.user_id
    cross join lateral (
      select coalesce(sum(remaining_attos), 0) as money
      from grants
      where app_id = b.app_id and user_id = b.user_id and expired_at is null and effective_at <= ${at}
        and (expires_at is null or expires_at > ${until}) and coalesce(feature_key, ${everything}) = ${everything}) g
    where h.held_attos > g.money + greatest(b.ceiling_attos - greatest(b.overage_attos - b.collected_attos, 0), 0)
    order by h.counted_at nulls first
    limit ${limit}`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), userId: userId(row.user_id) }))
}

/** Saves the holds of locked owners. */
export async function saveHolds(db: Db, holds: readonly OwnerHolds[]): Promise<void> {
  if (holds.length === 0) return
  const owners = holds.map(({ owner }) => owner)
  await db.query(
    prepared('save-owner-holds')`
    update owner_holds h
    set held_attos = n.held, counted_at = n.counted_at
    from unnest(${appsOf(owners)}::uuid[], ${usersOf(owners)}::uuid[],
                ${plainArray(holds.map(({ held }) => held))}::numeric[],
                ${plainArray(holds.map(({ countedAt }) => countedAt && countedAt.toISOString()))}::timestamptz[])
      as n (app_id, user_id, held, counted_at)
    where h.app_id = n.app_id and h.user_id = n.user_id`,
  )
}

/**
 * Counts what is held for all apps of an owner: leases and pending authorisations, at network price
 * with each app's cut. Includes disabled and deleted apps.
 */
export async function countHeld(db: Db, owner: UserKey, at: Date): Promise<bigint> {
  const { held } = await one<{ held: string }>(db, {
    text: `
    with own as materialized (
      select m.app_id, 1 + ${highestCut('m.app_id', '$4')} / 100 as factor
      from end_users u
      join members m on m.account_id = substr(u.external_user_id, length($3) + 1)::uuid
      join app_payers p on p.app_id = m.app_id and p.account_id = m.account_id
      where u.app_id = $1 and u.id = $2
    )
    select (select coalesce(sum(ceil(ceil((l.amount_attos - l.used_attos) * 10::numeric ^ 18
                                          / greatest(l.retail_ratio, $5::numeric)) * o.factor)), 0)
            from own o
            join leases l on l.app_id = o.app_id)
           + (select coalesce(sum(ceil(coalesce(a.network_attos, a.bound_attos) * o.factor)), 0)
              from own o
              join authorisations a on a.app_id = o.app_id and a.state = 'pending') as held`,
    values: [
      owner.appId,
      owner.userId,
      ownerAccountPrefix,
      addSeconds(at, -cutSeconds),
      leastRatio,
    ],
  })
  return BigInt(held)
}
