import { type AppId, type UserId, appId, userId } from '../../shared/ids.ts'
import { type EthRate, type UsdAttos, ethRate, usdAttos, wei } from '../../lib/money.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { Subject } from '../batch/subjects.ts'
import type { PricedTicket } from './cloud-event.ts'

/** Writes `backend_marks`; reads the data to send to the backend and to compare with it. */

/** Returns the prices of rates by id. A recorded rate never changes. */
export async function readPrices(db: Db, ids: readonly bigint[]): Promise<Map<bigint, EthRate>> {
  const rows = await many<{ id: bigint; usd_attos_per_eth: string }>(
    db,
    sql`
    select id, usd_attos_per_eth
    from rates
    where id = any(${ids}::bigint[])`,
  )
  return new Map(rows.map((row) => [row.id, ethRate(BigInt(row.usd_attos_per_eth))]))
}

export interface TicketKey extends Subject {
  readonly signedAt: string
  readonly eventId: string
}

/** Returns priced tickets by their keys, with all data for their events. */
export async function readTickets(db: Db, keys: readonly TicketKey[]): Promise<PricedTicket[]> {
  const rows = await many<{
    app_id: string
    user_id: string
    event_id: string
    client_id: string
    external_user_id: string
    signed_at: string
    session_id: string
    request_id: string
    manifest_id: string
    pipeline: string
    model_id: string
    fee_wei: string
    billable_secs: string
    pixels: string
    rate_id: bigint
    cost_attos: string
    retail_attos: string
    platform_fee_attos: string
    terms_id: bigint | null
  }>(
    db,
    sql`
    select t.app_id, t.user_id, t.event_id, c.client_id, u.external_user_id, t.session_id, t.request_id, t.manifest_id,
           t.pipeline, t.model_id, t.fee_wei, t.billable_secs, t.pixels, t.rate_id, t.cost_attos,
           coalesce(t.retail_attos, t.cost_attos) as retail_attos, coalesce(t.platform_fee_attos, 0) as platform_fee_attos,
           t.terms_id,
           to_char(t.signed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as signed_at
    from unnest(${keys.map((k) => k.appId)}::uuid[], ${keys.map((k) => k.userId)}::uuid[],
                ${keys.map((k) => k.signedAt)}::timestamptz[], ${keys.map((k) => k.eventId)}::text[])
      as k (app_id, user_id, signed_at, event_id)
    join tickets t on t.app_id = k.app_id and t.user_id = k.user_id and t.signed_at = k.signed_at and t.event_id = k.event_id
    join end_users u on u.app_id = t.app_id and u.id = t.user_id
    join clients c on c.app_id = t.app_id and c.kind = 'public'
    where t.cost_attos is not null`,
  )
  return rows.map((row) => ({
    ticket: {
      eventId: row.event_id,
      clientId: row.client_id,
      externalUserId: row.external_user_id,
      signedAt: row.signed_at,
      sessionId: row.session_id,
      requestId: row.request_id,
      manifestId: row.manifest_id,
      pipeline: row.pipeline,
      modelId: row.model_id,
      fee: wei(BigInt(row.fee_wei)),
      billableSecs: row.billable_secs,
      pixels: row.pixels,
    },
    subject: { appId: appId(row.app_id), userId: userId(row.user_id) },
    price: {
      rateId: row.rate_id,
      cost: usdAttos(BigInt(row.cost_attos)),
      retail: usdAttos(BigInt(row.retail_attos)),
      platformFee: usdAttos(BigInt(row.platform_fee_attos)),
      termsId: row.terms_id,
    },
  }))
}

/** Returns the public client ids of apps. */
export async function findPublicClients(
  db: Db,
  apps: readonly AppId[],
): Promise<Map<string, string>> {
  const rows = await many<{ app_id: string; client_id: string }>(
    db,
    sql`select app_id, client_id from clients where app_id = any(${apps}::uuid[]) and kind = 'public'`,
  )
  return new Map(rows.map((row) => [row.app_id, row.client_id]))
}

export interface KnownUser {
  readonly appId: string
  readonly userId: string
  readonly externalUserId: string
  readonly clientId: string
}

export interface UserPage {
  readonly users: readonly KnownUser[]
  /** Where the next page begins; null at the end. */
  readonly after: { readonly appId: string; readonly userId: string } | null
}

/**
 * Returns those of the next `limit` users that were created, or subscribed to their plan, at or
 * after `since`. Walks the primary key, so a page costs only its rows.
 */
export async function usersSince(
  db: Db,
  since: Date,
  { after, limit }: { after: UserPage['after']; limit: number },
): Promise<UserPage> {
  const first = '00000000-0000-0000-0000-000000000000'
  const rows = await many<{
    app_id: string
    id: string
    external_user_id: string
    client_id: string
    due: boolean
  }>(
    db,
    sql`
    select u.app_id, u.id, u.external_user_id, c.client_id,
           u.created_at >= ${since} or coalesce(s.created_at >= ${since}, false) as due
    from (
      select app_id, id, external_user_id, created_at
      from end_users
      where (app_id, id) > (${after?.appId ?? first}::uuid, ${after?.userId ?? first}::uuid)
      order by app_id, id
      limit ${limit}) u
    join clients c on c.app_id = u.app_id and c.kind = 'public'
    left join subscriptions s on s.app_id = u.app_id and s.user_id = u.id
    order by u.app_id, u.id`,
  )
  const last = rows.at(-1)
  return {
    users: rows
      .filter((row) => row.due)
      .map((row) => ({
        appId: row.app_id,
        userId: row.id,
        externalUserId: row.external_user_id,
        clientId: row.client_id,
      })),
    after: last && rows.length === limit ? { appId: last.app_id, userId: last.id } : null,
  }
}

