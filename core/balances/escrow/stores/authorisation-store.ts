import { plainArray, textArray } from '../../../lib/copy-sql.ts'
import { usdAttos } from '../../../lib/money.ts'
import { type Db, many, prepared, sql } from '../../../lib/sql.ts'
import type { SettlingStep, SettlingTickets } from '../../../metering/ingest/charges.ts'
import type { CreditDebit } from '../../accounts/chain.ts'
import { type AuthorisationRow, attosPerNano, authorisationFromRow } from './authorisation-rows.ts'
import { appColumn, keyColumns, numberColumn, sessionColumn, userColumn } from './key-columns.ts'
import { clockRange, idleSince } from '../due.ts'
import { approximateMicros, selectTickets } from '../matching.ts'
import { countNumbers, toMultirange } from '../reports/number-ranges.ts'
import type {
  EscrowStore,
  MatchSum,
  NewAuthorisation,
  Proof,
  StoredAuthorisation,
  TicketMatches,
} from '../port.ts'

/** Writes authorisations. The functions are documented in `port.ts`. */

export async function insertAuthorisations(
  db: Db,
  authorisations: readonly NewAuthorisation[],
): Promise<void> {
  if (authorisations.length === 0) return
  const plain = (value: (row: NewAuthorisation) => string | bigint | boolean | null) =>
    plainArray(authorisations.map(value))
  const text = (value: (row: NewAuthorisation) => string) => textArray(authorisations.map(value))
  await db.query(
    prepared('insert-authorisations')`
    insert into authorisations (app_id, user_id, session_id, sequence_number, signed_micros, sidecar_id, key_id, session_type,
                                bound_attos, authorised_at, approximate, offline, network_attos, calls, last_at,
                                call_micros, call_nanos, open_numbers, proven)
    select app_id, user_id, session_id, sequence_number, signed_micros, sidecar_id, key_id, session_type, bound_attos,
           authorised_at, approximate, offline, network_attos, calls, last_at,
           nullif(call_micros, '')::bigint[], nullif(call_nanos, '')::bigint[], nullif(open_numbers, '')::int8multirange,
           -- The ticket of a run's last call has come.
           open_numbers <> '' and not open_numbers::int8multirange @> sequence_number
    from unnest(
      ${appColumn(authorisations)}::uuid[], ${userColumn(authorisations)}::uuid[], ${sessionColumn(authorisations)}::text[],
      ${numberColumn(authorisations)}::bigint[], ${plain((row) => row.signedMicros)}::bigint[],
      ${text((row) => row.sidecarId)}::text[], ${plain((row) => row.keyId)}::uuid[], ${text((row) => row.sessionType)}::text[],
      ${plain((row) => row.bound)}::numeric[], ${plain((row) => row.authorisedAt.toISOString())}::timestamptz[],
      ${plain((row) => row.isApproximate)}::boolean[], ${plain((row) => row.isOffline)}::boolean[],
      ${plain((row) => row.network ?? null)}::numeric[], ${plain((row) => BigInt(callsOf(row)))}::integer[],
      ${plain((row) => row.lastAt?.toISOString() ?? null)}::timestamptz[],
      ${text(({ run }) => (run ? plainArray(run.micros) : ''))}::text[],
      ${text(({ run }) => (run ? plainArray(run.bounds.map((bound) => bound / attosPerNano)) : ''))}::text[],
      ${text(({ run }) => (run ? toMultirange(run.open) : ''))}::text[])
      as u (app_id, user_id, session_id, sequence_number, signed_micros, sidecar_id, key_id, session_type, bound_attos,
            authorised_at, approximate, offline, network_attos, calls, last_at, call_micros, call_nanos, open_numbers)`,
  )
}

/** Returns the number of calls of an authorisation that wait for their ticket. */
const callsOf = ({ run }: NewAuthorisation): number => (run ? countNumbers(run.open) : 1)

/**
 * Sets one authorisation for each different proof, even if the proof is repeated. Looks up each by
 * itself (`lateral`), because a join reads all rows of a table while its statistics are older than
 * its rows.
 */
