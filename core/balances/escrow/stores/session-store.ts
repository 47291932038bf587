import { plainArray, textArray } from '../../../lib/copy-sql.ts'
import { type Db, many, prepared, sql } from '../../../lib/sql.ts'
import { appColumn, numberColumn, sessionColumn, userColumn } from './key-columns.ts'
import type {
  BegunSession,
  JoinedSession,
  PriorCall,
  PriorCallQuery,
  SessionChange,
} from '../port.ts'
import { type SessionSum, sumSessions } from '../session-sums.ts'

/** Writes authorised_sessions. The functions are documented in `port.ts`. */

/** A change without calls, from a settlement, does not insert an unknown session. */
export async function addSessions(
  db: Db,
  changes: readonly SessionChange[],
): Promise<readonly BegunSession[]> {
  const sums = sumSessions(changes)
  const withCalls = sums.filter(({ start }) => start !== null)
  const withoutCalls = sums.filter(({ start }) => start === null)
  if (withoutCalls.length > 0) await updateSessions(db, withoutCalls)
  return withCalls.length > 0 ? upsertSessions(db, withCalls) : []
}

const totalsOf = (sums: readonly SessionSum[]) => {
  const count = (name: keyof SessionSum['added']) =>
    plainArray(sums.map(({ added }) => added[name].count))
  const amount = (name: keyof SessionSum['added']) =>
    plainArray(sums.map(({ added }) => added[name].amount))
  return { count, amount }
}

async function upsertSessions(db: Db, sums: readonly SessionSum[]): Promise<BegunSession[]> {
  const { count, amount } = totalsOf(sums)
  const at = plainArray(sums.map((row) => row.at.toISOString()))
  const call = (end: 'start' | 'top', value: (call: PriorCall) => bigint | number) =>
    plainArray(
      sums.map((row) => {
        const prior = row[end]
        return prior && value(prior)
      }),
    )
  const rows = await many<{ session_id: string; instance: string }>(
    db,
    prepared('add-sessions')`
    insert into authorised_sessions as s (
      app_id, user_id, session_id, session_type, started_at, last_at, start_sequence, start_seconds, start_nanos,
      top_sequence, top_seconds, top_nanos, authorised_count, authorised_attos, ticketed_count, ticketed_attos,
      lost_count, lost_attos, charged_count, charged_attos, released_count, released_attos, late_count, late_attos,
      instance, shared_at)
    select * from unnest(
      ${appColumn(sums)}::uuid[], ${userColumn(sums)}::uuid[], ${sessionColumn(sums)}::text[],
      ${textArray(sums.map((row) => row.sessionType))}::text[], ${at}::timestamptz[], ${at}::timestamptz[],
      ${call('start', (prior) => prior.sequence)}::bigint[], ${call('start', (prior) => prior.seconds)}::bigint[],
      ${call('start', (prior) => prior.nanos)}::integer[], ${call('top', (prior) => prior.sequence)}::bigint[],
      ${call('top', (prior) => prior.seconds)}::bigint[], ${call('top', (prior) => prior.nanos)}::integer[],
      ${count('authorised')}::bigint[], ${amount('authorised')}::numeric[],
      ${count('ticketed')}::bigint[], ${amount('ticketed')}::numeric[], ${count('lost')}::bigint[], ${amount('lost')}::numeric[],
      ${count('charged')}::bigint[], ${amount('charged')}::numeric[],
      ${count('released')}::bigint[], ${amount('released')}::numeric[], ${count('late')}::bigint[], ${amount('late')}::numeric[],
      ${plainArray(sums.map((row) => row.instance))}::uuid[],
      ${plainArray(sums.map((row) => (row.isShared ? row.at.toISOString() : null)))}::timestamptz[])
    on conflict (app_id, user_id, session_id) do update
    set last_at = greatest(s.last_at, excluded.last_at), started_at = least(s.started_at, excluded.started_at),
        shared_at = coalesce(s.shared_at, excluded.shared_at,
                             case when s.instance <> excluded.instance then excluded.last_at end),
        (start_sequence, start_seconds, start_nanos) = (
          select sequence, seconds, nanos
          from (values (s.start_sequence, s.start_seconds, s.start_nanos),
                       (excluded.start_sequence, excluded.start_seconds, excluded.start_nanos)) as c (sequence, seconds, nanos)
          order by sequence, seconds, nanos
          limit 1),
        (top_sequence, top_seconds, top_nanos) = (
          select sequence, seconds, nanos
          from (values (s.top_sequence, s.top_seconds, s.top_nanos),
                       (excluded.top_sequence, excluded.top_seconds, excluded.top_nanos)) as c (sequence, seconds, nanos)
          order by sequence desc, seconds, nanos
          limit 1),
        authorised_count = s.authorised_count + excluded.authorised_count,
        authorised_attos = s.authorised_attos + excluded.authorised_attos,
        ticketed_count = s.ticketed_count + excluded.ticketed_count,
        ticketed_attos = s.ticketed_attos + excluded.ticketed_attos,
        lost_count = s.lost_count + excluded.lost_count, lost_attos = s.lost_attos + excluded.lost_attos,
        charged_count = s.charged_count + excluded.charged_count,
        charged_attos = s.charged_attos + excluded.charged_attos,
        released_count = s.released_count + excluded.released_count,
        released_attos = s.released_attos + excluded.released_attos,
        late_count = s.late_count + excluded.late_count, late_attos = s.late_attos + excluded.late_attos
    returning s.session_id, s.instance`,
  )
  return rows.map(({ session_id: sessionId, instance }) => ({ sessionId, instance }))
}

