import { int8s, numerics, plainArray, textArray, texts, uuids } from '../../lib/copy-sql.ts'
import { decimalText } from '../../lib/decimal.ts'
import { type Db, type Statement, many, one, sql } from '../../lib/sql.ts'
import { inAppGroups, lockInApps } from '../../shared/database/app-groups.ts'
import { type AppId, type UserId, appId } from '../../shared/ids.ts'
import type { Session } from '../batch/parsed-batch.ts'
import type { Subject } from '../batch/subjects.ts'
import type { Prices } from '../batch/tariff.ts'
import type { Sums } from './hour-store.ts'

/** Writes `ticket_sessions`, always in key order, so that writers never deadlock. */

/** An addition to a row of `ticket_sessions`. */
export interface SessionSums extends Sums {
  readonly subject: Subject
  readonly session: Session
  firstMicros: number
  lastMicros: number
  late: number
  /** In order of arrival. */
  readonly sequences: bigint[]
}

/** Sequence numbers that a session already had. */
export interface RepeatedSequences {
  /** Position of the session in the statement. */
  readonly position: number
  /** A multirange in Postgres notation. */
  readonly ranges: string
}

/** A session with more than `maxRanges` ranges of sequence numbers. */
export interface OversizedSession {
  readonly app_id: string
  readonly user_id: string
  readonly session_id: string
}

interface SessionRow {
  readonly position: number | null
  readonly ranges: string | null
  readonly app_id: string | null
  readonly user_id: string | null
  readonly session_id: string | null
}

/**
 * Maximum ranges of sequence numbers per session, and how many of the newest remain when it has
 * more.
 */
export const maxRanges = 1_000
const remainingRanges = 500
// A multirange in memory: 24 bytes, then two ends of eight bytes, a flag and an offset per range.
const maxRangeBytes = 24 + maxRanges * 21

