import type { Db } from '../../../core/lib/sql.ts'

/** The content of the service's database, as text by key, to compare with independent books. */
export type Lines = ReadonlyMap<string, string>

export interface Streams {
  readonly tickets: bigint
  readonly duplicates: bigint
  readonly ignored: bigint
  readonly quarantined: bigint
  readonly missing: bigint
  /** Offsets that were read: the sum of the four counters and the missing ones. */
  readonly offsets: bigint
}

async function lines(pool: Db, query: string): Promise<Lines> {
  const { rows } = await pool.query<{ key: string; line: string }>(query)
  return new Map(rows.map(({ key, line }) => [key, line]))
}

const known = `
  from end_users u
  join clients c on c.app_id = u.app_id and c.kind = 'public'`

/** By auth id: tickets, wei, cost and fingerprint. */
export const ticketLines = (pool: Db): Promise<Lines> =>
  lines(
    pool,
    `
  select c.client_id || ':' || u.external_user_id as key, concat_ws(' ', t.count, t.fee, t.cost, t.fingerprint) as line
  ${known}
  join (
    select t.app_id, t.user_id, count(*) as count, sum(t.fee_wei) as fee, sum(t.cost_attos) as cost,
           sum(('x' || left(md5(concat_ws('|', t.event_id, (extract(epoch from t.signed_at) * 1000000)::bigint, t.session_id,
             t.sequence_number, t.pipeline, t.model_id, t.fee_wei, t.cost_attos, r.usd_attos_per_eth,
             (t.billable_secs * 1000000000)::numeric(40, 0), t.pixels)), 15))::bit(60)::bigint) as fingerprint
    from tickets t
    left join rates r on r.id = t.rate_id
    group by t.app_id, t.user_id) t on t.app_id = u.app_id and t.user_id = u.id`,
  )

/** By auth id, hour, pipeline and model. */
export const hourLines = (pool: Db): Promise<Lines> =>
  lines(
    pool,
    `
  select concat_ws('|', c.client_id || ':' || u.external_user_id, extract(epoch from h.hour)::bigint, h.pipeline, h.model_id) as key,
         concat_ws(' ', h.ticket_count, h.unpriced_count, h.fee_wei, h.cost_attos,
                   (h.billable_secs * 1000000000)::numeric(40, 0), h.pixels) as line
  ${known}
  join usage_hourly h on h.app_id = u.app_id and h.user_id = u.id`,
  )

/**
 * By auth id: granted, consumed, overage, balance, expired, remainder of each grant in burn order.
 */
export const balanceLines = (pool: Db): Promise<Lines> =>
  lines(
    pool,
    `
  select c.client_id || ':' || u.external_user_id as key,
         concat_ws(' ', b.granted_attos, b.consumed_attos, b.overage_attos, b.balance_attos, b.expired_attos,
                   '[' || coalesce(g.remaining, '') || ']') as line
  ${known}
  join balances b on b.app_id = u.app_id and b.user_id = u.id
  left join (
    select app_id, user_id,
           string_agg(remaining_attos::text, ' ' order by kind = 'grant', created_at, id) as remaining
    from grants
    group by app_id, user_id) g on g.app_id = u.app_id and g.user_id = u.id
  where b.app_id not in (select app_id from platform_app)`,
  )

/** By app: what owners were charged for its tickets, and how many those are. */
export const ownerLines = (pool: Db): Promise<Lines> =>
  lines(
    pool,
    `
  select c.client_id as key, concat_ws(' ', sum(e.overage_attos - e.amount_attos), sum(e.ticket_count)) as line
  from ledger_entries e
  join clients c on c.app_id = e.charged_app_id and c.kind = 'public'
  group by c.client_id`,
  )

/** By reason: distinct events and their deliveries. */
export const quarantineLines = (pool: Db): Promise<Lines> =>
  lines(
    pool,
    `
  select reason as key, concat_ws(' ', count(*), sum(deliveries)) as line
  from quarantine
  group by reason`,
  )

/**
 * Returns balances that are not the fold of a gapless ledger, and charges that are not the sum of
 * their tickets.
 */
export async function ledgerFaults(pool: Db): Promise<unknown[]> {
  const heads = await pool.query<object>(`
    select b.user_id, b.seq, l.*
    from balances b
    left join (
      select user_id, count(*) as entries, max(seq) as last, sum(amount_attos) as balance, sum(overage_attos) as overage,
             sum(amount_attos) filter (where kind = 'grant') as granted,
             sum(overage_attos - amount_attos) filter (where kind = 'charge') as consumed,
             (array_agg(balance_after_attos order by seq desc))[1] as after
      from ledger_entries
      group by user_id) l using (user_id)
    where (b.seq, b.seq, b.balance_attos, b.balance_attos, b.overage_attos, b.granted_attos, b.consumed_attos)
      is distinct from (coalesce(l.entries, 0), coalesce(l.last, 0), coalesce(l.balance, 0), coalesce(l.after, 0),
                        coalesce(l.overage, 0), coalesce(l.granted, 0), coalesce(l.consumed, 0))
    limit 10`)
  const charges = await pool.query<object>(`
    select *
    from (select user_id, charge_id as cause_id, sum(cost_attos) as cost from tickets group by 1, 2) t
    full join (select user_id, cause_id, overage_attos - amount_attos as booked from ledger_entries
               where kind = 'charge' and charged_app_id is null) l
      using (user_id, cause_id)
    where t.cost is distinct from l.booked
    limit 10`)
  return [...heads.rows, ...charges.rows]
}

