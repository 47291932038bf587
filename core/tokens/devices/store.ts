import type { AppId } from '../../platform/ids.ts'
import { type Db, maybeOne, one, sql } from '../../lib/sql.ts'

export type DeviceState = 'pending' | 'approved' | 'denied' | 'consumed'

export interface NewDeviceCode {
  readonly hash: Buffer
  readonly userCode: string
  readonly clientId: string
  readonly scope: string
  readonly intervalSeconds: number
  /** A name of the address that asked; empty when unknown. */
  readonly address: string
  readonly at: Date
  readonly expiresAt: Date
}

/** False when another device has that user code. */
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

/** The device by its user code, which the person types in. */
export const findDevice = (db: Db, userCode: string): Promise<DeviceCodeRow | null> =>
  maybeOne<DeviceCodeRow>(
    db,
    sql`
    select code_hash, user_code, client_id, scope, status, user_id, account_id, grants, family_id, decided_at,
           interval_seconds, last_polled_at, expires_at
    from device_codes
    where user_code = ${userCode}`,
  )

/** The device by the hash of its device code. Locks the row until the transaction ends. */
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

/** pending -> approved or denied. False when the device was decided before or has expired: of two decisions the first counts. */
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

/** approved -> consumed. False when another poll was first. */
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

/** Deletes the devices of an app that is deleted. */
export async function deleteDevicesOfApp(db: Db, app: AppId): Promise<void> {
  await db.query(sql`
    delete from device_codes where client_id in (select client_id from clients where app_id = ${app})`)
}

/** Until the transaction ends, nobody else counts and adds codes of that client, or of that address. */
export async function lockPending(db: Db, { clientId, address }: PendingOwner): Promise<void> {
  for (const name of [`device codes ${clientId}`, `device codes from ${address}`])
    await db.query(sql`select pg_advisory_xact_lock(hashtextextended(${name}, 0))`)
}

interface PendingOwner {
  readonly clientId: string
  readonly address: string
}

/** How many undecided codes are stored, of the client and of the address. Exact only after `lockPending`. */
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

/** Deletes codes of the client or the address that nobody decided about and that expired before that time. */
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

/** Deletes at most `limit` devices whose codes expired before that time. Returns how many there were. */
export async function deleteExpiredDevices(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`delete from device_codes where code_hash in
    (select code_hash from device_codes where expires_at < ${before} limit ${limit})`)
  return rowCount ?? 0
}