/** Returns the statement that adds sums to their sessions. They must be in primary key order. */
export function sessionsStatement(sums: readonly SessionSums[]): Statement {
  const column = <T>(value: (row: SessionSums) => T): T[] => sums.map(value)
  return sql`
    with batch as not materialized (
      select *
      from unnest(
        ${uuids(column((s) => s.subject.appId))}::uuid[], ${uuids(column((s) => s.subject.userId))}::uuid[],
        ${texts(column((s) => s.session.sessionId))}::text[], ${texts(column((s) => s.session.manifestId))}::text[],
        ${texts(column((s) => s.session.appName))}::text[], ${texts(column((s) => s.session.feature.pipeline))}::text[],
        ${texts(column((s) => s.session.feature.modelId))}::text[], ${int8s(column((s) => s.firstMicros))}::bigint[],
        ${int8s(column((s) => s.lastMicros))}::bigint[], ${int8s(column((s) => s.tickets))}::bigint[],
        ${int8s(column((s) => s.unpriced))}::bigint[], ${numerics(column((s) => s.fee))}::numeric[],
        ${numerics(column((s) => s.cost))}::numeric[], ${numerics(column((s) => s.markup))}::numeric[],
        ${numerics(column((s) => s.platformFee))}::numeric[], ${numerics(column((s) => s.platformWei))}::numeric[],
        ${numerics(column((s) => decimalText(s.billableSecs)))}::numeric[],
        ${numerics(column((s) => s.pixels))}::numeric[], ${int8s(column((s) => s.late))}::bigint[],
        ${textArray(column((s) => multirange(s.sequences)))}::int8multirange[],
        ${int8s(column((s) => s.tickets - countDistinct(s.sequences)))}::bigint[]) with ordinality
        as b (app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id, first_micros, last_micros, tickets,
              unpriced, fee, cost, markup, platform_fee, platform_wei, secs, pixels, late, seen, replayed, position)
    ), repeated as materialized (
      -- Sequence numbers that their session already has. Read before the sessions are written, because a Citus cluster
      -- runs the parts of a statement one after the other.
      select b.position::integer - 1 as position,
             (s.seen * b.seen - int8multirange(int8range(0, s.closed_below)))::text as ranges
      from batch b
      join ticket_sessions s on s.app_id = b.app_id and s.user_id = b.user_id and s.session_id = b.session_id
      where s.seen && b.seen
    ), written as (
      insert into ticket_sessions as s (
        app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id, started_at, last_at, ticket_count,
        unpriced_count, fee_wei, cost_attos, markup_attos, platform_fee_attos, platform_fee_wei, billable_secs, pixels,
        replayed_count, late_count, seen, gapped, watched, irregular)
      select app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id,
             timestamptz 'epoch' + first_micros * interval '1 microsecond',
             timestamptz 'epoch' + last_micros * interval '1 microsecond', tickets, unpriced, fee, cost, markup,
             platform_fee, platform_wei, secs, pixels, replayed, late, seen, gapped, gapped, replayed > 0 or late > 0
      from batch
      cross join lateral (select seen <> int8multirange(int8range(0, upper(seen))) as gapped) g
      order by position
      on conflict (app_id, user_id, session_id) do update
      set started_at = least(s.started_at, excluded.started_at),
          last_at = greatest(s.last_at, excluded.last_at),
          ticket_count = s.ticket_count + excluded.ticket_count,
          unpriced_count = s.unpriced_count + excluded.unpriced_count,
          fee_wei = s.fee_wei + excluded.fee_wei,
          cost_attos = s.cost_attos + excluded.cost_attos,
          markup_attos = s.markup_attos + excluded.markup_attos,
          platform_fee_attos = s.platform_fee_attos + excluded.platform_fee_attos,
          platform_fee_wei = s.platform_fee_wei + excluded.platform_fee_wei,
          billable_secs = s.billable_secs + excluded.billable_secs,
          pixels = s.pixels + excluded.pixels,
          replayed_count = s.replayed_count + excluded.replayed_count + case
            when s.seen && excluded.seen
            then (select coalesce(sum(upper(r) - lower(r)), 0)
                  from unnest(s.seen * excluded.seen - int8multirange(int8range(0, s.closed_below))) as r)
            else 0 end,
          late_count = s.late_count + excluded.late_count,
          irregular = s.irregular or excluded.irregular or s.seen && excluded.seen,
          seen = s.seen + excluded.seen,
          gapped = s.closed_below > 0 or s.seen + excluded.seen
            <> int8multirange(int8range(0, greatest(upper(s.seen), upper(excluded.seen)))),
          watched = case
            when s.seen + excluded.seen = int8multirange(int8range(0, greatest(upper(s.seen), upper(excluded.seen))))
            then s.lost_count > 0
            -- Tickets that go on where the session was leave its old holes as they are.
            else s.watched or not s.gapped or excluded.seen - s.seen
              <> int8multirange(int8range(upper(s.seen), greatest(upper(s.seen), upper(excluded.seen)))) end,
          closed_count = case
            when s.closed_count > 0 and lower(excluded.seen) < s.closed_below
            then greatest(0, s.closed_count - (
              select coalesce(sum(upper(r) - lower(r)), 0)
              from unnest(excluded.seen * int8multirange(int8range(0, s.closed_below))) as r))
            else s.closed_count end
      returning app_id, user_id, session_id, irregular, pg_column_size(seen) as bytes
    )
    select position, ranges, null::uuid as app_id, null::uuid as user_id, null::text as session_id
    from repeated
    union all
    select null, null, app_id, user_id, session_id
    from written
    where bytes > ${maxRangeBytes}`
}

/**
 * Runs a `sessionsStatement`. Returns the sequence numbers that were already seen: those are
 * tickets of a replayed state, or of another session with the same 32-bit id.
 *
 * Does not return numbers that another transaction adds at the same moment; `replayed_count`, which
 * is computed on the locked row, counts them.
 */
export async function addSessions(
  db: Db,
  statement: Statement,
): Promise<{ repeated: RepeatedSequences[]; oversized: OversizedSession[] }> {
  const rows = await many<SessionRow>(db, statement)
  return {
    repeated: rows.flatMap(({ position, ranges }) =>
      position === null || ranges === null ? [] : [{ position, ranges }],
    ),
    oversized: rows.flatMap(({ app_id, user_id, session_id }) =>
      app_id === null || user_id === null || session_id === null
        ? []
        : [{ app_id, user_id, session_id }],
    ),
  }
}

/**
 * Gives up the oldest holes of oversized sessions: they count as lost, and only their number is
 * stored. A later ticket in that part of a session still lowers the number, but it is no longer
 * known whether it repeats an earlier one. Returns how many of the holes were not counted as lost
 * before. The caller's transaction has locked the rows.
 */
