import { plainArray, textArray } from '../../../lib/copy-sql.ts'
import { usdAttos } from '../../../lib/money.ts'
import { type Db, many, prepared } from '../../../lib/sql.ts'
import { type UserId, appId, userId, type UserKey } from '../../../shared/ids.ts'
import type { Lease, LeaseChanges } from '../port.ts'

/** Writes leases. The functions are documented in `port.ts`. */

interface LeaseRow {
  app_id: string
  user_id: string
  id: string
  sidecar_id: string
  instance: string
  amount_attos: string
  used_attos: string
  created_at: Date
  ends_at: Date
  recalled_at: Date | null
  retail_ratio: string
}

const fromRow = (row: LeaseRow): Lease => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  id: row.id,
  sidecarId: row.sidecar_id,
  instance: row.instance,
  amount: usdAttos(BigInt(row.amount_attos)),
  used: usdAttos(BigInt(row.used_attos)),
  createdAt: row.created_at,
  endsAt: row.ends_at,
  recalledAt: row.recalled_at,
  retailRatio: BigInt(row.retail_ratio),
})

export async function findLeases(db: Db, users: readonly UserKey[]): Promise<Lease[]> {
  if (users.length === 0) return []
  const rows = await many<LeaseRow>(
    db,
    prepared('leases')`
    select l.app_id, l.user_id, l.id, l.sidecar_id, l.instance, l.amount_attos, l.used_attos, l.created_at, l.ends_at,
           l.recalled_at, l.retail_ratio
    from unnest(${appsOf(users)}::uuid[], ${usersOf(users)}::uuid[]) as w (app_id, user_id)
    join leases l on l.app_id = w.app_id and l.user_id = w.user_id`,
  )
  return rows.map(fromRow)
}

export async function saveLeases(db: Db, { opened, changed, closed }: LeaseChanges): Promise<void> {
  if (closed.length > 0) await deleteLeases(db, closed)
  if (opened.length > 0) await insertLeases(db, opened)
  if (changed.length > 0) await updateLeases(db, changed)
}

const appsOf = (rows: readonly UserKey[]) => plainArray(rows.map((row) => row.appId))
const usersOf = (rows: readonly UserKey[]) => plainArray(rows.map((row) => row.userId))
const iso = (instant: Date | null): string | null => instant && instant.toISOString()

async function insertLeases(db: Db, leases: readonly Lease[]): Promise<void> {
  const plain = (value: (lease: Lease) => string | bigint | null) => plainArray(leases.map(value))
  await db.query(
    prepared('insert-leases')`
    insert into leases (app_id, user_id, id, sidecar_id, instance, amount_attos, used_attos, created_at, ends_at, recalled_at,
                        retail_ratio)
    select * from unnest(
      ${appsOf(leases)}::uuid[], ${usersOf(leases)}::uuid[], ${plain((lease) => lease.id)}::uuid[],
      ${textArray(leases.map((lease) => lease.sidecarId))}::text[], ${plain((lease) => lease.instance)}::uuid[],
      ${plain((lease) => lease.amount)}::numeric[], ${plain((lease) => lease.used)}::numeric[],
      ${plain((lease) => iso(lease.createdAt))}::timestamptz[], ${plain((lease) => iso(lease.endsAt))}::timestamptz[],
      ${plain((lease) => iso(lease.recalledAt))}::timestamptz[], ${plain((lease) => lease.retailRatio)}::numeric[])`,
  )
}

async function updateLeases(db: Db, leases: readonly Lease[]): Promise<void> {
  const plain = (value: (lease: Lease) => string | bigint | null) => plainArray(leases.map(value))
  await db.query(
    prepared('update-leases')`
    update leases l
    set amount_attos = c.amount, used_attos = c.used, ends_at = c.ends_at, recalled_at = c.recalled_at,
        retail_ratio = c.retail_ratio
    from unnest(
      ${appsOf(leases)}::uuid[], ${usersOf(leases)}::uuid[], ${plain((lease) => lease.id)}::uuid[],
      ${plain((lease) => lease.amount)}::numeric[], ${plain((lease) => lease.used)}::numeric[],
      ${plain((lease) => iso(lease.endsAt))}::timestamptz[], ${plain((lease) => iso(lease.recalledAt))}::timestamptz[],
      ${plain((lease) => lease.retailRatio)}::numeric[])
      as c (app_id, user_id, id, amount, used, ends_at, recalled_at, retail_ratio)
    where l.app_id = c.app_id and l.user_id = c.user_id and l.id = c.id`,
  )
}

async function deleteLeases(db: Db, leases: readonly Lease[]): Promise<void> {
  await db.query(
    prepared('delete-leases')`
    delete from leases l
    using unnest(${appsOf(leases)}::uuid[], ${usersOf(leases)}::uuid[], ${plainArray(leases.map(({ id }) => id))}::uuid[])
      as c (app_id, user_id, id)
    where l.app_id = c.app_id and l.user_id = c.user_id and l.id = c.id`,
  )
}

export async function findRecalled(db: Db, instance: string): Promise<UserId[]> {
  const rows = await many<{ user_id: string }>(
    db,
    prepared('recalled-leases')`
    select user_id
    from leases
    where instance = ${instance} and recalled_at is not null`,
  )
  return rows.map((row) => userId(row.user_id))
}
