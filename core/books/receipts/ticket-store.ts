import { escapeLiteral } from 'pg'
import { type AppId, type UserId, userId } from '../../shared/ids.ts'
import { type Db, many, sql } from '../../lib/sql.ts'
import type { AppRef } from '../types.ts'
import { type Leaf, toDecimal } from './leaf.ts'
import type { Place } from './chunk-store.ts'
import type { Window } from './store.ts'

/** Reads the charges between two cuts, and their tickets in tree order. */

/**
 * A user's charges in a window: number of tickets, range of entries, and range of booking times.
 */
export interface ChargedUser {
  readonly userId: UserId
  readonly tickets: number
  readonly firstSeq: bigint
  readonly lastSeq: bigint
  readonly from: Date
  readonly to: Date
}

// A cursor takes no parameters.
const isChargeOf = (app: AppId, { snapshot, previous }: Window): string => {
  const [cut, before] = [escapeLiteral(snapshot), escapeLiteral(previous)]
  return `app_id = ${escapeLiteral(app)} and kind = 'charge' and charged_app_id is null
      and xact >= pg_snapshot_xmin(${before}::pg_snapshot)::text::bigint
      and xact < pg_snapshot_xmax(${cut}::pg_snapshot)::text::bigint
      and pg_visible_in_snapshot(xact::text::xid8, ${cut}::pg_snapshot)
      and not pg_visible_in_snapshot(xact::text::xid8, ${before}::pg_snapshot)`
}

interface Cursor {
  readonly name: string
  readonly query: string
  /** Rows in memory at once. */
  readonly size: number
}

/**
 * Yields the rows of a query in pieces. Needs a transaction, with at most one open cursor per name.
 */
async function* rowsOf<T extends object>(db: Db, { name, query, size }: Cursor): AsyncGenerator<T> {
  await db.query(`declare ${name} no scroll cursor for ${query}`)
  try {
    for (;;) {
      const { rows } = await db.query<T>(`fetch ${size} from ${name}`)
      yield* rows
      if (rows.length < size) return
    }
  } finally {
    await db.query(`close ${name}`)
  }
}

/**
 * Yields the users of an app with charges in a window, by id, a few hundred in memory. Needs a
 * transaction, with at most one such iteration open.
 */
export async function* chargedUsers(
  db: Db,
  app: AppId,
  window: Window,
): AsyncGenerator<ChargedUser> {
  const query = `
    select user_id, coalesce(sum(ticket_count), 0)::float8 as tickets, min(seq) as first_seq, max(seq) as last_seq,
           min(created_at) as from, max(created_at) as to
    from ledger_entries
    where ${isChargeOf(app, window)}
    group by user_id
    order by user_id`
  for await (const row of rowsOf<{
    user_id: string
    tickets: number
    first_seq: bigint
    last_seq: bigint
    from: Date
    to: Date
  }>(db, { name: 'charged_users', query, size: 200 }))
    yield {
      userId: userId(row.user_id),
      tickets: row.tickets,
      firstSeq: row.first_seq,
      lastSeq: row.last_seq,
      from: row.from,
      to: row.to,
    }
}

/**
 * Returns the charge ids of some users in a window: at most one per ticket. Needs a transaction,
 * with at most one such iteration open.
 */
export async function listChargeIds(
  db: Db,
  { app, window }: { readonly app: AppId; readonly window: Window },
  users: readonly ChargedUser[],
): Promise<string[]> {
  const arrayOf = (values: readonly unknown[]): string => escapeLiteral(`{${values.join(',')}}`)
  // The range from first to last `seq` of a user lets the primary key find the rows.
  const query = `
    select c.cause_id
    from unnest(${arrayOf(users.map((user) => user.userId))}::uuid[],
                ${arrayOf(users.map((user) => user.firstSeq))}::bigint[],
                ${arrayOf(users.map((user) => user.lastSeq))}::bigint[]) as u (user_id, first_seq, last_seq)
    cross join lateral (
      select cause_id
      from ledger_entries
      where user_id = u.user_id and seq between u.first_seq and u.last_seq
        and ${isChargeOf(app, window)}) c`
  const ids = new Set<string>()
  for await (const row of rowsOf<{ cause_id: string }>(db, {
    name: 'charges_of_users',
    query,
    size: 1_000,
  }))
    ids.add(row.cause_id)
  return [...ids]
}

/** Range of signing times in which to look for a user's tickets; null is unbounded. */
export interface Reach {
  readonly userId: UserId
  readonly from: Date | null
  readonly to: Date | null
}

export interface TicketsOfCharges {
  readonly app: AppRef
  readonly reaches: readonly Reach[]
  readonly chargeIds: readonly string[]
}

const low = ({ from }: Reach): string => from?.toISOString() ?? '-infinity'
const high = ({ to }: Reach): string => to?.toISOString() ?? 'infinity'