async function updateSessions(db: Db, sums: readonly SessionSum[]): Promise<void> {
  const { count, amount } = totalsOf(sums)
  await db.query(sql`
    update authorised_sessions s
    set last_at = greatest(s.last_at, a.at), authorised_count = s.authorised_count + a.authorised_count,
        authorised_attos = s.authorised_attos + a.authorised_attos,
        ticketed_count = s.ticketed_count + a.ticketed_count, ticketed_attos = s.ticketed_attos + a.ticketed_attos,
        lost_count = s.lost_count + a.lost_count, lost_attos = s.lost_attos + a.lost_attos,
        charged_count = s.charged_count + a.charged_count, charged_attos = s.charged_attos + a.charged_attos,
        released_count = s.released_count + a.released_count, released_attos = s.released_attos + a.released_attos,
        late_count = s.late_count + a.late_count, late_attos = s.late_attos + a.late_attos
    from unnest(
      ${appColumn(sums)}::uuid[], ${userColumn(sums)}::uuid[], ${sessionColumn(sums)}::text[],
      ${plainArray(sums.map((row) => row.at.toISOString()))}::timestamptz[],
      ${count('authorised')}::bigint[], ${amount('authorised')}::numeric[],
      ${count('ticketed')}::bigint[], ${amount('ticketed')}::numeric[], ${count('lost')}::bigint[], ${amount('lost')}::numeric[],
      ${count('charged')}::bigint[], ${amount('charged')}::numeric[],
      ${count('released')}::bigint[], ${amount('released')}::numeric[], ${count('late')}::bigint[], ${amount('late')}::numeric[])
      as a (app_id, user_id, session_id, at, authorised_count, authorised_attos, ticketed_count, ticketed_attos,
            lost_count, lost_attos, charged_count, charged_attos, released_count, released_attos, late_count, late_attos)
    where s.app_id = a.app_id and s.user_id = a.user_id and s.session_id = a.session_id`)
}

interface JoinedRow {
  position: bigint
  shared: boolean
  shared_at: Date | null
  sequence: bigint | null
  seconds: bigint
  nanos: number
}

export async function joinSessions(
  db: Db,
  queries: readonly PriorCallQuery[],
  { instance, at }: { readonly instance: string; readonly at: Date },
): Promise<readonly (JoinedSession | null)[]> {
  if (queries.length === 0) return []
  const rows = await many<JoinedRow>(
    db,
    prepared('join-sessions')`
    with queries as materialized (
      select *
      from unnest(${appColumn(queries)}::uuid[], ${userColumn(queries)}::uuid[], ${sessionColumn(queries)}::text[],
                  ${numberColumn(queries)}::bigint[])
        with ordinality as q (app_id, user_id, session_id, sequence_number, position)
    ), joined as (
      update authorised_sessions s
      set shared_at = ${at}
      from (select distinct app_id, user_id, session_id from queries) q
      where s.app_id = q.app_id and s.user_id = q.user_id and s.session_id = q.session_id
        and s.instance <> ${instance} and s.shared_at is null
    )
    select q.position, s.session_id is null or s.shared_at is not null or s.instance <> ${instance} as shared,
           coalesce(s.shared_at, case when s.instance <> ${instance} then ${at}::timestamptz end) as shared_at,
           c.sequence, c.seconds, c.nanos
    from queries q
    left join authorised_sessions s on s.app_id = q.app_id and s.user_id = q.user_id and s.session_id = q.session_id
    -- A sidecar that was killed before its first report leaves tickets of sessions that nobody reported.
    left join ticket_sessions t
      on s.session_id is null and t.app_id = q.app_id and t.user_id = q.user_id and t.session_id = q.session_id
    left join lateral (
      select *
      from (values (s.top_sequence, s.top_seconds, s.top_nanos), (s.start_sequence, s.start_seconds, s.start_nanos),
                   (lower(t.seen), floor(extract(epoch from t.started_at))::bigint, 0))
        as known (sequence, seconds, nanos)
      where sequence < q.sequence_number
      order by sequence desc
      limit 1) c on true
    where s.session_id is not null or t.session_id is not null`,
  )
  const byPosition = new Map(rows.map((row) => [Number(row.position) - 1, row]))
  return queries.map((_, position) => {
    const row = byPosition.get(position)
    return row ? { prior: priorCallOf(row), isShared: row.shared, sharedAt: row.shared_at } : null
  })
}

const priorCallOf = ({ sequence, seconds, nanos }: JoinedRow): PriorCall | null =>
  sequence === null ? null : { sequence, seconds, nanos }

export async function findShared(db: Db, instance: string, since: Date): Promise<string[]> {
  const rows = await many<{ session_id: string }>(
    db,
    prepared('shared-sessions')`
    select session_id
    from authorised_sessions
    where instance = ${instance} and shared_at > ${since}`,
  )
  return rows.map((row) => row.session_id)
}

/**
 * Deletes up to `limit` sessions that last changed before `before` and have no stored calls.
 * Sessions billed by time stay: a user who resumes one after months is billed for those months, and
 * only its prior call gives the right bound (docs/escrow-bounds.md, "Bounds"). Returns the number
 * deleted.
 */
export async function forgetSessions(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from authorised_sessions
    where ctid = any(array(
      select s.ctid
      from authorised_sessions s
      -- By the index of started_at; one of last_at would be written by each call.
      where s.session_type not in ('live', 'lv2v') and s.started_at < ${before} and s.last_at < ${before}
        and not exists (select 1 from authorisations a
                        where a.app_id = s.app_id and a.user_id = s.user_id and a.session_id = s.session_id)
      order by s.started_at
      limit ${limit}
      for update of s skip locked))`)
  return rowCount ?? 0
}