/**
 * Returns sessions that are not the sum of their tickets, envelopes without a ticket, and tickets
 * without an envelope.
 */
export async function derivedFaults(pool: Db): Promise<unknown[]> {
  const sessions = await pool.query<object>(`
    select *
    from (
      select app_id, user_id, session_id, count(*) as n, count(*) filter (where cost_attos is null) as unpriced,
             sum(fee_wei) as fee, coalesce(sum(cost_attos), 0) as cost, sum(billable_secs) as secs, sum(pixels) as pixels,
             count(*) - count(distinct sequence_number) as replayed, min(signed_at) as first, max(signed_at) as last,
             range_agg(int8range(sequence_number::bigint, sequence_number::bigint + 1)) as seen
      from tickets
      group by app_id, user_id, session_id) t
    full join ticket_sessions s using (app_id, user_id, session_id)
    where (t.n, t.unpriced, t.fee, t.cost, t.secs, t.pixels, t.replayed, t.first, t.last, t.seen) is distinct from
          (s.ticket_count, s.unpriced_count, s.fee_wei, s.cost_attos, s.billable_secs, s.pixels, s.replayed_count, s.started_at,
           s.last_at, s.seen)
    limit 10`)
  const envelopes = await pool.query<object>(`
    select e.key, t.event_id
    from envelopes e
    full join tickets t on e.key = t.event_id::uuid
    where e.key is null or t.event_id is null
    limit 10`)
  return [...sessions.rows, ...envelopes.rows]
}

/** Returns the sum of the counters of all streams. */
export async function readStreams(pool: Db): Promise<Streams> {
  const { rows } = await pool.query<Record<keyof Streams, string>>(`
    select coalesce(sum(tickets), 0) as tickets, coalesce(sum(duplicates), 0) as duplicates, coalesce(sum(ignored), 0) as ignored,
           coalesce(sum(quarantined), 0) as quarantined, coalesce(sum(missing), 0) as missing,
           coalesce(sum(next_offset - first_offset), 0) as offsets
    from stream_offsets`)
  const count = (name: keyof Streams): bigint => BigInt(rows[0]?.[name] ?? 0)
  return {
    tickets: count('tickets'),
    duplicates: count('duplicates'),
    ignored: count('ignored'),
    quarantined: count('quarantined'),
    missing: count('missing'),
    offsets: count('offsets'),
  }
}

const tables = [
  'tickets',
  'envelopes',
  'usage_hourly',
  'balances',
  'ledger_entries',
  'grants',
  'subscriptions',
  'end_users',
] as const

// These columns change as time passes, because the watch for lost tickets writes them.
const watched = ['watched', 'suspected', 'suspected_at', 'lost', 'lost_count']

/**
 * Returns one line per table, which changes with any byte in the table. Delivery counts in
 * quarantine are left out.
 */
export async function photograph(pool: Db): Promise<Lines> {
  const snapshot = new Map<string, string>()
  const sum = (row: string): string =>
    `select 'all' as key, concat_ws(' ', count(*), sum(('x' || left(md5(${row}), 15))::bit(60)::bigint)) as line`
  for (const table of tables)
    snapshot.set(table, (await lines(pool, `${sum('t::text')} from ${table} t`)).get('all') ?? '')
  const sessions = `${sum(`(to_jsonb(t) - array['${watched.join("','")}'])::text`)} from ticket_sessions t`
  snapshot.set('ticket_sessions', (await lines(pool, sessions)).get('all') ?? '')
  const quarantine = `${sum("concat_ws('|', id, digest, event_id, reason, detail, auth_id, fee_wei, bytes, byte_count, received_at)")} from quarantine`
  return snapshot.set('quarantine', (await lines(pool, quarantine)).get('all') ?? '')
}

/** Returns the first 10 lines that differ. */
export function differing(expected: Lines, actual: Lines): string[] {
  const keys = [...new Set([...expected.keys(), ...actual.keys()])]
  return keys
    .filter((key) => expected.get(key) !== actual.get(key))
    .slice(0, 10)
    .map((key) => `${key}: expected ${expected.get(key)}, found ${actual.get(key)}`)
}