/** Counts the tickets of these charges, by user. */
export async function countTickets(
  db: Db,
  { app, reaches, chargeIds }: TicketsOfCharges,
): Promise<Map<UserId, number>> {
  const rows = await many<{ user_id: string; tickets: number }>(
    db,
    sql`
    select r.user_id, t.tickets
    from unnest(${reaches.map((reach) => reach.userId)}::uuid[], ${reaches.map(low)}::timestamptz[],
                ${reaches.map(high)}::timestamptz[]) as r (user_id, low, high)
    cross join lateral (
      select count(*)::float8 as tickets
      from tickets
      where app_id = ${app.id} and user_id = r.user_id and signed_at >= r.low and signed_at < r.high
        and charge_id = any(${chargeIds}::uuid[])) t`,
  )
  return new Map(rows.map((row) => [userId(row.user_id), row.tickets]))
}

export interface PlacedLeaf extends Place {
  readonly leaf: Leaf
}

/** Returns a page of the tickets of these charges, in tree order, after a place. */
export async function ticketsPage(
  db: Db,
  { app, reaches, chargeIds }: TicketsOfCharges,
  { after, limit }: { after: Place | null; limit: number },
): Promise<PlacedLeaf[]> {
  const rows = await many<LeafRow>(
    db,
    sql`
    select t.event_id, t.user_id, t.session_id, t.sequence_number, t.request_id, t.manifest_id, t.pipeline, t.model_id,
           to_char(t.signed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as signed_at,
           to_char(t.received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as received_at, t.fee_wei,
           r.source, to_char(r.observed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as observed_at,
           r.usd_attos_per_eth, t.cost_attos, t.terms_id, coalesce(t.retail_attos, t.cost_attos) as retail_attos,
           coalesce(t.platform_fee_attos, 0) as platform_fee_attos, coalesce(t.platform_fee_wei, 0) as platform_fee_wei,
           t.charge_id
    from unnest(${reaches.map((reach) => reach.userId)}::uuid[], ${reaches.map(low)}::timestamptz[],
                ${reaches.map(high)}::timestamptz[]) with ordinality as u (user_id, low, high, place)
    cross join lateral (
      select *
      from tickets
      where app_id = ${app.id} and user_id = u.user_id and signed_at >= u.low and signed_at < u.high
        and charge_id = any(${chargeIds}::uuid[])
        and (${after?.userId ?? null}::uuid is null or (user_id, signed_at, event_id)
             > (${after?.userId ?? null}::uuid, ${after?.signedAt ?? null}::timestamptz, ${after?.eventId ?? null}::text collate "C"))
      order by signed_at, event_id
      limit ${limit}) t
    left join rates r on r.id = t.rate_id
    order by u.place, t.signed_at, t.event_id
    limit ${limit}`,
  )
  return rows.map((row) => placedLeaf(app, row))
}

/** Finds the ticket with this event id among these charges. */
export async function findLeaf(
  db: Db,
  tickets: TicketsOfCharges,
  eventId: string,
): Promise<Leaf | null> {
  for (let after: Place | null = null; ;) {
    const page: PlacedLeaf[] = await ticketsPage(db, tickets, { after, limit: findPage })
    const placed = page.find((ticket) => ticket.eventId === eventId)
    if (placed) return placed.leaf
    after = page.at(-1) ?? null
    if (page.length < findPage) return null
  }
}

const findPage = 1_000

interface LeafRow {
  event_id: string
  user_id: string
  session_id: string
  sequence_number: bigint
  request_id: string
  manifest_id: string
  pipeline: string
  model_id: string
  signed_at: string
  received_at: string
  fee_wei: string
  source: string | null
  observed_at: string | null
  usd_attos_per_eth: string | null
  cost_attos: string
  terms_id: bigint | null
  retail_attos: string
  platform_fee_attos: string
  platform_fee_wei: string
  charge_id: string
}

const placedLeaf = ({ clientId }: AppRef, row: LeafRow): PlacedLeaf => ({
  userId: userId(row.user_id),
  signedAt: row.signed_at,
  eventId: row.event_id,
  leaf: {
    clientId,
    eventId: row.event_id,
    endUserId: row.user_id,
    sessionId: row.session_id,
    sequenceNumber: String(row.sequence_number),
    gatewayRequestId: row.request_id,
    manifestId: row.manifest_id === '' ? row.session_id : row.manifest_id,
    pipeline: row.pipeline,
    modelId: row.model_id,
    signedAt: row.signed_at,
    receivedAt: row.received_at,
    feeWei: row.fee_wei,
    rateSource: row.source ?? '',
    rateObservedAt: row.observed_at ?? '',
    usdPerEth: toDecimal(row.usd_attos_per_eth ?? '0'),
    networkCostUsd: toDecimal(row.cost_attos),
    termsId: row.terms_id === null ? null : String(row.terms_id),
    retailCostUsd: toDecimal(row.retail_attos),
    platformFeeUsd: toDecimal(row.platform_fee_attos),
    platformFeeWei: row.platform_fee_wei,
    chargeId: row.charge_id,
  },
})