export async function closeHoles(db: Db, sessions: readonly OversizedSession[]): Promise<bigint> {
  const { closed } = await one<{ closed: bigint }>(
    db,
    sql`
    with given as materialized (
      select s.app_id, s.user_id, s.session_id, cut.at, (
        select coalesce(sum(upper(r) - lower(r)), 0)
        from unnest(int8multirange(int8range(s.closed_below, cut.at)) - s.seen) as r) as closed, (
        select coalesce(sum(upper(r) - lower(r)), 0)
        from unnest(s.lost * int8multirange(int8range(0, cut.at))) as r) as known
      from unnest(
        ${plainArray(sessions.map((s) => s.app_id))}::uuid[], ${plainArray(sessions.map((s) => s.user_id))}::uuid[],
        ${textArray(sessions.map((s) => s.session_id))}::text[]) as g (app_id, user_id, session_id)
      join ticket_sessions s on s.app_id = g.app_id and s.user_id = g.user_id and s.session_id = g.session_id
      cross join lateral (
        select lower(r) as at from unnest(s.seen) as r order by lower(r) desc offset ${remainingRanges - 1} limit 1) cut
    ), written as (
      update ticket_sessions s
      set seen = s.seen + int8multirange(int8range(0, given.at)), closed_below = given.at,
          closed_count = s.closed_count + given.closed, gapped = true, watched = true, irregular = true,
          lost = s.lost - int8multirange(int8range(0, given.at)), lost_count = s.lost_count - given.known
      from given
      where s.app_id = given.app_id and s.user_id = given.user_id and s.session_id = given.session_id
    )
    select coalesce(sum(greatest(closed - known, 0)), 0)::bigint as closed
    from given`,
  )
  return closed
}

/** A late-priced ticket's addition to its session. */
export interface SessionCost extends Prices {
  readonly appId: AppId
  readonly userId: UserId
  readonly sessionId: string
}

/** Adds the cost of tickets that were stored without a price to their sessions. */
export async function priceSessions(db: Db, rows: readonly SessionCost[]): Promise<void> {
  await inAppGroups(db, rows, async (group, app) => {
    await addCosts(db, group, app)
    return []
  })
}

async function addCosts(db: Db, rows: readonly SessionCost[], app: AppId | null): Promise<void> {
  const column = <T>(value: (row: SessionCost) => T): T[] => rows.map(value)
  await db.query(sql`
    with sums as materialized (
      select app_id, user_id, session_id, count(*) as tickets, sum(cost_attos) as cost_attos,
             sum(markup_attos) as markup_attos, sum(platform_fee_attos) as platform_fee_attos,
             sum(platform_fee_wei) as platform_fee_wei
      from unnest(
        ${column((t) => t.appId)}::uuid[], ${column((t) => t.userId)}::uuid[], ${column((t) => t.sessionId)}::text[],
        ${column((t) => t.cost)}::numeric[], ${column((t) => t.retail - t.cost)}::numeric[],
        ${column((t) => t.platformFee)}::numeric[], ${column((t) => t.platformWei)}::numeric[])
        as b (app_id, user_id, session_id, cost_attos, markup_attos, platform_fee_attos, platform_fee_wei)
      group by app_id, user_id, session_id
    ), locked as materialized (
      select s.app_id, s.user_id, s.session_id, sums.tickets, sums.cost_attos, sums.markup_attos,
             sums.platform_fee_attos, sums.platform_fee_wei
      from sums
      join ticket_sessions s on s.app_id = sums.app_id and s.user_id = sums.user_id and s.session_id = sums.session_id
        and (${app}::uuid is null or s.app_id = ${app})
      order by s.app_id, s.user_id, s.session_id
      for no key update of s
    )
    update ticket_sessions s
    set unpriced_count = s.unpriced_count - l.tickets, cost_attos = s.cost_attos + l.cost_attos,
        markup_attos = s.markup_attos + l.markup_attos,
        platform_fee_attos = s.platform_fee_attos + l.platform_fee_attos,
        platform_fee_wei = s.platform_fee_wei + l.platform_fee_wei
    from locked l
    where s.app_id = l.app_id and s.user_id = l.user_id and s.session_id = l.session_id
      and (${app}::uuid is null or s.app_id = ${app})`)
}

