import { plainArray } from '../../lib/copy-sql.ts'
import { usdAttos } from '../../lib/money.ts'
import { type Db, many, maybeOne, prepared, sql } from '../../lib/sql.ts'
import { type UserId, appId, userId, type UserKey } from '../../shared/ids.ts'
import type { Limits, LimitedSubject, PriceCeiling } from './limits.ts'
import { type Tally, sessionIdleMs, windowsAt } from './tally.ts'

/** Writes limits and limit_sessions. The caller must have locked the users' balances. */

interface CeilingJson {
  readonly type: PriceCeiling['type']
  readonly app: string
  readonly maxWei: string
}

interface LimitsRow {
  day_attos_max: string | null
  session_attos_max: string | null
  minute_calls_max: number | null
  sessions_max: number | null
  price_ceilings: CeilingJson[]
}

interface TallyRow extends LimitsRow {
  app_id: string
  user_id: string
  key_id: string | null
  day_ms: number
  day_attos: string
  minute_ms: number
  minute_calls: number
}

const attosOrNull = (text: string | null) => (text === null ? null : usdAttos(BigInt(text)))

const limitsFrom = (row: LimitsRow): Limits => ({
  day: attosOrNull(row.day_attos_max),
  session: attosOrNull(row.session_attos_max),
  minuteCalls: row.minute_calls_max,
  sessions: row.sessions_max,
  ceilings: row.price_ceilings.map(({ type, app, maxWei }) => ({
    type,
    app,
    maxWei: BigInt(maxWei),
  })),
})

const subjectIdOf = ({ keyId, userId }: LimitedSubject): string => keyId ?? userId

/** Returns the limits of a user or key; null if none are set. */
export async function findLimits(db: Db, subject: LimitedSubject): Promise<Limits | null> {
  const row = await maybeOne<LimitsRow>(
    db,
    sql`
    select day_attos_max, session_attos_max, minute_calls_max, sessions_max, price_ceilings
    from limits
    where app_id = ${subject.appId} and user_id = ${subject.userId} and subject_id = ${subjectIdOf(subject)}`,
  )
  return row && limitsFrom(row)
}

/** Whether the user has this key, active or revoked. */
export async function hasKey(db: Db, { appId, userId }: UserKey, keyId: string): Promise<boolean> {
  const row = await maybeOne(
    db,
    sql`select id from api_keys where app_id = ${appId} and user_id = ${userId} and id = ${keyId}`,
  )
  return row !== null
}

/**
 * Sets limits. New limits start with the user's or key's authorisations that are neither settled
 * nor released; changed limits keep their counts.
 */
export async function saveLimits(
  db: Db,
  subject: LimitedSubject,
  { limits, at }: { limits: Limits; at: Date },
): Promise<void> {
  const { dayStart, minuteStart } = windowsAt(at)
  const ceilings: CeilingJson[] = limits.ceilings.map((ceiling) => ({
    ...ceiling,
    maxWei: ceiling.maxWei.toString(),
  }))
  const { rowCount } = await db.query(sql`
    update limits
    set day_attos_max = ${limits.day}, session_attos_max = ${limits.session}, minute_calls_max = ${limits.minuteCalls},
        sessions_max = ${limits.sessions}, price_ceilings = ${JSON.stringify(ceilings)}, updated_at = ${at}
    where app_id = ${subject.appId} and user_id = ${subject.userId} and subject_id = ${subjectIdOf(subject)}`)
  if (rowCount) return
  await db.query(sql`
    insert into limits (app_id, user_id, subject_id, day_attos_max, session_attos_max, minute_calls_max, sessions_max,
                        price_ceilings, day, day_attos, minute, minute_calls, updated_at)
    select ${subject.appId}::uuid, ${subject.userId}::uuid, ${subjectIdOf(subject)}::uuid, ${limits.day}::numeric,
           ${limits.session}::numeric, ${limits.minuteCalls}::integer, ${limits.sessions}::integer,
           ${JSON.stringify(ceilings)}::jsonb, ${utcDay(dayStart)}::date,
           coalesce(sum(bound_attos) filter (where authorised_at >= ${new Date(dayStart)}), 0),
           ${new Date(minuteStart)}::timestamptz, coalesce(sum(calls) filter (where authorised_at >= ${new Date(minuteStart)}), 0), ${at}::timestamptz
    from authorisations
    where app_id = ${subject.appId} and user_id = ${subject.userId} and state <> 'released' and sidecar_id <> ''
      and (${subject.keyId}::uuid is null or key_id = ${subject.keyId})`)
  await db.query(sql`
    insert into limit_sessions (app_id, user_id, subject_id, session_id, spent_attos, last_call_at)
    select app_id, user_id, ${subjectIdOf(subject)}::uuid, session_id, sum(bound_attos), max(authorised_at)
    from authorisations
    where app_id = ${subject.appId} and user_id = ${subject.userId} and state <> 'released' and sidecar_id <> ''
      and (${subject.keyId}::uuid is null or key_id = ${subject.keyId})
    group by app_id, user_id, session_id`)
}

