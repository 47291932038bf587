import { plainArray, textArray } from '../../lib/copy-sql.ts'
import { usdAttos } from '../../lib/money.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import { appId, userId } from '../../platform/ids.ts'
import { matchEarlyTickets } from './matching.ts'
import type {
  EarlyMatch,
  NewAuthorisation,
  PriorCall,
  PriorCallQuery,
  Proof,
  SessionChange,
  StoredAuthorisation,
  UserKey,
} from './port.ts'
import { type SessionSum, sumSessions } from './session-sums.ts'

/** Writes authorisations, early_tickets, authorised_sessions and sidecar_clocks. What the functions promise is in `port.ts`. */

interface SessionKey extends UserKey {
  readonly sessionId: string
}
interface CallKey extends SessionKey {
  readonly sequence: bigint
}

const appsOf = (rows: readonly UserKey[]) => plainArray(rows.map((row) => row.appId))
const usersOf = (rows: readonly UserKey[]) => plainArray(rows.map((row) => row.userId))
const sessionsOf = (rows: readonly SessionKey[]) => textArray(rows.map((row) => row.sessionId))
const numbersOf = (rows: readonly CallKey[]) => plainArray(rows.map((row) => row.sequence))

export async function insertAuthorisations(
  db: Db,
  authorisations: readonly NewAuthorisation[],
): Promise<void> {
  if (authorisations.length === 0) return
  const plain = (value: (row: NewAuthorisation) => string | bigint | boolean | null) =>
    plainArray(authorisations.map(value))
  const text = (value: (row: NewAuthorisation) => string) => textArray(authorisations.map(value))
  await db.query(sql`
    insert into authorisations (app_id, user_id, session_id, sequence_number, signed_micros, sidecar_id, key_id, session_type,
                                bound_attos, authorised_at, approximate, offline)
    select * from unnest(
      ${appsOf(authorisations)}::uuid[], ${usersOf(authorisations)}::uuid[], ${sessionsOf(authorisations)}::text[],
      ${numbersOf(authorisations)}::bigint[], ${plain((row) => row.signedMicros)}::bigint[],
      ${text((row) => row.sidecarId)}::text[], ${plain((row) => row.keyId)}::uuid[], ${text((row) => row.sessionType)}::text[],
      ${plain((row) => row.bound)}::numeric[], ${plain((row) => row.authorisedAt.toISOString())}::timestamptz[],
      ${plain((row) => row.isApproximate)}::boolean[], ${plain((row) => row.isOffline)}::boolean[])`)
}

export async function takeEarlyTickets(
  db: Db,
  authorisations: readonly NewAuthorisation[],
): Promise<readonly (EarlyMatch | null)[]> {
  if (authorisations.length === 0) return []
  const rows = await many<EarlyRow>(
    db,
    sql`
    select e.app_id, e.user_id, e.session_id, e.sequence_number, e.signed_micros, e.id, e.cost_attos
    from (select distinct *
          from unnest(${appsOf(authorisations)}::uuid[], ${usersOf(authorisations)}::uuid[],
                      ${sessionsOf(authorisations)}::text[], ${numbersOf(authorisations)}::bigint[])
            as calls (app_id, user_id, session_id, sequence_number)) c
    join early_tickets e on e.app_id = c.app_id and e.user_id = c.user_id and e.session_id = c.session_id
      and e.sequence_number = c.sequence_number
    order by e.id`,
  )
  if (rows.length === 0) return authorisations.map(() => null)
  const matches = matchEarlyTickets(authorisations, rows.map(earlyFromRow))
  await deleteEarlyTickets(
    db,
    matches.filter((match) => match !== null),
  )
  return matches
}

interface EarlyRow {
  app_id: string
  user_id: string
  session_id: string
  sequence_number: bigint
  signed_micros: bigint
  id: bigint
  cost_attos: string | null
}

const earlyFromRow = (row: EarlyRow) => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  sessionId: row.session_id,
  sequence: row.sequence_number,
  signedMicros: row.signed_micros,
  id: row.id,
  cost: row.cost_attos === null ? null : usdAttos(BigInt(row.cost_attos)),
})

type EarlyTicket = ReturnType<typeof earlyFromRow>