/** The key of a session, after which a round continues. */
export interface SessionKey {
  readonly appId: string
  readonly userId: string
  readonly sessionId: string
}

export interface LossSearch {
  readonly after: SessionKey
  readonly at: Date
  /** A ticket is lost if it was missing in an examination before this instant and still is. */
  readonly before: Date
  readonly limit: number
}

/**
 * Examines the next sessions with due holes, in key order, and records their losses. Skips locked
 * rows: the next round examines those. Returns the number of newly lost tickets, and the key to
 * continue after (null at the end).
 */
export async function findLosses(
  db: Db,
  search: LossSearch,
): Promise<{ lost: bigint; last: SessionKey | null }> {
  const { limit } = search
  const rows = await lockInApps(db, {
    app: null,
    limit,
    findApps: () => listWatchedApps(db, search),
    lock: (app, most) => examineSessions(db, { ...search, limit: most }, app),
  })
  const last = rows.at(-1)
  return {
    lost: rows.reduce((sum, row) => sum + row.lost, 0n),
    last:
      last && rows.length === limit
        ? { appId: last.app_id, userId: last.user_id, sessionId: last.session_id }
        : null,
  }
}

/** Returns apps with due sessions after `after` in id order. */
async function listWatchedApps(db: Db, { after, before }: LossSearch): Promise<AppId[]> {
  const rows = await many<{ app_id: string }>(
    db,
    sql`
    select distinct app_id
    from ticket_sessions
    where watched and app_id >= ${after.appId}
      and (suspected_at is null or suspected_at <= ${before} or lost && seen)
    order by app_id`,
  )
  return rows.map((row) => appId(row.app_id))
}

interface ExaminedRow {
  app_id: string
  user_id: string
  session_id: string
  lost: bigint
}

const examineSessions = (
  db: Db,
  { after, at, before, limit }: LossSearch,
  app: AppId | null,
): Promise<ExaminedRow[]> =>
  many<ExaminedRow>(
    db,
    sql`
    with locked as materialized (
      select app_id, user_id, session_id, seen, lost, lost_count, suspected, closed_below,
             (suspected_at is null or suspected_at <= ${before}) as due
      from ticket_sessions
      where watched
        and (app_id, user_id, session_id) > (${after.appId}::uuid, ${after.userId}::uuid, ${after.sessionId})
        and (suspected_at is null or suspected_at <= ${before} or lost && seen)
        and (${app}::uuid is null or app_id = ${app})
      order by app_id, user_id, session_id
      limit ${limit}
      for no key update skip locked
    ), holes as materialized (
      select l.*, int8multirange(int8range(least(closed_below, upper(seen)), upper(seen))) - seen as missing
      from locked l
    ), judged as materialized (
      select h.*, missing * case when due then lost + suspected else lost end as now_lost
      from holes h
    ), counted as materialized (
      select f.*, (select coalesce(sum(upper(r) - lower(r)), 0) from unnest(now_lost) as r)::bigint as now_lost_count
      from judged f
    ), written as (
      update ticket_sessions s
      set lost = c.now_lost, lost_count = c.now_lost_count, watched = c.now_lost <> c.missing,
          suspected = case when c.due then c.missing else s.suspected end,
          suspected_at = case when c.due then ${at}::timestamptz else s.suspected_at end,
          irregular = s.irregular or c.now_lost_count > 0
      from counted c
      where s.app_id = c.app_id and s.user_id = c.user_id and s.session_id = c.session_id
        and (${app}::uuid is null or s.app_id = ${app})
    )
    select app_id, user_id, session_id, greatest(now_lost_count - lost_count, 0) as lost
    from counted
    order by app_id, user_id, session_id`,
  )

/**
 * Recomputes a user's sessions from their tickets and removes sessions without tickets; a missing
 * one takes its description from its first ticket. Locks before it computes, like `rebuildHours`.
 */