/** Deletes limits and their counts. Returns false if none were set. */
export async function deleteLimits(db: Db, subject: LimitedSubject): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    delete from limits
    where app_id = ${subject.appId} and user_id = ${subject.userId} and subject_id = ${subjectIdOf(subject)}`)
  return rowCount === 1
}

/**
 * Returns the limits of these users and all of their keys, with the counts of days and minutes.
 * Does not load sessions.
 */
export async function findTallies(db: Db, users: readonly UserKey[]): Promise<Tally[]> {
  const rows = await many<TallyRow>(
    db,
    prepared('limits')`
    select l.app_id, l.user_id, l.key_id, l.day_attos_max, l.session_attos_max, l.minute_calls_max, l.sessions_max,
           l.price_ceilings, (extract(epoch from l.day) * 1000)::float8 as day_ms, l.day_attos,
           (extract(epoch from l.minute) * 1000)::float8 as minute_ms, l.minute_calls
    from unnest(${plainArray(users.map((user) => user.appId))}::uuid[], ${plainArray(users.map((user) => user.userId))}::uuid[])
      as w (app_id, user_id)
    join limits l on l.app_id = w.app_id and l.user_id = w.user_id
    order by l.user_id, l.key_id nulls first`,
  )
  return rows.map((row) => ({
    appId: appId(row.app_id),
    userId: userId(row.user_id),
    keyId: row.key_id,
    limits: limitsFrom(row),
    dayStart: row.day_ms,
    dayAttos: BigInt(row.day_attos),
    minuteStart: row.minute_ms,
    minuteCalls: row.minute_calls,
    sessions: new Map(),
    active: { count: 0, oldest: null },
    changed: false,
  }))
}

/** Loads the amounts spent in these sessions into each tally. */
export async function loadSessions(
  db: Db,
  tallies: readonly Tally[],
  sessionIds: readonly string[],
): Promise<void> {
  const bySubject = new Map(tallies.map((tally) => [subjectIdOf(tally), tally]))
  const rows = await many<{
    subject_id: string
    session_id: string
    spent_attos: string
    last_call_ms: number
  }>(
    db,
    sql`
    select s.subject_id, s.session_id, s.spent_attos,
           (extract(epoch from s.last_call_at) * 1000)::float8 as last_call_ms
    from unnest(${plainArray(tallies.map((tally) => tally.appId))}::uuid[],
                ${plainArray(tallies.map((tally) => tally.userId))}::uuid[],
                ${plainArray(tallies.map(subjectIdOf))}::uuid[]) as w (app_id, user_id, subject_id)
    join limit_sessions s on s.app_id = w.app_id and s.user_id = w.user_id and s.subject_id = w.subject_id
    where s.session_id = any(${sessionIds}::text[])`,
  )
  for (const row of rows)
    bySubject.get(row.subject_id)?.sessions.set(row.session_id, {
      spent: BigInt(row.spent_attos),
      lastCallAt: row.last_call_ms,
    })
}

/** Loads the number of sessions that are active at `at` into each tally. */
export async function loadActive(db: Db, tallies: readonly Tally[], at: Date): Promise<void> {
  if (tallies.length === 0) return
  const bySubject = new Map(tallies.map((tally) => [subjectIdOf(tally), tally]))
  const rows = await many<{ subject_id: string; count: number; oldest: Date }>(
    db,
    sql`
    select s.subject_id, count(*)::int as count, min(s.last_call_at) as oldest
    from unnest(${plainArray(tallies.map((tally) => tally.appId))}::uuid[],
                ${plainArray(tallies.map((tally) => tally.userId))}::uuid[],
                ${plainArray(tallies.map(subjectIdOf))}::uuid[]) as w (app_id, user_id, subject_id)
    join limit_sessions s on s.app_id = w.app_id and s.user_id = w.user_id and s.subject_id = w.subject_id
    where s.last_call_at > ${new Date(at.getTime() - sessionIdleMs)}
    group by s.subject_id`,
  )
  for (const { subject_id: id, count, oldest } of rows) {
    const tally = bySubject.get(id)
    if (tally) tally.active = { count, oldest }
  }
}

/** Saves the counts of tallies with all of their loaded sessions. */
export async function saveTallies(db: Db, tallies: readonly Tally[]): Promise<void> {
  if (tallies.length === 0) return
  const column = <T>(value: (tally: Tally) => T): T[] => tallies.map(value)
  await db.query(sql`
    update limits l
    set day = t.day, day_attos = t.day_attos, minute = t.minute, minute_calls = t.minute_calls
    from unnest(
      ${plainArray(column((t) => t.appId))}::uuid[], ${plainArray(column((t) => t.userId))}::uuid[],
      ${plainArray(column(subjectIdOf))}::uuid[], ${plainArray(column((t) => utcDay(t.dayStart)))}::date[],
      ${plainArray(column((t) => t.dayAttos))}::numeric[],
      ${plainArray(column((t) => new Date(t.minuteStart).toISOString()))}::timestamptz[],
      ${plainArray(column((t) => t.minuteCalls))}::integer[])
      as t (app_id, user_id, subject_id, day, day_attos, minute, minute_calls)
    where l.app_id = t.app_id and l.user_id = t.user_id and l.subject_id = t.subject_id`)
  await saveSessions(db, tallies)
}

async function saveSessions(db: Db, tallies: readonly Tally[]): Promise<void> {
  const rows = tallies.flatMap((tally) =>
    [...tally.sessions].map(([sessionId, session]) => ({ tally, sessionId, session })),
  )
  const column = <T>(value: (row: (typeof rows)[number]) => T): T[] => rows.map(value)
  await db.query(sql`
    insert into limit_sessions (app_id, user_id, subject_id, session_id, spent_attos, last_call_at)
    select * from unnest(
      ${plainArray(column((r) => r.tally.appId))}::uuid[], ${plainArray(column((r) => r.tally.userId))}::uuid[],
      ${plainArray(column((r) => subjectIdOf(r.tally)))}::uuid[], ${column((r) => r.sessionId)}::text[],
      ${plainArray(column((r) => r.session.spent))}::numeric[],
      ${plainArray(column((r) => new Date(r.session.lastCallAt).toISOString()))}::timestamptz[])
    on conflict (app_id, user_id, subject_id, session_id) do update
    set spent_attos = excluded.spent_attos, last_call_at = excluded.last_call_at`)
}

/** A change of the counts of a day and of a session. */
export interface Correction extends UserKey {
  readonly subjectId: string
  readonly sessionId: string
  readonly dayStart: number
  readonly delta: bigint
}

/** Returns the users that have limits, or a key with limits. */
export async function findLimitedUsers(db: Db, users: readonly UserKey[]): Promise<UserId[]> {
  const rows = await many<{ user_id: string }>(
    db,
    prepared('limited-users')`
    select w.user_id
    from unnest(${plainArray(users.map((user) => user.appId))}::uuid[], ${plainArray(users.map((user) => user.userId))}::uuid[])
      as w (app_id, user_id)
    where exists (select 1 from limits l where l.app_id = w.app_id and l.user_id = w.user_id)`,
  )
  return rows.map((row) => userId(row.user_id))
}

/**
 * Adds corrections to the counts of their days and sessions. Ignores days that are no longer
 * counted. A count never becomes negative.
 */
export async function addCorrections(db: Db, corrections: readonly Correction[]): Promise<void> {
  const column = <T>(value: (correction: Correction) => T): T[] => corrections.map(value)
  const [apps, users, subjects, deltas] = [
    plainArray(column((c) => c.appId)),
    plainArray(column((c) => c.userId)),
    plainArray(column((c) => c.subjectId)),
    plainArray(column((c) => c.delta)),
  ]
  await db.query(sql`
    update limits l
    set day_attos = greatest(0, l.day_attos + c.delta)
    from (
      select app_id, user_id, subject_id, day, sum(delta) as delta
      from unnest(${apps}::uuid[], ${users}::uuid[], ${subjects}::uuid[],
                  ${plainArray(column((c) => utcDay(c.dayStart)))}::date[], ${deltas}::numeric[])
        as c (app_id, user_id, subject_id, day, delta)
      group by app_id, user_id, subject_id, day) c
    where l.app_id = c.app_id and l.user_id = c.user_id and l.subject_id = c.subject_id and l.day = c.day`)
  await db.query(sql`
    update limit_sessions s
    set spent_attos = greatest(0, s.spent_attos + c.delta)
    from (
      select app_id, user_id, subject_id, session_id, sum(delta) as delta
      from unnest(${apps}::uuid[], ${users}::uuid[], ${subjects}::uuid[], ${column((c) => c.sessionId)}::text[],
                  ${deltas}::numeric[]) as c (app_id, user_id, subject_id, session_id, delta)
      group by app_id, user_id, subject_id, session_id) c
    where s.app_id = c.app_id and s.user_id = c.user_id and s.subject_id = c.subject_id and s.session_id = c.session_id`)
}

/** Deletes up to `limit` sessions without a call since `before`. Returns the number deleted. */
export async function forgetSessions(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from limit_sessions
    where ctid in (select ctid from limit_sessions where last_call_at < ${before} order by last_call_at limit ${limit}
                   for update skip locked)`)
  return rowCount ?? 0
}

const utcDay = (dayStart: number): string => new Date(dayStart).toISOString().slice(0, 10)