export async function prove(db: Db, proofs: readonly Proof[]): Promise<StoredAuthorisation[]> {
  if (proofs.length === 0) return []
  const rows = await many<AuthorisationRow>(
    db,
    sql`
    with calls as not materialized (
      select distinct *
      from unnest(${appColumn(proofs)}::uuid[], ${userColumn(proofs)}::uuid[], ${sessionColumn(proofs)}::text[],
                  ${numberColumn(proofs)}::bigint[]) as calls (app_id, user_id, session_id, sequence_number)
    ), ticketed as materialized (
      select p.app_id, p.user_id, p.session_id, p.sequence_number
      from calls p
      join ticket_sessions t on t.app_id = p.app_id and t.user_id = p.user_id and t.session_id = p.session_id
        and t.seen @> p.sequence_number
    ), earliest as (
      select e.app_id, e.user_id, e.session_id, e.sequence_number, e.signed_micros, e.id
      from calls p
      cross join lateral (
        select a.app_id, a.user_id, a.session_id, a.sequence_number, a.signed_micros, a.id
        from authorisations a
        where a.app_id = p.app_id and a.user_id = p.user_id and a.session_id = p.session_id
          and a.sequence_number = p.sequence_number
          and a.state in ('pending', 'released') and not a.proven and not a.ticketed
        order by a.id
        limit 1) e
      where not exists (
        select 1
        from ticketed t
        where t.app_id = p.app_id and t.user_id = p.user_id and t.session_id = p.session_id
          and t.sequence_number = p.sequence_number)
    ), proven as (
    update authorisations a
    set proven = true, state = case a.state when 'released' then 'lost' else a.state end
    from earliest e
    where a.app_id = e.app_id and a.user_id = e.user_id and a.session_id = e.session_id
      and a.sequence_number = e.sequence_number and a.signed_micros = e.signed_micros and a.id = e.id
    returning a.*)
    select p.*, p.open_numbers::text
    from proven p`,
  )
  return rows.filter(({ state }) => state === 'lost').map(authorisationFromRow)
}

interface MatchRow {
  session: bigint | null
  session_type: string
  sidecar_id: string
  key_id: string | null
  state: MatchSum['state']
  count: number
  bound: string
  drawn: string | null
  undrawn: string | null
  cost: string
  latest_ms: number
  booked_ms: number
  unmatched: number[] | null
}

/**
 * Matches exact times and runs first, then the other tickets with approximate authorisations.
 *
 * One statement finds, changes and sums, because reading the rows of thousands of authorisations
 * would cost more than deleting them. Each ticket looks up its authorisation in the primary key;
 * `rank` distinguishes tickets with the same key.
 */
export async function matchTickets(
  db: Db,
  tickets: SettlingTickets,
  step: SettlingStep,
): Promise<TicketMatches> {
  if (step === 'unpriced') await splitRunsOf(db, tickets)
  const exact = await matchExact(db, tickets, step)
  if (exact.unmatched.length === 0) return exact
  const near = await matchNear(db, selectTickets(tickets, exact.unmatched), step)
  return {
    sums: [...exact.sums, ...near.sums],
    unmatched: near.unmatched.map((i) => exact.unmatched[i] ?? 0),
  }
}

