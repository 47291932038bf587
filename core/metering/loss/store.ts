import { type AppId, appId } from '../../shared/ids.ts'
import { type UsdMicros, type Wei, microsUp, usdAttos, usdMicros, wei } from '../../lib/money.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'

/** Reads lost, forked and late tickets for reports. */

/** Sessions of one app or all apps that began in `[start, end)`; an open bound is null. */
export interface LossSelection {
  readonly appId: AppId | null
  readonly start: Date | null
  readonly end: Date | null
}

/** Numbers of sessions with losses and of tickets, and the estimated cost of the lost tickets. */
export interface LossSums {
  readonly sessions: bigint
  readonly lost: bigint
  readonly estimate: UsdMicros
  readonly forked: bigint
  readonly late: bigint
}

interface SumsRow {
  sessions: bigint
  lost: string
  estimate: string
  forked: string
  late: string
}

const toSums = ({ sessions, lost, estimate, forked, late }: SumsRow): LossSums => ({
  sessions,
  lost: BigInt(lost),
  estimate: usdMicros(BigInt(estimate)),
  forked: BigInt(forked),
  late: BigInt(late),
})

export async function sumLoss(db: Db, { appId, start, end }: LossSelection): Promise<LossSums> {
  return toSums(
    await one<SumsRow>(
      db,
      sql`
    select count(*) filter (where lost_tickets > 0) as sessions, coalesce(sum(lost_tickets), 0) as lost,
           coalesce(sum(estimate_usd_micros), 0) as estimate, coalesce(sum(replayed_count), 0) as forked,
           coalesce(sum(late_count), 0) as late
    from session_losses
    where (${appId}::uuid is null or app_id = ${appId})
      and started_at >= coalesce(${start}::timestamptz, '-infinity')
      and started_at < coalesce(${end}::timestamptz, 'infinity')`,
    ),
  )
}

/** `clientId` is null for an app that no longer exists. */
export interface AppLoss extends LossSums {
  readonly clientId: string | null
}

/** Returns the sums by app, the most expensive first. */
export async function sumLossByApp(
  db: Db,
  { appId, start, end }: LossSelection,
  limit: number,
): Promise<AppLoss[]> {
  const rows = await many<SumsRow & { client_id: string | null }>(
    db,
    sql`
    with sums as (
      select app_id, count(*) filter (where lost_tickets > 0) as sessions, sum(lost_tickets) as lost,
             coalesce(sum(estimate_usd_micros), 0) as estimate, sum(replayed_count) as forked, sum(late_count) as late
      from session_losses
      where (${appId}::uuid is null or app_id = ${appId})
        and started_at >= coalesce(${start}::timestamptz, '-infinity')
        and started_at < coalesce(${end}::timestamptz, 'infinity')
      group by app_id
      order by estimate desc, lost desc, app_id
      limit ${limit}
    )
    select c.client_id, s.sessions, s.lost, s.estimate, s.forked, s.late
    from sums s
    left join clients c on c.app_id = s.app_id and c.kind = 'public'
    order by s.estimate desc, s.lost desc, s.app_id`,
  )
  return rows.map((row) => ({ ...toSums(row), clientId: row.client_id }))
}

/**
 * The position after which a list continues; the instant in microseconds, the precision of its key.
 */
export interface LossPosition {
  readonly startedMicros: bigint
  readonly userId: string
  readonly sessionId: string
}

export interface SessionLoss extends LossPosition {
  readonly externalUserId: string | null
  readonly manifestId: string
  readonly startedAt: Date
  readonly lastAt: Date
  readonly tickets: bigint
  readonly forked: bigint
  readonly late: bigint
  readonly lost: bigint
  /** Null if no ticket of the session has a price yet. */
  readonly estimate: UsdMicros | null
  /** A multirange as printed by Postgres. */
  readonly missing: string
}

interface SessionRow {
  user_id: string
  session_id: string
  external_user_id: string | null
  manifest_id: string
  started_at: Date
  last_at: Date
  started_micros: bigint
  ticket_count: bigint
  replayed_count: bigint
  late_count: bigint
  lost_tickets: bigint
  estimate_usd_micros: string | null
  missing: string
}

