import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import { type AccountId, type AppId, accountId, appId } from '../../shared/ids.ts'
import type { AccountState, PaymentProcessor, Plane } from './port.ts'

/** Writes processor_accounts and connect_states. */

type ProcessorKind = PaymentProcessor['kind']

/** An app's account at the processor. */
export interface AppAccount extends AccountState {
  readonly appId: AppId
  readonly id: string
  readonly plane: Plane
  /** The processor's id; null until the account was created. */
  readonly account: string | null
  readonly connectedAt: Date | null
  readonly isEnded: boolean
}

interface AccountRow {
  app_id: string
  id: string
  plane: Plane
  account: string | null
  charges_enabled: boolean
  payouts_enabled: boolean
  details_submitted: boolean
  connected_at: Date | null
  is_ended: boolean
}

const columns = `app_id, id, plane, account, charges_enabled, payouts_enabled, details_submitted,
  connected_at, ended_at is not null as is_ended`

const toAppAccount = (row: AccountRow): AppAccount => ({
  appId: appId(row.app_id),
  id: row.id,
  plane: row.plane,
  account: row.account,
  chargesEnabled: row.charges_enabled,
  payoutsEnabled: row.payouts_enabled,
  detailsSubmitted: row.details_submitted,
  connectedAt: row.connected_at,
  isEnded: row.is_ended,
})

/** The plane of an app: test for test apps, live for all others. */
export async function findPlane(db: Db, app: AppId): Promise<Plane> {
  const { is_test } = await one<{ is_test: boolean }>(
    db,
    sql`select is_test from apps where id = ${app}`,
  )
  return is_test ? 'test' : 'live'
}

/** Returns the app's account that has not ended, in the app's own plane. */
export async function findCurrent(
  db: Db,
  app: AppId,
  processor: ProcessorKind,
): Promise<AppAccount | null> {
  const row = await maybeOne<AccountRow>(db, {
    text: `
    select ${columns}
    from processor_accounts
    where app_id = $1 and processor = $2 and ended_at is null
      and plane = (select case when is_test then 'test' else 'live' end from apps where id = $1)`,
    values: [app, processor],
  })
  return row && toAppAccount(row)
}

export async function findById(db: Db, app: AppId, id: string): Promise<AppAccount | null> {
  const row = await maybeOne<AccountRow>(db, {
    text: `select ${columns} from processor_accounts where app_id = $1 and id = $2`,
    values: [app, id],
  })
  return row && toAppAccount(row)
}

/** Returns the app that has this account of the processor, unless the connection ended. */
export async function findByAccount(
  db: Db,
  { plane, account, processor }: { plane: Plane; account: string; processor: ProcessorKind },
): Promise<AppAccount | null> {
  const row = await maybeOne<AccountRow>(db, {
    text: `
    select ${columns}
    from processor_accounts
    where account = $1 and plane = $2 and processor = $3 and ended_at is null`,
    values: [account, plane, processor],
  })
  return row && toAppAccount(row)
}

/** Inserts the row of a new account. Does nothing if the app has one that has not ended. */
export async function insertAccount(
  db: Db,
  app: AppId,
  {
    id,
    processor,
    plane,
    at,
  }: { readonly id: string; processor: ProcessorKind; readonly plane: Plane; readonly at: Date },
): Promise<void> {
  await db.query(sql`
    insert into processor_accounts (app_id, id, processor, plane, created_at)
    values (${app}, ${id}, ${processor}, ${plane}, ${at})
    on conflict (app_id, processor, plane) where ended_at is null do nothing`)
}

/** Stores the processor's id. Returns false if the connection ended meanwhile. */
export async function saveAccountId(
  db: Db,
  { appId, id }: Pick<AppAccount, 'appId' | 'id'>,
  account: string,
): Promise<boolean> {
  const row = await maybeOne<{ is_ended: boolean }>(
    db,
    sql`
    update processor_accounts
    set account = coalesce(account, ${account})
    where app_id = ${appId} and id = ${id}
    returning ended_at is not null as is_ended`,
  )
  return row !== null && !row.is_ended
}

/**
 * Stores the flags that were read at `at`, unless newer ones are stored or the connection ended.
 * Returns the account as stored, null if nothing was stored.
 */
export async function saveState(
  db: Db,
  { appId, id }: Pick<AppAccount, 'appId' | 'id'>,
  { state, at }: { readonly state: AccountState; readonly at: Date },
): Promise<AppAccount | null> {
  const { chargesEnabled, payoutsEnabled, detailsSubmitted } = state
  const row = await maybeOne<AccountRow>(db, {
    text: `
    update processor_accounts
    set charges_enabled = $3, payouts_enabled = $4, details_submitted = $5, read_at = $6,
        connected_at = coalesce(connected_at, case when $3 and $5 then $6::timestamptz end)
    where app_id = $1 and id = $2 and ended_at is null and (read_at is null or read_at <= $6)
    returning ${columns}`,
    values: [appId, id, chargesEnabled, payoutsEnabled, detailsSubmitted, at],
  })
  return row && toAppAccount(row)
}

