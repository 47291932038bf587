import { type AppId, type UserId, appId, userId } from '../../platform/ids.ts'
import { type UsdAttos, type Wei, wei } from '../../lib/money.ts'
import { type Db, many, one, sql } from '../../lib/sql.ts'

/** Tickets that wait for their rate. */

export interface WaitingTicket {
  readonly appId: AppId
  readonly userId: UserId
  readonly eventId: string
  /** ISO 8601 UTC with microseconds: exactly what the key holds. */
  readonly signedAt: string
  readonly signedAtMicros: number
  readonly sessionId: string
  readonly pipeline: string
  readonly modelId: string
  readonly fee: Wei
}

export interface Window {
  readonly from: Date
  readonly to: Date
  readonly newestId: bigint
}

/** The span of time that observations numbered above `afterId` can price; null when there are none. */
export async function pricedSpan(
  db: Db,
  afterId: bigint,
  maxAgeSeconds: number,
): Promise<Window | null> {
  const row = await one<{ from: Date | null; to: Date | null; newest: bigint | null }>(
    db,
    sql`
    select min(observed_at) as from, max(observed_at) + make_interval(secs => ${maxAgeSeconds}) as to, max(id) as newest
    from rates
    where id > ${afterId}`,
  )
  return row.from && row.to && row.newest !== null
    ? { from: row.from, to: row.to, newestId: row.newest }
    : null
}

/** Locks waiting tickets of the span that have a rate, oldest first; what another process is pricing is skipped. */
export async function lockWaiting(
  db: Db,
  span: Window,
  options: { maxAgeSeconds: number; limit: number },
): Promise<WaitingTicket[]> {
  const rows = await many<{
    app_id: string
    user_id: string
    event_id: string
    signed_at: string
    micros: bigint
    session_id: string
    pipeline: string
    model_id: string
    fee_wei: string
  }>(
    db,
    sql`
    select t.app_id, t.user_id, t.event_id, t.session_id, t.pipeline, t.model_id, t.fee_wei,
           to_char(t.signed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as signed_at,
           (extract(epoch from t.signed_at) * 1000000)::bigint as micros
    from tickets t
    where t.cost_attos is null and t.signed_at >= ${span.from} and t.signed_at <= ${span.to}
      and exists (
        select 1
        from rates r
        where r.observed_at <= t.signed_at
          and r.observed_at >= t.signed_at - make_interval(secs => ${options.maxAgeSeconds}))
    order by t.signed_at
    limit ${options.limit}
    for update of t skip locked`,
  )
  return rows.map((row) => ({
    appId: appId(row.app_id),
    userId: userId(row.user_id),
    eventId: row.event_id,
    signedAt: row.signed_at,
    signedAtMicros: Number(row.micros),
    sessionId: row.session_id,
    pipeline: row.pipeline,
    modelId: row.model_id,
    fee: wei(BigInt(row.fee_wei)),
  }))
}

export interface PricedTicket extends WaitingTicket {
  readonly rateId: bigint
  readonly cost: UsdAttos
}

/** Fixes the cost of locked tickets and moves it into their sessions and hours. */
export async function savePrices(
  db: Db,
  rows: readonly PricedTicket[],
  chargeId: string,
): Promise<void> {
  await priceSessions(db, rows)
  const column = <T>(value: (row: PricedTicket) => T): T[] => rows.map(value)
  const updated = await db.query(sql`
    with batch as materialized (
      select *
      from unnest(
        ${column((t) => t.appId)}::uuid[], ${column((t) => t.userId)}::uuid[], ${column((t) => t.eventId)}::text[],
        ${column((t) => t.signedAt)}::timestamptz[], ${column((t) => t.pipeline)}::text[],
        ${column((t) => t.modelId)}::text[], ${column((t) => t.rateId)}::bigint[], ${column((t) => t.cost)}::numeric[])
        as b (app_id, user_id, event_id, signed_at, pipeline, model_id, rate_id, cost_attos)
    ), summed as (
      -- Written as an insert like ingest's, so that both lock the hours in the same order; the rows are all there.
      -- Ingest orders by code unit, which is the order of "C".
      insert into usage_hourly (app_id, user_id, hour, pipeline, model_id, ticket_count, unpriced_count, fee_wei,
                                cost_attos, billable_secs, pixels)
      select app_id, user_id, date_trunc('hour', signed_at, 'UTC') as hour, pipeline, model_id, 0, -count(*), 0,
             sum(cost_attos), 0, 0
      from batch
      group by app_id, user_id, date_trunc('hour', signed_at, 'UTC'), pipeline, model_id
      order by app_id, user_id, hour, pipeline collate "C", model_id collate "C"
      on conflict (app_id, user_id, hour, pipeline, model_id) do update
      set unpriced_count = usage_hourly.unpriced_count + excluded.unpriced_count,
          cost_attos = usage_hourly.cost_attos + excluded.cost_attos
    )
    update tickets t
    set rate_id = b.rate_id, cost_attos = b.cost_attos, charge_id = ${chargeId}
    from batch b
    where t.app_id = b.app_id and t.user_id = b.user_id and t.signed_at = b.signed_at and t.event_id = b.event_id`)
  if (updated.rowCount !== rows.length) throw new Error('a locked ticket is gone')
}

async function priceSessions(db: Db, rows: readonly PricedTicket[]): Promise<void> {
  const column = <T>(value: (row: PricedTicket) => T): T[] => rows.map(value)
  await db.query(sql`
    with sums as materialized (
      select app_id, user_id, session_id, count(*) as tickets, sum(cost_attos) as cost_attos
      from unnest(
        ${column((t) => t.appId)}::uuid[], ${column((t) => t.userId)}::uuid[], ${column((t) => t.sessionId)}::text[],
        ${column((t) => t.cost)}::numeric[])
        as b (app_id, user_id, session_id, cost_attos)
      group by app_id, user_id, session_id
    ), locked as materialized (
      select s.app_id, s.user_id, s.session_id, sums.tickets, sums.cost_attos
      from sums
      join ticket_sessions s on s.app_id = sums.app_id and s.user_id = sums.user_id and s.session_id = sums.session_id
      order by s.app_id, s.user_id, s.session_id
      for no key update of s
    )
    update ticket_sessions s
    set unpriced_count = s.unpriced_count - l.tickets, cost_attos = s.cost_attos + l.cost_attos
    from locked l
    where s.app_id = l.app_id and s.user_id = l.user_id and s.session_id = l.session_id`)
}

// Beyond this many the exact number says nothing more.
const countBound = 1_000_000

/** How many tickets wait for a rate. Bounded at a million. */
export async function countUnpriced(db: Db): Promise<bigint> {
  const row = await one<{ count: bigint }>(
    db,
    sql`
    select count(*) as count
    from (select 1 from tickets where cost_attos is null limit ${countBound}) waiting`,
  )
  return row.count
}

/** Tickets of a user that wait for a rate. Costs the same however many tickets the user has. */
export async function countUnpricedOf(db: Db, app: AppId, user: UserId): Promise<bigint> {
  const row = await one<{ count: bigint }>(
    db,
    sql`
    select count(*) as count
    from (
      select 1
      from tickets
      where cost_attos is null and app_id = ${app} and user_id = ${user}
      limit ${countBound}) waiting`,
  )
  return row.count
}

/** How many different events wait in quarantine for a decision. Bounded at a million. */
export async function countQuarantined(db: Db): Promise<bigint> {
  const row = await one<{ count: bigint }>(
    db,
    sql`
    select count(*) as count
    from (select 1 from quarantine where status = 'open' limit ${countBound}) kept`,
  )
  return row.count
}