export async function rebuildSessions(
  db: Db,
  { appId, userId }: { appId: AppId; userId: string },
  sessions: readonly string[],
): Promise<void> {
  await db.query(sql`
    insert into ticket_sessions (app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id, started_at, last_at,
                                 ticket_count, unpriced_count, fee_wei, cost_attos, billable_secs, pixels, replayed_count,
                                 late_count, seen, gapped)
    select distinct on (session_id) app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id, signed_at,
           signed_at, 1, 0, 0, 0, 0, 0, 0, 0, '{}', false
    from tickets
    where app_id = ${appId} and user_id = ${userId} and session_id = any(${sessions}::text[])
    order by session_id, received_at, signed_at, event_id
    on conflict do nothing`)
  await db.query(sql`
    select 1
    from ticket_sessions
    where app_id = ${appId} and user_id = ${userId} and session_id = any(${sessions}::text[])
    order by session_id
    for update`)
  await db.query(sql`
    update ticket_sessions s
    set started_at = r.started_at, last_at = r.last_at, ticket_count = r.ticket_count, unpriced_count = r.unpriced_count,
        fee_wei = r.fee_wei, cost_attos = r.cost_attos, markup_attos = r.markup_attos,
        platform_fee_attos = r.platform_fee_attos, platform_fee_wei = r.platform_fee_wei,
        billable_secs = r.billable_secs, pixels = r.pixels,
        late_count = r.late_count,
        irregular = s.irregular or r.replayed_count > 0 or r.late_count > 0, watched = s.watched or r.gapped,
        -- A session that gave up its oldest holes knows only their number, and no ticket tells it.
        replayed_count = case when s.closed_below > 0 then s.replayed_count else r.replayed_count end,
        seen = case when s.closed_below > 0 then s.seen else r.seen end,
        gapped = case when s.closed_below > 0 then s.gapped else r.gapped end
    from (
      select session_id, min(signed_at) as started_at, max(signed_at) as last_at, count(*) as ticket_count,
             count(*) filter (where cost_attos is null) as unpriced_count, sum(fee_wei) as fee_wei,
             coalesce(sum(cost_attos), 0) as cost_attos, coalesce(sum(retail_attos - cost_attos), 0) as markup_attos,
             coalesce(sum(platform_fee_attos), 0) as platform_fee_attos,
             coalesce(sum(platform_fee_wei), 0) as platform_fee_wei,
             sum(billable_secs) as billable_secs, sum(pixels) as pixels,
             count(*) filter (where replayed) as replayed_count,
             count(*) filter (where signed_at - coalesce(clock_ms, 0) * interval '1 millisecond'
                                        < received_at - interval '15 minutes') as late_count,
             range_agg(int8range(sequence_number, sequence_number + 1)) as seen,
             range_agg(int8range(sequence_number, sequence_number + 1))
               <> int8multirange(int8range(0, max(sequence_number) + 1)) as gapped
      from tickets
      where app_id = ${appId} and user_id = ${userId} and session_id = any(${sessions}::text[])
      group by session_id) r
    where s.app_id = ${appId} and s.user_id = ${userId} and s.session_id = r.session_id`)
  await db.query(sql`
    delete from ticket_sessions s
    where s.app_id = ${appId} and s.user_id = ${userId} and s.session_id = any(${sessions}::text[])
      and not exists (
        select 1
        from tickets t
        where t.app_id = s.app_id and t.user_id = s.user_id and t.session_id = s.session_id)`)
}

/**
 * Counts distinct numbers. Skips the set in the usual case: a batch with many users has one ticket
 * for most sessions.
 */
export const countDistinct = (numbers: readonly bigint[]): number =>
  numbers.length < 2 ? numbers.length : new Set(numbers).size

/** Formats numbers as a Postgres multirange: `{[0,3),[5,6)}`. They may repeat, in any order. */
export function multirange(numbers: readonly bigint[]): string {
  const sorted = numbers.toSorted((a, b) => (a < b ? -1 : a > b ? 1 : 0))
  const ranges: string[] = []
  for (let i = 0; i < sorted.length;) {
    const start = sorted[i] ?? 0n
    let end = start + 1n
    for (i += 1; i < sorted.length && (sorted[i] ?? 0n) <= end; i++) {
      if (sorted[i] === end) end += 1n
    }
    ranges.push(`[${start},${end})`)
  }
  return `{${ranges.join(',')}}`
}

/**
 * Parses a multirange printed by Postgres. Each range is its first number and the one after its
 * last.
 */
export const toRanges = (text: string): [bigint, bigint][] =>
  [...text.matchAll(/\[(\d+),(\d+)\)/g)].map(([, from = '', to = '']) => [BigInt(from), BigInt(to)])