export interface LossPage {
  readonly after: LossPosition | null
  readonly limit: number
  readonly ranges: number
}

/**
 * Lists sessions with lost or forked tickets, the newest first, each with its first missing ranges.
 */
export async function listLossySessions(
  db: Db,
  { appId, start, end }: LossSelection,
  { after, limit, ranges }: LossPage,
): Promise<SessionLoss[]> {
  const rows = await many<SessionRow>(
    db,
    sql`
    select s.user_id, s.session_id, u.external_user_id, s.manifest_id, s.started_at, s.last_at,
           (extract(epoch from s.started_at) * 1000000)::bigint as started_micros, s.ticket_count, s.replayed_count,
           s.late_count, s.lost_tickets, s.estimate_usd_micros,
           (select coalesce(range_agg(r), '{}')
            from (select r from unnest(s.lost) as r order by r limit ${ranges}) listed)::text as missing
    from session_losses s
    left join end_users u on u.app_id = s.app_id and u.id = s.user_id
    where s.app_id = ${appId} and (s.lost_tickets > 0 or s.replayed_count > 0)
      and s.started_at >= coalesce(${start}::timestamptz, '-infinity')
      and s.started_at < coalesce(${end}::timestamptz, 'infinity')
      and (s.started_at, s.user_id, s.session_id) < (
        coalesce(timestamptz 'epoch' + ${after?.startedMicros ?? null}::bigint * interval '1 microsecond', 'infinity'),
        coalesce(${after?.userId ?? null}::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), coalesce(${after?.sessionId ?? null}, ''))
    order by s.started_at desc, s.user_id desc, s.session_id desc
    limit ${limit}`,
  )
  return rows.map((row) => ({
    userId: row.user_id,
    sessionId: row.session_id,
    startedMicros: row.started_micros,
    externalUserId: row.external_user_id,
    manifestId: row.manifest_id,
    startedAt: row.started_at,
    lastAt: row.last_at,
    tickets: row.ticket_count,
    forked: row.replayed_count,
    late: row.late_count,
    lost: row.lost_tickets,
    estimate: row.estimate_usd_micros === null ? null : usdMicros(BigInt(row.estimate_usd_micros)),
    missing: row.missing,
  }))
}

/** Outcomes of allowed calls: counts, and amounts rounded up. */
export type CallSums = Readonly<Record<CallOutcome, CallSum>>

const callOutcomes = ['authorised', 'ticketed', 'lost', 'charged', 'released', 'late'] as const
type CallOutcome = (typeof callOutcomes)[number]

export interface CallSum {
  readonly count: bigint
  readonly amount: UsdMicros
}

type CallsRow = Record<`${CallOutcome}_count` | `${CallOutcome}_attos`, string>

const toCallSums = (row: CallsRow): CallSums => {
  const sum = (outcome: CallOutcome): CallSum => ({
    count: BigInt(row[`${outcome}_count`]),
    amount: microsUp(usdAttos(BigInt(row[`${outcome}_attos`]))),
  })
  return {
    authorised: sum('authorised'),
    ticketed: sum('ticketed'),
    lost: sum('lost'),
    charged: sum('charged'),
    released: sum('released'),
    late: sum('late'),
  }
}