async function matchExact(
  db: Db,
  tickets: SettlingTickets,
  step: SettlingStep,
): Promise<TicketMatches> {
  const rows = await many<MatchRow>(
    db,
    sql`
    with sessions as materialized (
      select *
      from unnest(
        ${appColumn(tickets.sessions)}::uuid[], ${userColumn(tickets.sessions)}::uuid[], ${sessionColumn(tickets.sessions)}::text[]) with ordinality as s (app_id, user_id, session_id, position)
    ), tickets as materialized (
      select session, sequence, micros, cost, position::integer - 1 as position,
             row_number() over (partition by session, sequence, micros order by position) - 1 as rank
      from unnest(
        ${plainArray(tickets.session)}::integer[], ${plainArray(tickets.sequence)}::bigint[],
        ${plainArray(tickets.signedMicros)}::bigint[], ${plainArray(tickets.cost)}::numeric[])
        with ordinality as t (session, sequence, micros, cost, position)
    ), found as materialized (
      select t.position, t.session, t.sequence, t.cost, a.*,
             row_number() over (partition by a.row, t.sequence order by t.position) as turn
      from tickets t
      join sessions s on s.position = t.session + 1
      left join lateral (
        (select ctid as row, session_type, sidecar_id, key_id, state, bound_attos as bound, authorised_at, drawn_ids, drawn_attos,
                calls, null::timestamptz as last_at, sequence_number
         from authorisations
         where app_id = s.app_id and user_id = s.user_id and session_id = s.session_id
           and sequence_number = t.sequence and signed_micros = t.micros and ticketed = ${step === 'priced'} and call_micros is null
         order by id
         offset t.rank
         limit 1)
        union all
        (select ctid, session_type, sidecar_id, key_id, state,
                call_nanos[t.sequence - sequence_number + cardinality(call_nanos)] * 1000000000::numeric, authorised_at, null, null,
                calls, last_at, sequence_number
         from authorisations
         where ${step === 'booked'} and app_id = s.app_id and user_id = s.user_id and session_id = s.session_id
           and call_micros is not null and sequence_number >= t.sequence and open_numbers @> t.sequence
           and call_micros[t.sequence - sequence_number + cardinality(call_micros)] = t.micros
         order by sequence_number, id
         offset t.rank
         limit 1)
        limit 1) a on true
    ), matched as materialized (
      select row, session, session_type, sidecar_id, key_id, state, authorised_at, drawn_ids, drawn_attos,
             count(*)::integer as tickets, sum(cost) as cost, sum(bound) as bound, count(*) >= calls as is_settled,
             range_agg(int8range(sequence, sequence, '[]')) as numbers, bool_or(sequence = sequence_number) as has_last,
             case when count(*) >= calls then coalesce(last_at, authorised_at) else authorised_at end as booked_through
      from found
      where row is not null and turn = 1
      group by row, session, session_type, sidecar_id, key_id, state, authorised_at, drawn_ids, drawn_attos, calls, last_at
    ), deleted as (
      delete from authorisations
      where ctid = any(array(select row from matched where is_settled and ${step !== 'unpriced'}))
    ), marked as (
      update authorisations
      set ticketed = true, state = case when state = 'charged' then state else 'pending' end
      where ctid = any(array(select row from matched where ${step === 'unpriced'}))
    ), lowered as (
      update authorisations a
      set calls = a.calls - m.tickets, bound_attos = a.bound_attos - m.bound, open_numbers = a.open_numbers - m.numbers,
          network_attos = ceil(a.network_attos * (a.bound_attos - m.bound) / a.bound_attos), proven = a.proven or m.has_last
      from matched m
      where a.ctid = m.row and not m.is_settled
    )
    select session, session_type, sidecar_id, key_id, state, sum(tickets)::integer as count, sum(bound) as bound, sum(cost) as cost,
           string_agg(array_to_string(drawn_ids, ',') || ' ' || array_to_string(drawn_attos, ','), ';') as drawn,
           sum(bound) filter (where state = 'charged' and drawn_ids is null) as undrawn,
           (extract(epoch from max(authorised_at)) * 1000)::float8 as latest_ms,
           (extract(epoch from max(booked_through)) * 1000)::float8 as booked_ms, null::integer[] as unmatched
    from matched
    group by session, session_type, sidecar_id, key_id, state, date_trunc('day', authorised_at, 'UTC')
    union all
    select null, null, null, null, null, null, null, null, null, null, null, null, array_agg(position order by position)
    from found
    where row is null or turn > 1
    having count(*) > 0`,
  )
  return toMatches(tickets, rows)
}