async function deleteEarlyTickets(db: Db, tickets: readonly EarlyTicket[]): Promise<void> {
  if (tickets.length === 0) return
  await db.query(sql`
    delete from early_tickets e
    using unnest(
      ${appsOf(tickets)}::uuid[], ${usersOf(tickets)}::uuid[], ${sessionsOf(tickets)}::text[], ${numbersOf(tickets)}::bigint[],
      ${plainArray(tickets.map((ticket) => ticket.signedMicros))}::bigint[], ${plainArray(tickets.map((ticket) => ticket.id))}::bigint[])
      as m (app_id, user_id, session_id, sequence_number, signed_micros, id)
    where e.app_id = m.app_id and e.user_id = m.user_id and e.session_id = m.session_id
      and e.sequence_number = m.sequence_number and e.signed_micros = m.signed_micros and e.id = m.id`)
}

/** A change without calls, which is a settlement's, leaves an unknown session unknown. */
export async function addSessions(db: Db, changes: readonly SessionChange[]): Promise<void> {
  const sums = sumSessions(changes)
  const withCalls = sums.filter(({ start }) => start !== null)
  const withoutCalls = sums.filter(({ start }) => start === null)
  if (withCalls.length > 0) await upsertSessions(db, withCalls)
  if (withoutCalls.length > 0) await updateSessions(db, withoutCalls)
}

const totalsOf = (sums: readonly SessionSum[]) => {
  const count = (name: keyof SessionSum['added']) =>
    plainArray(sums.map(({ added }) => added[name].count))
  const amount = (name: keyof SessionSum['added']) =>
    plainArray(sums.map(({ added }) => added[name].amount))
  return { count, amount }
}