/** Sums the sessions that had their first call in the period, by app and in total. */
export async function sumCalls(
  db: Db,
  { appId, start, end }: LossSelection,
): Promise<{ readonly all: CallSums; readonly byClient: ReadonlyMap<string | null, CallSums> }> {
  const rows = await many<CallsRow & { client_id: string | null; is_total: boolean }>(
    db,
    sql`
    select c.client_id, grouping(s.app_id) = 1 as is_total,
           coalesce(sum(s.authorised_count), 0) as authorised_count, coalesce(sum(s.authorised_attos), 0) as authorised_attos,
           coalesce(sum(s.ticketed_count), 0) as ticketed_count, coalesce(sum(s.ticketed_attos), 0) as ticketed_attos,
           coalesce(sum(s.lost_count), 0) as lost_count, coalesce(sum(s.lost_attos), 0) as lost_attos,
           coalesce(sum(s.charged_count), 0) as charged_count, coalesce(sum(s.charged_attos), 0) as charged_attos,
           coalesce(sum(s.released_count), 0) as released_count, coalesce(sum(s.released_attos), 0) as released_attos,
           coalesce(sum(s.late_count), 0) as late_count, coalesce(sum(s.late_attos), 0) as late_attos
    from authorised_sessions s
    left join clients c on c.app_id = s.app_id and c.kind = 'public'
    where (${appId}::uuid is null or s.app_id = ${appId})
      and s.started_at >= coalesce(${start}::timestamptz, '-infinity')
      and s.started_at < coalesce(${end}::timestamptz, 'infinity')
    group by grouping sets ((), (s.app_id, c.client_id))`,
  )
  const total = rows.find((row) => row.is_total)
  if (!total) throw new Error('a query of sums returned no row')
  const ofApps = rows.filter((row) => !row.is_total)
  return {
    all: toCallSums(total),
    byClient: new Map(ofApps.map((row) => [row.client_id, toCallSums(row)])),
  }
}

export interface SessionCalls {
  readonly externalUserId: string | null
  readonly sessionId: string
  readonly type: string
  readonly startedAt: Date
  readonly lastAt: Date
  readonly calls: CallSums
}

/** Lists sessions of an app with lost, charged, released or late calls, the newest first. */
export async function listLossyCalls(
  db: Db,
  { appId, start, end }: LossSelection,
  limit: number,
): Promise<SessionCalls[]> {
  const rows = await many<
    CallsRow & {
      external_user_id: string | null
      session_id: string
      session_type: string
      started_at: Date
      last_at: Date
    }
  >(
    db,
    sql`
    select u.external_user_id, s.session_id, s.session_type, s.started_at, s.last_at, s.authorised_count, s.authorised_attos,
           s.ticketed_count, s.ticketed_attos, s.lost_count, s.lost_attos, s.charged_count, s.charged_attos,
           s.released_count, s.released_attos, s.late_count, s.late_attos
    from authorised_sessions s
    left join end_users u on u.app_id = s.app_id and u.id = s.user_id
    where s.app_id = ${appId} and s.lost_count + s.charged_count + s.released_count + s.late_count > 0
      and s.started_at >= coalesce(${start}::timestamptz, '-infinity')
      and s.started_at < coalesce(${end}::timestamptz, 'infinity')
    order by s.started_at desc, s.user_id, s.session_id
    limit ${limit}`,
  )
  return rows.map((row) => ({
    externalUserId: row.external_user_id,
    sessionId: row.session_id,
    type: row.session_type,
    startedAt: row.started_at,
    lastAt: row.last_at,
    calls: toCallSums(row),
  }))
}

/** Finds the app of a public client id. */
export async function findApp(db: Db, clientId: string): Promise<AppId | null> {
  const row = await maybeOne<{ app_id: string }>(
    db,
    sql`
    select app_id
    from clients
    where client_id = ${clientId} and kind = 'public'`,
  )
  return row && appId(row.app_id)
}

// The exact number does not matter beyond this.
const countBound = 1_000_000

export interface Unattributed {
  readonly events: bigint
  readonly fee: Wei
}

/** Sums quarantined fees without a known user, over at most a million events. */
export async function sumUnattributed(db: Db): Promise<Unattributed> {
  const row = await one<{ events: bigint; fee: string }>(
    db,
    sql`
    select count(*) as events, coalesce(sum(fee_wei), 0) as fee
    from (
      select fee_wei
      from quarantine
      where status = 'open' and reason in ('unattributed', 'unknown_client', 'invalid_subject')
      limit ${countBound}) unattributed`,
  )
  return { events: row.events, fee: wei(BigInt(row.fee)) }
}