/** Splits the runs of these tickets, so that each call can wait for its price. */
async function splitRunsOf(db: Db, tickets: SettlingTickets): Promise<void> {
  const keys = keyColumns(tickets)
  const rows = await many<AuthorisationRow>(
    db,
    sql`
    select distinct on (a.id) a.*, a.open_numbers::text
    from unnest(
      ${keys.apps}::uuid[], ${keys.users}::uuid[], ${keys.sessions}::text[], ${keys.sequences}::bigint[],
      ${keys.micros}::bigint[]) as t (app_id, user_id, session_id, sequence, micros)
    join authorisations a on a.app_id = t.app_id and a.user_id = t.user_id and a.session_id = t.session_id
      and a.call_micros is not null and a.sequence_number >= t.sequence and a.open_numbers @> t.sequence
      and a.call_micros[t.sequence - a.sequence_number + cardinality(a.call_micros)] = t.micros`,
  )
  if (rows.length > 0) await splitRuns(db, rows.map(authorisationFromRow))
}

export const splitRuns: EscrowStore['splitRuns'] = async (db, runs) => {
  const rows = await many<AuthorisationRow>(
    db,
    sql`
    with runs as (
      delete from authorisations a
      using unnest(
        ${appColumn(runs)}::uuid[], ${userColumn(runs)}::uuid[], ${sessionColumn(runs)}::text[], ${numberColumn(runs)}::bigint[],
        ${plainArray(runs.map(({ signedMicros }) => signedMicros))}::bigint[], ${plainArray(runs.map(({ id }) => id))}::bigint[])
        as r (app_id, user_id, session_id, sequence_number, signed_micros, id)
      where a.app_id = r.app_id and a.user_id = r.user_id and a.session_id = r.session_id
        and a.sequence_number = r.sequence_number and a.signed_micros = r.signed_micros and a.id = r.id
      returning a.*
    )
    insert into authorisations as a (app_id, user_id, session_id, sequence_number, signed_micros, sidecar_id, key_id, session_type,
                                     bound_attos, authorised_at, last_at, offline, proven, network_attos)
    select r.app_id, r.user_id, r.session_id, n.number, n.micros, r.sidecar_id, r.key_id, r.session_type, n.bound,
           r.authorised_at, r.last_at, r.offline, r.proven or n.number < r.sequence_number, ceil(r.network_attos * n.bound / r.bound_attos)
    from runs r
    cross join lateral (
      select r.sequence_number - cardinality(r.call_micros) + c.position as number, c.micros, c.nanos * 1000000000::numeric as bound
      from unnest(r.call_micros, r.call_nanos) with ordinality as c (micros, nanos, position)) n
    where r.open_numbers @> n.number
    order by r.authorised_at, r.session_id, n.number
    returning a.*, a.open_numbers::text`,
  )
  return rows.map(authorisationFromRow)
}

function toMatches(tickets: SettlingTickets, rows: readonly MatchRow[]): TicketMatches {
  const unmatched = rows.find((row) => row.unmatched !== null)?.unmatched ?? []
  const sums = rows.flatMap((row): MatchSum[] => {
    const session = row.session === null ? undefined : tickets.sessions[Number(row.session)]
    if (!session) return []
    return [
      {
        ...session,
        sessionType: row.session_type,
        sidecarId: row.sidecar_id,
        keyId: row.key_id,
        state: row.state,
        count: row.count,
        bound: usdAttos(BigInt(row.bound)),
        drawn: row.drawn?.split(';').flatMap(drawsOf) ?? [],
        undrawn: usdAttos(BigInt(row.undrawn ?? 0)),
        cost: usdAttos(BigInt(row.cost)),
        latestAt: new Date(row.latest_ms),
        bookedThrough: new Date(row.booked_ms),
      },
    ]
  })
  return { sums, unmatched }
}

/** Parses ids and amounts: `id,id amount,amount`. */
function drawsOf(text: string): CreditDebit[] {
  const [ids = '', amounts = ''] = text.split(' ').map((list) => list.split(','))
  return [...ids].flatMap((creditId, i) =>
    creditId === '' ? [] : [{ creditId, amount: usdAttos(BigInt(amounts[i] ?? 0)) }],
  )
}

