import { type AppId, type UserId, userId } from '../../shared/ids.ts'
import { usdAttos, wei } from '../../lib/money.ts'
import { type Db, type Statement, many, sql } from '../../lib/sql.ts'
import { after } from '../store.ts'
import type { Range, RequestItem, Selection, SessionItem } from '../types.ts'

/**
 * Lists single tickets and sessions, the newest first. Each list reads along an index and stops at
 * its limit.
 */

/** A position in a list. Instants are text with microseconds, the precision of the keys. */
export interface Place {
  readonly at: string
  readonly id: string
  readonly userId: string
}

export interface Page {
  readonly appId: AppId
  readonly userId: UserId | null
  readonly manifestId: string | null
  readonly range: Range
  /** The last row of the previous page. */
  readonly before: Place | null
  readonly limit: number
}

const microText = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`

interface TicketRow {
  signed_at: string
  event_id: string
  request_id: string
  user_id: string
  external_user_id: string | null
  app_name: string
  pipeline: string
  model_id: string
  manifest_id: string
  session_id: string
  sequence_number: bigint
  fee_wei: string
  cost_attos: string | null
  retail_attos: string | null
  platform_fee_attos: string | null
  platform_fee_wei: string | null
  terms_id: bigint | null
  usd_attos_per_eth: string | null
  billable_secs: string
  pixels: string
}

const toRequest = (row: TicketRow): RequestItem => ({
  signedAt: row.signed_at,
  eventId: row.event_id,
  requestId: row.request_id,
  userId: userId(row.user_id),
  externalUserId: row.external_user_id,
  appName: row.app_name,
  pipeline: row.pipeline,
  modelId: row.model_id,
  manifestId: row.manifest_id,
  sessionId: row.session_id,
  sequenceNumber: row.sequence_number,
  fee: wei(BigInt(row.fee_wei)),
  cost: row.cost_attos === null ? null : usdAttos(BigInt(row.cost_attos)),
  retail: row.retail_attos === null ? null : usdAttos(BigInt(row.retail_attos)),
  platformFee: row.platform_fee_attos === null ? null : usdAttos(BigInt(row.platform_fee_attos)),
  platformWei: row.platform_fee_wei === null ? null : wei(BigInt(row.platform_fee_wei)),
  termsId: row.terms_id,
  usdAttosPerEth: row.usd_attos_per_eth === null ? null : BigInt(row.usd_attos_per_eth),
  billableSecs: row.billable_secs,
  pixels: row.pixels,
})

/** Joins users' names and rates to the common table `page` of tickets. */
const withNames = (page: Statement, { appId, limit }: { appId: AppId; limit: number }): Statement =>
  after(page, {
    text: `
    select ${microText('t.signed_at')} as signed_at, t.event_id, t.request_id, t.user_id, u.external_user_id, t.app_name,
           t.pipeline, t.model_id, coalesce(nullif(t.manifest_id, '') collate "C", t.session_id) as manifest_id, t.session_id,
           t.sequence_number, t.fee_wei, t.cost_attos, coalesce(t.retail_attos, t.cost_attos) as retail_attos,
           case when t.cost_attos is not null then coalesce(t.platform_fee_attos, 0) end as platform_fee_attos,
           case when t.cost_attos is not null then coalesce(t.platform_fee_wei, 0) end as platform_fee_wei,
           t.terms_id, r.usd_attos_per_eth, t.billable_secs, t.pixels
    from page t
    left join end_users u on u.app_id = $1 and u.id = t.user_id
    left join rates r on r.id = t.rate_id
    order by t.signed_at desc, t.event_id desc
    limit $2`,
    values: [appId, limit],
  })

/**
 * Returns the tickets of a page: a user's by the primary key, a manifest's by its sessions, an
 * app's by its latest hours.
 */
export async function listRequests(db: Db, page: Page): Promise<RequestItem[]> {
  const tickets =
    page.manifestId !== null
      ? ofManifest(page)
      : page.userId !== null
        ? ofUser(page, page.userId)
        : ofApp(page)
  return (await many<TicketRow>(db, withNames(tickets, page))).map(toRequest)
}

const bounds = ({ range: { start, end }, before }: Page) => ({
  from: start?.toISOString() ?? '-infinity',
  to: end?.toISOString() ?? 'infinity',
  at: before?.at ?? 'infinity',
  id: before?.id ?? '',
})

function ofUser(page: Page, user: UserId): Statement {
  const { from, to, at, id } = bounds(page)
  return sql`
    with page as (
      select *
      from tickets
      where app_id = ${page.appId} and user_id = ${user} and signed_at >= ${from}::timestamptz
        and signed_at < ${to}::timestamptz and signed_at <= ${at}::timestamptz
        and (signed_at, event_id) < (${at}::timestamptz, ${id}::text)
      order by signed_at desc, event_id desc
      limit ${page.limit}
    )`
}

function ofManifest(page: Page): Statement {
  const { from, to, at, id } = bounds(page)
  return sql`
    with page as (
      select t.*
      from ticket_sessions s
      cross join lateral (
        select *
        from tickets
        where app_id = s.app_id and user_id = s.user_id and session_id = s.session_id
          and coalesce(nullif(manifest_id, '') collate "C", session_id) = ${page.manifestId}
          and signed_at >= s.started_at and signed_at <= s.last_at
          and signed_at >= ${from}::timestamptz and signed_at < ${to}::timestamptz and signed_at <= ${at}::timestamptz
          and (signed_at, event_id) < (${at}::timestamptz, ${id}::text)
        order by signed_at desc, event_id desc
        limit ${page.limit}) t
      where s.app_id = ${page.appId} and (${page.userId}::uuid is null or s.user_id = ${page.userId})
        and coalesce(nullif(s.manifest_id, '') collate "C", s.session_id) = ${page.manifestId}
        and s.started_at < ${to}::timestamptz and s.started_at <= ${at}::timestamptz and s.last_at >= ${from}::timestamptz
    )`
}

// Each row of usage_hourly covers at least one ticket, so `limit` rows of whole hours are enough,
// plus the hour in which the page begins.
function ofApp(page: Page): Statement {
  const { from, to, at, id } = bounds(page)
  return sql`
    with top as (
      select least(${at}::timestamptz, ${to}::timestamptz) as at
    ), hours as (
      select user_id, hour
      from usage_hourly
      where app_id = ${page.appId} and hour = (select date_trunc('hour', at, 'UTC') from top where at < 'infinity')
      union
      select user_id, hour
      from (
        select user_id, hour
        from usage_hourly
        where app_id = ${page.appId} and hour < (select case when at < 'infinity' then date_trunc('hour', at, 'UTC') else at end from top)
          and hour > ${from}::timestamptz - interval '1 hour'
        order by hour desc
        fetch first ${page.limit} rows with ties) whole
    ), page as (
      select t.*
      from hours h
      cross join lateral (
        select *
        from tickets
        where app_id = ${page.appId} and user_id = h.user_id
          and signed_at >= h.hour and signed_at < h.hour + interval '1 hour'
          and signed_at >= ${from}::timestamptz and signed_at < ${to}::timestamptz and signed_at <= ${at}::timestamptz
          and (signed_at, event_id) < (${at}::timestamptz, ${id}::text)
        order by signed_at desc, event_id desc
        limit ${page.limit}) t
    )`
}

/** Returns the tickets of one gateway request, the newest first. Requires `inRequest`. */
export async function requestEvents(
  db: Db,
  { appId, userId, range: { start, end }, requestId, pipeline, modelId }: Selection,
  limit: number,
): Promise<RequestItem[]> {
  const tickets = sql`
    with page as (
      select *
      from tickets
      where request_id = ${requestId} and app_id::text = ${appId} and (${userId}::text is null or user_id::text = ${userId})
        and (${start}::timestamptz is null or signed_at >= ${start}) and (${end}::timestamptz is null or signed_at < ${end})
        and (${pipeline}::text is null or pipeline = ${pipeline}) and (${modelId}::text is null or model_id = ${modelId})
    )`
  return (await many<TicketRow>(db, withNames(tickets, { appId, limit }))).map(toRequest)
}

interface SessionRow {
  session_id: string
  user_id: string
  external_user_id: string | null
  manifest_id: string
  app_name: string
  pipeline: string
  model_id: string
  started_at: string
  last_at: Date
  ticket_count: bigint
  unpriced_count: bigint
  fee_wei: string
  cost_attos: string
  retail_attos: string
  platform_fee_attos: string
  platform_fee_wei: string
  billable_secs: string
  pixels: string
}

const toSession = (row: SessionRow): SessionItem => ({
  startedAt: row.started_at,
  lastAt: row.last_at,
  sessionId: row.session_id,
  manifestId: row.manifest_id,
  userId: userId(row.user_id),
  externalUserId: row.external_user_id,
  appName: row.app_name,
  pipeline: row.pipeline,
  modelId: row.model_id,
  requests: row.ticket_count,
  unpriced: row.unpriced_count,
  fee: wei(BigInt(row.fee_wei)),
  cost: usdAttos(BigInt(row.cost_attos)),
  retail: usdAttos(BigInt(row.retail_attos)),
  platformFee: usdAttos(BigInt(row.platform_fee_attos)),
  platformWei: wei(BigInt(row.platform_fee_wei)),
  billableSecs: row.billable_secs,
  pixels: row.pixels,
})

/** Lists sessions that began in the range, the latest start first. */
export async function listSessions(db: Db, page: Page): Promise<SessionItem[]> {
  const { from, to, at, id } = bounds(page)
  const rows = await many<SessionRow>(
    db,
    sql`
    select s.session_id, s.user_id, u.external_user_id,
           coalesce(nullif(s.manifest_id, '') collate "C", s.session_id) as manifest_id, s.app_name, s.pipeline, s.model_id,
           to_char(s.started_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as started_at, s.last_at, s.ticket_count,
           s.unpriced_count, s.fee_wei, s.cost_attos, s.cost_attos + s.markup_attos as retail_attos, s.platform_fee_attos,
           s.platform_fee_wei, s.billable_secs, s.pixels
    from (
      select *
      from ticket_sessions
      where app_id = ${page.appId} and (${page.userId}::uuid is null or user_id = ${page.userId})
        and (${page.manifestId}::text is null or coalesce(nullif(manifest_id, '') collate "C", session_id) = ${page.manifestId})
        and started_at >= ${from}::timestamptz and started_at < ${to}::timestamptz and started_at <= ${at}::timestamptz
        and (started_at, session_id, user_id) < (${at}::timestamptz, ${id}::text, ${page.before?.userId ?? zeroUuid}::uuid)
      order by started_at desc, session_id desc, user_id desc
      limit ${page.limit}) s
    left join end_users u on u.app_id = ${page.appId} and u.id = s.user_id
    order by s.started_at desc, s.session_id desc, s.user_id desc`,
  )
  return rows.map(toSession)
}

// The lowest id: on the first page only the time decides.
const zeroUuid = '00000000-0000-0000-0000-000000000000'
