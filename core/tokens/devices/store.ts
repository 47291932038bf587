import type { AppId } from '../../shared/ids.ts'
import { type Db, maybeOne, one, sql } from '../../lib/sql.ts'

export type DeviceState = 'pending' | 'approved' | 'denied' | 'consumed'

export interface NewDeviceCode {
  readonly hash: Buffer
  readonly userCode: string
  readonly clientId: string
  readonly scope: string
  readonly intervalSeconds: number
  /** Name of the requester's address; empty when unknown. */
  readonly address: string
  readonly at: Date
  readonly expiresAt: Date
}

/** Returns false when another device has the user code. */
export async function insertDeviceCode(db: Db, code: NewDeviceCode): Promise<boolean> {
  const row = await maybeOne(
    db,
    sql`
    insert into device_codes (code_hash, user_code, client_id, scope, status, interval_seconds, address, created_at,
                              expires_at)
    values (${code.hash}, ${code.userCode}, ${code.clientId}, ${code.scope}, 'pending', ${code.intervalSeconds},
            ${code.address}, ${code.at}, ${code.expiresAt})
    on conflict (user_code) do nothing
    returning user_code`,
  )
  return row !== null
}

export interface DeviceCodeRow {
  code_hash: Buffer
  user_code: string
  client_id: string
  scope: string
  status: DeviceState
  user_id: string | null
  account_id: string | null
  grants: string[]
  family_id: string | null
  decided_at: Date | null
  interval_seconds: number
  last_polled_at: Date | null
  expires_at: Date
}

/** Finds a device by its user code, which the person types in. */
export const findDevice = (db: Db, userCode: string): Promise<DeviceCodeRow | null> =>
  maybeOne<DeviceCodeRow>(
    db,
    sql`
    select code_hash, user_code, client_id, scope, status, user_id, account_id, grants, family_id, decided_at,
           interval_seconds, last_polled_at, expires_at
    from device_codes
    where user_code = ${userCode}`,
  )

/** Finds a device by the hash of its device code and locks the row until the transaction ends. */
export const lockDevice = (db: Db, hash: Buffer): Promise<DeviceCodeRow | null> =>
  maybeOne<DeviceCodeRow>(
    db,
    sql`
    select code_hash, user_code, client_id, scope, status, user_id, account_id, grants, family_id, decided_at,
           interval_seconds, last_polled_at, expires_at
    from device_codes
    where code_hash = ${hash}
    for update`,
  )

export interface DeviceDecision {
  readonly hash: Buffer
  readonly status: 'approved' | 'denied'
  readonly userId: string | null
  readonly accountId: string | null
  readonly grants: readonly string[]
  readonly at: Date
}

/**
 * pending -> approved or denied. Returns false for an expired or already decided device: the first
 * decision counts.
 */
export async function decideDevice(db: Db, decision: DeviceDecision): Promise<boolean> {
  const row = await maybeOne(
    db,
    sql`
    update device_codes
    set status = ${decision.status}, user_id = ${decision.userId}, account_id = ${decision.accountId},
        grants = ${decision.grants}, decided_at = ${decision.at}
    where code_hash = ${decision.hash} and status = 'pending' and expires_at > ${decision.at}
    returning user_code`,
  )
  return row !== null
}

export async function notePoll(
  db: Db,
  poll: { hash: Buffer; intervalSeconds: number; at: Date },
): Promise<void> {
  await db.query(sql`
    update device_codes set last_polled_at = ${poll.at}, interval_seconds = ${poll.intervalSeconds} where code_hash = ${poll.hash}`)
}

/** approved -> consumed. Returns false when another poll was first. */
export async function consumeDevice(
  db: Db,
  device: { hash: Buffer; familyId: string },
): Promise<boolean> {
  const row = await maybeOne(
    db,
    sql`
    update device_codes set status = 'consumed', family_id = ${device.familyId}
    where code_hash = ${device.hash} and status = 'approved'
    returning user_code`,
  )
  return row !== null
}

/** Deletes the devices of a deleted app. */
export async function deleteDevicesOfApp(db: Db, app: AppId): Promise<void> {
  await db.query(sql`
    delete from device_codes where client_id in (select client_id from clients where app_id = ${app})`)
}

/**
 * Locks the client and the address until the transaction ends, so that no other transaction counts
 * and adds their codes.
 */
export async function lockPending(db: Db, { clientId, address }: PendingOwner): Promise<void> {
  for (const name of [`device codes ${clientId}`, `device codes from ${address}`])
    await db.query(sql`select pg_advisory_xact_lock(hashtextextended(${name}, 0))`)
}

interface PendingOwner {
  readonly clientId: string
  readonly address: string
}

/** Counts undecided codes of the client and of the address. Exact only after `lockPending`. */
export const countPending = (
  db: Db,
  { clientId, address }: PendingOwner,
): Promise<{ of_client: number; of_address: number }> =>
  one<{ of_client: number; of_address: number }>(
    db,
    sql`
    select (select count(*)::int from device_codes where client_id = ${clientId} and status = 'pending') as of_client,
           (select count(*)::int from device_codes
            where address = ${address} and address <> '' and status = 'pending') as of_address`,
  )

/** Deletes undecided codes of the client and the address that expired before `before`. */
export async function deleteUndecided(
  db: Db,
  { clientId, address }: PendingOwner,
  before: Date,
): Promise<void> {
  await db.query(sql`
    delete from device_codes where client_id = ${clientId} and status = 'pending' and expires_at < ${before}`)
  await db.query(sql`
    delete from device_codes
    where address = ${address} and address <> '' and status = 'pending' and expires_at < ${before}`)
}

/**
 * Deletes at most `limit` devices with codes that expired before `before`. Returns their number.
 */
export async function deleteExpiredDevices(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`delete from device_codes where code_hash in
    (select code_hash from device_codes where expires_at < ${before} limit ${limit})`)
  return rowCount ?? 0
}