interface Pair {
  position: number
  id: bigint
}

/**
 * Pairs tickets with approximate authorisations, the nearest first. Uses each ticket and each
 * authorisation once.
 */
async function matchNear(
  db: Db,
  tickets: SettlingTickets,
  step: SettlingStep,
): Promise<TicketMatches> {
  const all = tickets.session.map((_, position) => position)
  const keys = keyColumns(tickets)
  const pairs = await many<Pair>(
    db,
    sql`
    select t.position::integer - 1 as position, a.id
    from unnest(
      ${keys.apps}::uuid[], ${keys.users}::uuid[], ${keys.sessions}::text[], ${keys.sequences}::bigint[],
      ${keys.micros}::bigint[])
      with ordinality as t (app_id, user_id, session_id, sequence, micros, position)
    join authorisations a on a.app_id = t.app_id and a.user_id = t.user_id and a.session_id = t.session_id
      and a.sequence_number = t.sequence and a.approximate and a.ticketed = ${step === 'priced'}
    where abs(a.signed_micros - t.micros) <= ${approximateMicros}::bigint
    order by abs(a.signed_micros - t.micros), t.position, a.id`,
  )
  if (pairs.length === 0) return { sums: [], unmatched: all }
  const matches = new Map<number, bigint>()
  const matchedIds = new Set<bigint>()
  for (const { position, id } of pairs) {
    if (matches.has(position) || matchedIds.has(id)) continue
    matches.set(position, id)
    matchedIds.add(id)
  }
  const sums = await changeMatches(db, { tickets, matches }, step)
  return { sums, unmatched: all.filter((position) => !matches.has(position)) }
}

async function changeMatches(
  db: Db,
  { tickets, matches }: { tickets: SettlingTickets; matches: ReadonlyMap<number, bigint> },
  step: SettlingStep,
): Promise<readonly MatchSum[]> {
  const chosen = selectTickets(tickets, [...matches.keys()])
  const keys = keyColumns(chosen)
  const rows = await many<MatchRow>(
    db,
    sql`
    with matches as materialized (
      select a.ctid as row, m.session, m.cost, a.session_type, a.sidecar_id, a.key_id, a.state, a.bound_attos, a.authorised_at,
             a.drawn_ids, a.drawn_attos
      from unnest(
        ${keys.apps}::uuid[], ${keys.users}::uuid[], ${keys.sessions}::text[], ${plainArray(chosen.session)}::bigint[],
        ${keys.sequences}::bigint[], ${plainArray([...matches.values()])}::bigint[], ${plainArray(chosen.cost)}::numeric[])
        as m (app_id, user_id, session_id, session, sequence, id, cost)
      join authorisations a on a.app_id = m.app_id and a.user_id = m.user_id and a.session_id = m.session_id
        and a.sequence_number = m.sequence and a.id = m.id
    ), deleted as (
      delete from authorisations
      where ctid = any(array(select row from matches where ${step !== 'unpriced'}))
    ), marked as (
      update authorisations
      set ticketed = true, state = case when state = 'charged' then state else 'pending' end
      where ctid = any(array(select row from matches where ${step === 'unpriced'}))
    )
    select session, session_type, sidecar_id, key_id, state, count(*)::integer as count, sum(bound_attos) as bound, sum(cost) as cost,
           string_agg(array_to_string(drawn_ids, ',') || ' ' || array_to_string(drawn_attos, ','), ';') as drawn,
           sum(bound_attos) filter (where state = 'charged' and drawn_ids is null) as undrawn,
           (extract(epoch from max(authorised_at)) * 1000)::float8 as latest_ms,
           (extract(epoch from max(authorised_at)) * 1000)::float8 as booked_ms, null::integer[] as unmatched
    from matches
    group by session, session_type, sidecar_id, key_id, state, date_trunc('day', authorised_at, 'UTC')`,
  )
  return toMatches(tickets, rows).sums
}