async function upsertSessions(db: Db, sums: readonly SessionSum[]): Promise<void> {
  const { count, amount } = totalsOf(sums)
  const at = plainArray(sums.map((row) => row.at.toISOString()))
  const call = (end: 'start' | 'top', value: (call: PriorCall) => bigint | number) =>
    plainArray(
      sums.map((row) => {
        const prior = row[end]
        return prior && value(prior)
      }),
    )
  await db.query(sql`
    insert into authorised_sessions as s (
      app_id, user_id, session_id, session_type, started_at, last_at, start_sequence, start_seconds, start_nanos,
      top_sequence, top_seconds, top_nanos, authorised_count, authorised_attos, ticketed_count, ticketed_attos,
      lost_count, lost_attos, charged_count, charged_attos, released_count, released_attos, late_count, late_attos)
    select * from unnest(
      ${appsOf(sums)}::uuid[], ${usersOf(sums)}::uuid[], ${sessionsOf(sums)}::text[],
      ${textArray(sums.map((row) => row.sessionType))}::text[], ${at}::timestamptz[], ${at}::timestamptz[],
      ${call('start', (prior) => prior.sequence)}::bigint[], ${call('start', (prior) => prior.seconds)}::bigint[],
      ${call('start', (prior) => prior.nanos)}::integer[], ${call('top', (prior) => prior.sequence)}::bigint[],
      ${call('top', (prior) => prior.seconds)}::bigint[], ${call('top', (prior) => prior.nanos)}::integer[],
      ${count('authorised')}::bigint[], ${amount('authorised')}::numeric[],
      ${count('ticketed')}::bigint[], ${amount('ticketed')}::numeric[], ${count('lost')}::bigint[], ${amount('lost')}::numeric[],
      ${count('charged')}::bigint[], ${amount('charged')}::numeric[],
      ${count('released')}::bigint[], ${amount('released')}::numeric[], ${count('late')}::bigint[], ${amount('late')}::numeric[])
    on conflict (app_id, user_id, session_id) do update
    set last_at = greatest(s.last_at, excluded.last_at), started_at = least(s.started_at, excluded.started_at),
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
        late_count = s.late_count + excluded.late_count, late_attos = s.late_attos + excluded.late_attos`)
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
      ${appsOf(sums)}::uuid[], ${usersOf(sums)}::uuid[], ${sessionsOf(sums)}::text[],
      ${plainArray(sums.map((row) => row.at.toISOString()))}::timestamptz[],
      ${count('authorised')}::bigint[], ${amount('authorised')}::numeric[],
      ${count('ticketed')}::bigint[], ${amount('ticketed')}::numeric[], ${count('lost')}::bigint[], ${amount('lost')}::numeric[],
      ${count('charged')}::bigint[], ${amount('charged')}::numeric[],
      ${count('released')}::bigint[], ${amount('released')}::numeric[], ${count('late')}::bigint[], ${amount('late')}::numeric[])
      as a (app_id, user_id, session_id, at, authorised_count, authorised_attos, ticketed_count, ticketed_attos,
            lost_count, lost_attos, charged_count, charged_attos, released_count, released_attos, late_count, late_attos)
    where s.app_id = a.app_id and s.user_id = a.user_id and s.session_id = a.session_id`)
}

export async function findPriorCalls(
  db: Db,
  queries: readonly PriorCallQuery[],
): Promise<readonly (PriorCall | null)[]> {
  if (queries.length === 0) return []
  const rows = await many<{ position: bigint; sequence: bigint; seconds: bigint; nanos: number }>(
    db,
    sql`
    select q.position, c.sequence, c.seconds, c.nanos
    from unnest(${appsOf(queries)}::uuid[], ${usersOf(queries)}::uuid[], ${sessionsOf(queries)}::text[],
                ${numbersOf(queries)}::bigint[])
      with ordinality as q (app_id, user_id, session_id, sequence_number, position)
    join authorised_sessions s on s.app_id = q.app_id and s.user_id = q.user_id and s.session_id = q.session_id
    cross join lateral (
      select *
      from (values (s.top_sequence, s.top_seconds, s.top_nanos), (s.start_sequence, s.start_seconds, s.start_nanos))
        as known (sequence, seconds, nanos)
      where sequence < q.sequence_number
      order by sequence desc
      limit 1) c`,
  )
  const byPosition = new Map(rows.map((row) => [Number(row.position) - 1, row]))
  return queries.map((_, position) => {
    const row = byPosition.get(position)
    return row ? { sequence: row.sequence, seconds: row.seconds, nanos: row.nanos } : null
  })
}

/** Sets one authorisation for each different proof, however often that proof is repeated. */
export async function prove(db: Db, proofs: readonly Proof[]): Promise<StoredAuthorisation[]> {
  if (proofs.length === 0) return []
  const rows = await many<AuthorisationRow>(
    db,
    sql`
    with earliest as (
      select distinct on (a.app_id, a.user_id, a.session_id, a.sequence_number)
             a.app_id, a.user_id, a.session_id, a.sequence_number, a.signed_micros, a.id
      from (select distinct *
            from unnest(${appsOf(proofs)}::uuid[], ${usersOf(proofs)}::uuid[], ${sessionsOf(proofs)}::text[],
                        ${numbersOf(proofs)}::bigint[])
              as calls (app_id, user_id, session_id, sequence_number)) p
      join authorisations a on a.app_id = p.app_id and a.user_id = p.user_id and a.session_id = p.session_id
        and a.sequence_number = p.sequence_number
      where a.state in ('pending', 'released') and not a.proven and not a.ticketed
        and not exists (
          select 1
          from tickets t
          where t.app_id = a.app_id and t.session_id = a.session_id and t.sequence_number = a.sequence_number
            and t.user_id = a.user_id
            and t.signed_at between a.authorised_at - interval '1 day' and a.authorised_at + interval '1 day')
      order by a.app_id, a.user_id, a.session_id, a.sequence_number, a.id)
    update authorisations a
    set proven = true, state = case a.state when 'released' then 'lost' else a.state end
    from earliest e
    where a.app_id = e.app_id and a.user_id = e.user_id and a.session_id = e.session_id
      and a.sequence_number = e.sequence_number and a.signed_micros = e.signed_micros and a.id = e.id
    returning a.app_id, a.user_id, a.session_id, a.sequence_number, a.signed_micros, a.id, a.sidecar_id, a.key_id,
              a.session_type, a.bound_attos, a.authorised_at, a.state, a.proven, a.ticketed, a.approximate, a.offline`,
  )
  return rows.filter(({ state }) => state === 'lost').map(authorisationFromRow)
}

interface AuthorisationRow {
  app_id: string
  user_id: string
  session_id: string
  sequence_number: bigint
  signed_micros: bigint
  id: bigint
  sidecar_id: string
  key_id: string | null
  session_type: string
  bound_attos: string
  authorised_at: Date
  state: StoredAuthorisation['state']
  proven: boolean
  ticketed: boolean
  approximate: boolean
  offline: boolean
}

const authorisationFromRow = (row: AuthorisationRow): StoredAuthorisation => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  sessionId: row.session_id,
  sequence: row.sequence_number,
  signedMicros: row.signed_micros,
  id: row.id,
  sidecarId: row.sidecar_id,
  keyId: row.key_id,
  sessionType: row.session_type,
  bound: usdAttos(BigInt(row.bound_attos)),
  authorisedAt: row.authorised_at,
  state: row.state,
  isProven: row.proven,
  isTicketed: row.ticketed,
  isApproximate: row.approximate,
  isOffline: row.offline,
})