/** Counts a failed reading as one, so that the others take their turns. */
export async function postponeReading(
  db: Db,
  { appId, id }: Pick<AppAccount, 'appId' | 'id'>,
  at: Date,
): Promise<void> {
  await db.query(sql`
    update processor_accounts set read_at = ${at} where app_id = ${appId} and id = ${id}`)
}

/** Ends a connection. Returns false if it had ended. */
export async function endAccount(
  db: Db,
  { appId, id }: Pick<AppAccount, 'appId' | 'id'>,
  at: Date,
): Promise<boolean> {
  const row = await maybeOne(
    db,
    sql`
    update processor_accounts
    set ended_at = ${at}, charges_enabled = false, payouts_enabled = false
    where app_id = ${appId} and id = ${id} and ended_at is null
    returning 1`,
  )
  return row !== null
}

/** Ends all connections of an app. Returns their number. */
export async function endAccounts(db: Db, app: AppId, at: Date): Promise<number> {
  const { rowCount } = await db.query(sql`
    update processor_accounts
    set ended_at = ${at}, charges_enabled = false, payouts_enabled = false
    where app_id = ${app} and ended_at is null`)
  return rowCount ?? 0
}

/** Returns accounts whose flags were read before an instant, the oldest first. */
export async function listToRead(
  db: Db,
  processor: ProcessorKind,
  { pendingBefore, before, limit }: { pendingBefore: Date; before: Date; limit: number },
): Promise<AppAccount[]> {
  const rows = await many<AccountRow>(db, {
    text: `
    select ${columns}
    from processor_accounts
    where ended_at is null and account is not null and processor = $1
      and (read_at is null or read_at < case when connected_at is null then $2::timestamptz else $3 end)
    order by read_at nulls first
    limit $4`,
    values: [processor, pendingBefore, before, limit],
  })
  return rows.map(toAppAccount)
}

/** The app's first owner, for connections that operators start. */
export async function findFirstOwner(
  db: Db,
  app: AppId,
): Promise<{ readonly accountId: AccountId; readonly email: string } | null> {
  const row = await maybeOne<{ id: string; email: string }>(
    db,
    sql`
    select a.id, a.email
    from app_owners o
    join accounts a on a.id = o.account_id
    where o.app_id = ${app}`,
  )
  return row && { accountId: accountId(row.id), email: row.email }
}

/** A connection that was started and waits for the person's return. */
export interface ConnectState {
  readonly appId: AppId
  readonly accountId: AccountId
  readonly processorAccountId: string
}

/** Inserts a state, and deletes the person's oldest ones beyond `max`. */
export async function insertState(
  db: Db,
  { appId, accountId, processorAccountId }: ConnectState,
  {
    hash,
    at,
    expiresAt,
    max,
  }: { readonly hash: Buffer; readonly at: Date; readonly expiresAt: Date; readonly max: number },
): Promise<void> {
  await db.query(sql`
    delete from connect_states
    where hash in (
      select hash from connect_states
      where app_id = ${appId} and account_id = ${accountId}
      order by created_at desc
      offset ${max - 1})`)
  await db.query(sql`
    insert into connect_states (hash, app_id, account_id, processor_account_id, created_at, expires_at)
    values (${hash}, ${appId}, ${accountId}, ${processorAccountId}, ${at}, ${expiresAt})`)
}

/** Returns an unused state of this person and app that has not expired, and locks it. */
export async function lockState(
  db: Db,
  { appId, accountId }: Pick<ConnectState, 'appId' | 'accountId'>,
  { hashes, at }: { readonly hashes: readonly Buffer[]; readonly at: Date },
): Promise<{ readonly hash: Buffer; readonly processorAccountId: string } | null> {
  return maybeOne(
    db,
    sql`
    select hash, processor_account_id as "processorAccountId"
    from connect_states
    where hash = any(${hashes}::bytea[]) and app_id = ${appId} and account_id = ${accountId}
      and used_at is null and expires_at > ${at}
    for no key update`,
  )
}

export async function useState(db: Db, hash: Buffer, at: Date): Promise<void> {
  await db.query(sql`update connect_states set used_at = ${at} where hash = ${hash}`)
}

/** Deletes at most `limit` states that expired before an instant. */
export async function deleteStates(db: Db, before: Date, limit: number): Promise<void> {
  await db.query(sql`
    delete from connect_states
    where hash in (select hash from connect_states where expires_at < ${before} limit ${limit})`)
}