export async function insertTicketed(db: Db, tickets: SettlingTickets, at: Date): Promise<void> {
  const keys = keyColumns(tickets)
  await db.query(sql`
    insert into authorisations (app_id, user_id, session_id, sequence_number, signed_micros, sidecar_id, session_type,
                                bound_attos, authorised_at, state_at, ticketed)
    select app_id, user_id, session_id, sequence, micros, '', '', cost, ${at}, ${at}, true
    from unnest(
      ${keys.apps}::uuid[], ${keys.users}::uuid[], ${keys.sessions}::text[], ${keys.sequences}::bigint[],
      ${keys.micros}::bigint[],
      ${plainArray(tickets.cost)}::numeric[]) as t (app_id, user_id, session_id, sequence, micros, cost)`)
}

export const endAuthorisations: EscrowStore['endAuthorisations'] = async (db, ended, at) => {
  const rows = ended.map(({ authorisation }) => authorisation)
  const drawn = (value: (draw: CreditDebit) => string) =>
    textArray(ended.map(({ drawn }) => (drawn ? `{${drawn.map(value).join(',')}}` : '')))
  await db.query(sql`
    update authorisations a
    set state = e.state, state_at = ${at}, drawn_ids = nullif(e.drawn_ids, '')::uuid[],
        drawn_attos = nullif(e.drawn_attos, '')::numeric[]
    from unnest(
      ${appColumn(rows)}::uuid[], ${userColumn(rows)}::uuid[], ${sessionColumn(rows)}::text[], ${numberColumn(rows)}::bigint[],
      ${plainArray(rows.map(({ signedMicros }) => signedMicros))}::bigint[], ${plainArray(rows.map(({ id }) => id))}::bigint[],
      ${plainArray(ended.map(({ state }) => state))}::text[], ${drawn(({ creditId }) => creditId)}::text[],
      ${drawn(({ amount }) => String(amount))}::text[])
      as e (app_id, user_id, session_id, sequence_number, signed_micros, id, state, drawn_ids, drawn_attos)
    where a.app_id = e.app_id and a.user_id = e.user_id and a.session_id = e.session_id
      and a.sequence_number = e.sequence_number and a.signed_micros = e.signed_micros and a.id = e.id`)
}

/** Deletes at most `limit` ended authorisations. */
export async function forgetEnded(db: Db, before: Date, limit: number): Promise<void> {
  await db.query(sql`
    delete from authorisations
    where ctid = any(array(
      select ctid
      from authorisations
      where state <> 'pending' and not ticketed and state_at < ${before}
      order by state_at
      limit ${limit}
      for update skip locked))`)
}

export const findDueAuthorisations: EscrowStore['findDueAuthorisations'] = async (
  db,
  users,
  due,
) => {
  const { lagSeconds, limit } = due
  const clocks = clockRange(due)
  const rows = await many<AuthorisationRow>(
    db,
    sql`
    select a.*, a.open_numbers::text
    from (select a.*, sum(a.calls) over (order by a.authorised_at, a.id) - a.calls as calls_before
    from unnest(${appColumn(users)}::uuid[], ${userColumn(users)}::uuid[]) as w (app_id, user_id)
    join authorisations a on a.app_id = w.app_id and a.user_id = w.user_id
    join sidecars s on s.id = a.sidecar_id
    left join sidecar_clocks c
      on c.sidecar_id = s.id and c.booked_through between ${clocks.from} and ${clocks.to}
    where a.state = 'pending' and not a.ticketed and coalesce(a.last_at, a.authorised_at) <= greatest(
      c.booked_through - make_interval(secs => ${lagSeconds}),
      case when s.last_authorised_at <= ${idleSince(due)} then s.last_authorised_at end)
    order by a.authorised_at, a.id
    limit ${limit}) a
    where a.calls_before < ${limit}
    order by a.authorised_at, a.id`,
  )
  return rows.map(authorisationFromRow)
}