/** Returns how far the backfill with that name has come; 1970 if it never ran. */
export async function readReached(db: Db, name: string): Promise<Date> {
  const row = await maybeOne<{ reached_at: Date }>(
    db,
    sql`select reached_at from backend_marks where name = ${name}`,
  )
  return row?.reached_at ?? new Date(0)
}

/** Records how far a backfill has come; never moves back. */
export async function saveReached(db: Db, name: string, reachedAt: Date): Promise<void> {
  await db.query(sql`
    insert into backend_marks (name, reached_at)
    values (${name}, ${reachedAt})
    on conflict (name) do update set reached_at = greatest(backend_marks.reached_at, excluded.reached_at)`)
}

export interface Hours {
  readonly from: Date
  readonly to: Date
}
export interface ReconciledApp {
  readonly appId: AppId
  readonly clientId: string
}

/**
 * Returns apps with usage in these hours, in order of their ids, after `after`; or only the app of
 * `clientId`.
 */
export async function appsWithUsage(
  db: Db,
  { from, to }: Hours,
  options: { clientId: string | null; after: AppId | null; limit: number },
): Promise<ReconciledApp[]> {
  const rows = await many<{ app_id: string; client_id: string }>(
    db,
    sql`
    select c.app_id, c.client_id
    from clients c
    where c.kind = 'public' and (${options.after}::uuid is null or c.app_id > ${options.after}::uuid)
      and (c.client_id = ${options.clientId}
           or (${options.clientId}::text is null
               and exists (select 1 from usage_hourly u where u.app_id = c.app_id and u.hour >= ${from} and u.hour < ${to})))
    order by c.app_id
    limit ${options.limit}`,
  )
  return rows.map((row) => ({ appId: appId(row.app_id), clientId: row.client_id }))
}

export async function isClient(db: Db, clientId: string): Promise<boolean> {
  const row = await one<{ exists: boolean }>(
    db,
    sql`
    select exists (select 1 from clients where client_id = ${clientId} and kind = 'public') as exists`,
  )
  return row.exists
}

export interface OwnSum {
  readonly userId: UserId
  readonly externalUserId: string
  readonly tickets: bigint
  readonly cost: UsdAttos
}

/**
 * Returns each user's sums of priced tickets in whole hours. Unpriced tickets are not sent, so they
 * do not count.
 */
export async function sumsByUser(db: Db, app: AppId, { from, to }: Hours): Promise<OwnSum[]> {
  const rows = await many<{
    user_id: string
    external_user_id: string
    tickets: bigint
    cost: string
  }>(
    db,
    sql`
    select u.user_id, e.external_user_id, sum(u.ticket_count - u.unpriced_count)::bigint as tickets, sum(u.cost_attos) as cost
    from usage_hourly u
    join end_users e on e.app_id = u.app_id and e.id = u.user_id
    where u.app_id = ${app} and u.hour >= ${from} and u.hour < ${to}
    group by u.user_id, e.external_user_id
    having sum(u.ticket_count - u.unpriced_count) > 0`,
  )
  return rows.map((row) => ({
    userId: userId(row.user_id),
    externalUserId: row.external_user_id,
    tickets: row.tickets,
    cost: usdAttos(BigInt(row.cost)),
  }))
}

const reconciled = 'reconciled'

/** Claims the next run for one core; returns true if no core has reconciled since `notSince`. */
export async function claimRun(db: Db, at: Date, notSince: Date): Promise<boolean> {
  const row = await maybeOne<{ name: string }>(
    db,
    sql`
    insert into backend_marks (name, reached_at)
    values (${reconciled}, ${at})
    on conflict (name) do update set reached_at = excluded.reached_at
    where backend_marks.reached_at <= ${notSince}
    returning name`,
  )
  return row !== null
}

export interface Drift {
  /** Number of user-days compared, and number beyond tolerance. */
  readonly compared: number
  readonly drifting: number
  /** Sum of the differences. */
  readonly usdMicros: number
  readonly tickets: number
  readonly at: string
}

export async function saveDrift(db: Db, drift: Drift): Promise<void> {
  await db.query(
    sql`update backend_marks set result = ${JSON.stringify(drift)} where name = ${reconciled}`,
  )
}

/** Returns the result of the last reconciliation by any core. */
export async function readDrift(db: Db): Promise<Drift | null> {
  const row = await maybeOne<{ result: Drift | null }>(
    db,
    sql`select result from backend_marks where name = ${reconciled}`,
  )
  return row?.result ?? null
}
