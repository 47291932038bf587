import { appId, userId } from '../../platform/ids.ts'
import { type EthRate, ethRate, usdAttos, wei } from '../../lib/money.ts'
import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import type { Subject } from '../types.ts'
import type { PricedTicket } from './cloud-event.ts'

/** The prices that rates of these numbers state; what is recorded never changes. */
export async function pricesOf(db: Db, ids: readonly bigint[]): Promise<Map<bigint, EthRate>> {
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

/** Tickets by their keys with all that an event tells of them; only priced ones. */
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
  }>(
    db,
    sql`
    select t.app_id, t.user_id, t.event_id, c.client_id, u.external_user_id, t.session_id, t.request_id, t.manifest_id,
           t.pipeline, t.model_id, t.fee_wei, t.billable_secs, t.pixels, t.rate_id, t.cost_attos,
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
    price: { rateId: row.rate_id, cost: usdAttos(BigInt(row.cost_attos)) },
  }))
}

export async function publicClientOf(db: Db, app: string): Promise<string> {
  const row = await maybeOne<{ client_id: string }>(
    db,
    sql`select client_id from clients where app_id = ${app} and kind = 'public'`,
  )
  if (!row) throw new Error('an app without a public client')
  return row.client_id
}

export interface KnownUser {
  readonly userId: string
  readonly externalUserId: string
  readonly clientId: string
}

export interface UserPage {
  readonly users: readonly KnownUser[]
  /** Where the next page begins; null at the end. */
  readonly after: { readonly appId: string; readonly userId: string } | null
}

/** The users of the next `limit` rows that were made from `since` on. Walks the key, so that a page costs its rows. */
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
    wanted: boolean
  }>(
    db,
    sql`
    select u.app_id, u.id, u.external_user_id, c.client_id, u.created_at >= ${since} as wanted
    from (
      select app_id, id, external_user_id, created_at
      from end_users
      where (app_id, id) > (${after?.appId ?? first}::uuid, ${after?.userId ?? first}::uuid)
      order by app_id, id
      limit ${limit}) u
    join clients c on c.app_id = u.app_id and c.kind = 'public'
    order by u.app_id, u.id`,
  )
  const last = rows.at(-1)
  return {
    users: rows
      .filter((row) => row.wanted)
      .map((row) => ({
        userId: row.id,
        externalUserId: row.external_user_id,
        clientId: row.client_id,
      })),
    after: last && rows.length === limit ? { appId: last.app_id, userId: last.id } : null,
  }
}

/** How far the mark of that name has come; the beginning of time when there is none. */
export async function readMark(db: Db, name: string): Promise<Date> {
  const row = await maybeOne<{ reached_at: Date }>(
    db,
    sql`select reached_at from backend_marks where name = ${name}`,
  )
  return row?.reached_at ?? new Date(0)
}

/** Moves a mark on, never back. */
export async function setMark(db: Db, name: string, reachedAt: Date): Promise<void> {
  await db.query(sql`
    insert into backend_marks (name, reached_at)
    values (${name}, ${reachedAt})
    on conflict (name) do update set reached_at = greatest(backend_marks.reached_at, excluded.reached_at)`)
}
