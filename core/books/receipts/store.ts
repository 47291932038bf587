import { escapeLiteral } from 'pg'
import { type AppId, type UserId, appId, userId } from '../../platform/ids.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { AppRef } from '../types.ts'
import { type Leaf, decimalOf } from './leaf.ts'

/** Writes `receipt_days`, `receipt_roots` and `receipt_chunks`, and reads the tickets between two cuts. */

/** `YYYY-MM-DD`. */
export type Day = string

export interface Cut {
  readonly day: Day
  readonly cutAt: Date
}

/** What was booked between the cuts of two days: what the later one saw and the earlier one did not. */
export interface Window extends Cut {
  readonly snapshot: string
  readonly previous: string
}

/** Lets one core cut at a time, so that days are in the order of their snapshots. */
export async function lockCuts(db: Db): Promise<void> {
  await db.query(sql`select pg_advisory_xact_lock(hashtext('tollgate.receipt-days'))`)
}

/** Cuts a day, unless it or a later one is cut. The first of all has no roots to be built. */
export async function insertCut(db: Db, { day, cutAt }: Cut): Promise<void> {
  await db.query(sql`
    insert into receipt_days (day, cut_at, snapshot, built_at)
    select ${day}::date, ${cutAt}, pg_current_snapshot(),
           case when not exists (select 1 from receipt_days) then ${cutAt}::timestamptz end
    where not exists (select 1 from receipt_days where day >= ${day}::date)`)
}

interface WindowRow {
  day: Day
  cut_at: Date
  snapshot: string
  previous: string
}

const toWindow = ({ cut_at: cutAt, ...row }: WindowRow): Window => ({ ...row, cutAt })

/** The days whose roots are still to be built, the oldest first. */
export async function windowsToBuild(db: Db, limit: number): Promise<Window[]> {
  const rows = await many<WindowRow>(
    db,
    sql`
    select to_char(d.day, 'YYYY-MM-DD') as day, d.cut_at, d.snapshot::text as snapshot, p.snapshot::text as previous
    from receipt_days d
    cross join lateral (
      select snapshot
      from receipt_days
      where day < d.day
      order by day desc
      limit 1) p
    where d.built_at is null
    order by d.day
    limit ${limit}`,
  )
  return rows.map(toWindow)
}

/** The day of a cut, with the cut before. Null for the first. */
export async function windowOf(db: Db, day: Day): Promise<Window | null> {
  const row = await maybeOne<WindowRow>(
    db,
    sql`
    select to_char(d.day, 'YYYY-MM-DD') as day, d.cut_at, d.snapshot::text as snapshot, p.snapshot::text as previous
    from receipt_days d
    join receipt_days p on p.day = (select max(day) from receipt_days where day < d.day)
    where d.day = ${day}::date`,
  )
  return row && toWindow(row)
}

export async function markBuilt(db: Db, day: Day, at: Date): Promise<void> {
  await db.query(sql`
    update receipt_days set built_at = ${at} where day = ${day}::date and built_at is null`)
}

/** Since when roots are missing: the oldest cut without all of its own, or the end of a day that is not cut; null for none. */
export async function unbuiltSince(db: Db, at: Date): Promise<Date | null> {
  const row = await one<{ since: Date | null }>(
    db,
    sql`
    select coalesce(
             min(cut_at) filter (where built_at is null),
             case when max(day) + 2 <= (${at}::timestamptz at time zone 'UTC')::date
               then (max(day) + 2)::timestamp at time zone 'UTC' end) as since
    from receipt_days`,
  )
  return row.since
}

/** The day whose cut was the first to see a charge, as the ledger numbers it; null while it is not cut. */
export async function dayOfCharge(
  db: Db,
  { app, user, seq }: { app: AppId; user: UserId; seq: bigint },
): Promise<Day | null> {
  const row = await maybeOne<{ day: Day }>(
    db,
    sql`
    select to_char(d.day, 'YYYY-MM-DD') as day
    from ledger_entries e
    join receipt_days d on pg_visible_in_snapshot(e.xact::text::xid8, d.snapshot)
    where e.app_id = ${app} and e.user_id = ${user} and e.seq = ${seq}
    order by d.day
    limit 1`,
  )
  return row && row.day
}

/** Lets one core build roots at a time; false when another does. Held until the transaction ends. */
export async function tryBuilding(db: Db): Promise<boolean> {
  const row = await one<{ locked: boolean }>(
    db,
    sql`select pg_try_advisory_xact_lock(hashtext('tollgate.receipt-roots')) as locked`,
  )
  return row.locked
}

/** Apps with charges of a window and without the root of its day, by id. */
export async function appsWithoutRoot(
  db: Db,
  { day, snapshot, previous }: Window,
  { of, limit }: { readonly of: AppId | null; readonly limit: number },
): Promise<AppRef[]> {
  const rows = await many<{ app_id: string; client_id: string }>(
    db,
    sql`
    select c.app_id, c.client_id
    from clients c
    where c.kind = 'public' and (${of}::uuid is null or c.app_id = ${of})
      and not exists (select 1 from receipt_roots where app_id = c.app_id and day = ${day}::date)
      and exists (
        select 1
        from ledger_entries e
        where e.app_id = c.app_id and e.kind = 'charge'
          and e.xact >= pg_snapshot_xmin(${previous}::pg_snapshot)::text::bigint
          and e.xact < pg_snapshot_xmax(${snapshot}::pg_snapshot)::text::bigint
          and pg_visible_in_snapshot(e.xact::text::xid8, ${snapshot}::pg_snapshot)
          and not pg_visible_in_snapshot(e.xact::text::xid8, ${previous}::pg_snapshot))
    order by c.app_id
    limit ${limit}`,
  )
  return rows.map((row) => ({ id: appId(row.app_id), clientId: row.client_id }))
}

export interface RootRow {
  readonly day: Day
  readonly treeSize: number
  readonly rootHash: Buffer
  readonly statement: string
  readonly jwk: Readonly<Record<string, string>>
  readonly createdAt: Date
}

interface RootColumns {
  day: Day
  tree_size: bigint
  root_hash: Buffer
  statement: string
  jwk: Readonly<Record<string, string>>
  created_at: Date
}

const toRoot = (row: RootColumns): RootRow => ({
  day: row.day,
  treeSize: Number(row.tree_size),
  rootHash: row.root_hash,
  statement: row.statement,
  jwk: row.jwk,
  createdAt: row.created_at,
})

/** The roots of an app from a day on, the oldest first. */
export async function rootsFrom(
  db: Db,
  { app, from, to, limit }: { app: AppId; from: Day; to: Day; limit: number },
): Promise<RootRow[]> {
  const rows = await many<RootColumns>(
    db,
    sql`
    select to_char(day, 'YYYY-MM-DD') as day, tree_size, root_hash, statement, jwk, created_at
    from receipt_roots
    where app_id = ${app} and day >= ${from}::date and day <= ${to}::date
    order by receipt_roots.day
    limit ${limit}`,
  )
  return rows.map(toRoot)
}

/** A page of an app's roots after a day, the oldest first. */
export async function rootsAfter(
  db: Db,
  { app, after, limit }: { app: AppId; after: Day | null; limit: number },
): Promise<RootRow[]> {
  const rows = await many<RootColumns>(
    db,
    sql`
    select to_char(day, 'YYYY-MM-DD') as day, tree_size, root_hash, statement, jwk, created_at
    from receipt_roots
    where app_id = ${app} and (${after}::date is null or day > ${after}::date)
    order by receipt_roots.day
    limit ${limit}`,
  )
  return rows.map(toRoot)
}

/** The days whose roots are made on which an app was charged, and which have none of it. */
export async function daysWithoutRoot(db: Db, app: AppId): Promise<Day[]> {
  const rows = await many<{ day: Day }>(
    db,
    sql`
    select to_char(d.day, 'YYYY-MM-DD') as day
    from (
      select day, snapshot, built_at, lag(snapshot) over (order by day) as previous
      from receipt_days) d
    where d.built_at is not null and d.previous is not null
      and not exists (select 1 from receipt_roots where app_id = ${app} and day = d.day)
      and exists (
        select 1
        from ledger_entries e
        where e.app_id = ${app} and e.kind = 'charge' and e.xact >= pg_snapshot_xmin(d.previous)::text::bigint
          and e.xact < pg_snapshot_xmax(d.snapshot)::text::bigint
          and pg_visible_in_snapshot(e.xact::text::xid8, d.snapshot)
          and not pg_visible_in_snapshot(e.xact::text::xid8, d.previous))
    order by d.day
    limit 100`,
  )
  return rows.map((row) => row.day)
}

/** The last statement of an app before a day. */
export async function statementBefore(db: Db, app: AppId, day: Day): Promise<string | null> {
  const row = await maybeOne<{ statement: string }>(
    db,
    sql`
    select statement
    from receipt_roots
    where app_id = ${app} and day < ${day}::date
    order by day desc
    limit 1`,
  )
  return row && row.statement
}

export async function insertRoot(db: Db, app: AppId, root: RootRow): Promise<void> {
  await db.query(sql`
    insert into receipt_roots (app_id, day, tree_size, root_hash, statement, jwk, created_at)
    values (${app}, ${root.day}::date, ${root.treeSize}, ${root.rootHash}, ${root.statement}, ${root.jwk}, ${root.createdAt})`)
}

/** Where a ticket stands in the order of a tree. */
export interface Place {
  readonly userId: UserId
  /** UTC with microseconds. */
  readonly signedAt: string
  readonly eventId: string
}

/** A subtree with its first ticket. */
export interface Chunk extends Place {
  readonly number: number
  readonly hash: Buffer
  /** The hashes of its leaves. */
  readonly leaves: readonly Buffer[]
}

const hashBytes = 32

export async function insertChunk(
  db: Db,
  { app, day }: { app: AppId; day: Day },
  chunk: Chunk,
): Promise<void> {
  await db.query(sql`
    insert into receipt_chunks (app_id, day, number, user_id, signed_at, event_id, hash, leaves)
    values (${app}, ${day}::date, ${chunk.number}, ${chunk.userId}, ${chunk.signedAt}, ${chunk.eventId}, ${chunk.hash},
            ${Buffer.concat(chunk.leaves)})`)
}

/** The hashes of all chunks of a tree, in order. */
export async function chunkHashes(db: Db, app: AppId, day: Day): Promise<Buffer[]> {
  const rows = await many<{ hash: Buffer }>(
    db,
    sql`
    select hash
    from receipt_chunks
    where app_id = ${app} and day = ${day}::date
    order by number`,
  )
  return rows.map((row) => row.hash)
}

/** The chunk of a number; null when there is none. */
export async function chunkAt(
  db: Db,
  { app, day }: { app: AppId; day: Day },
  number: number,
): Promise<Chunk | null> {
  const row = await maybeOne<{
    user_id: string
    signed_at: string
    event_id: string
    hash: Buffer
    leaves: Buffer
  }>(
    db,
    sql`
    select user_id, to_char(signed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as signed_at, event_id, hash, leaves
    from receipt_chunks
    where app_id = ${app} and day = ${day}::date and number = ${number}`,
  )
  return (
    row && {
      number,
      userId: userId(row.user_id),
      signedAt: row.signed_at,
      eventId: row.event_id,
      hash: row.hash,
      leaves: leavesIn(row.leaves),
    }
  )
}

const leavesIn = (bytes: Buffer): Buffer[] =>
  Array.from({ length: bytes.length / hashBytes }, (_, i) =>
    bytes.subarray(i * hashBytes, (i + 1) * hashBytes),
  )

/** The chunk that a ticket is in; null when it comes before all of them. */
export async function chunkOf(
  db: Db,
  { app, day }: { app: AppId; day: Day },
  { userId: user, signedAt, eventId }: Place,
): Promise<Pick<Chunk, 'number' | 'leaves'> | null> {
  const row = await maybeOne<{ number: number; leaves: Buffer }>(
    db,
    sql`
    select number, leaves
    from receipt_chunks
    where app_id = ${app} and day = ${day}::date
      and (user_id, signed_at, event_id) <= (${user}::uuid, ${signedAt}::timestamptz, ${eventId}::text collate "C")
    order by number desc
    limit 1`,
  )
  return row && { number: row.number, leaves: leavesIn(row.leaves) }
}

/** What a user was charged for in a window: how many tickets, and between which entries and times it was booked. */
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
  return `app_id = ${escapeLiteral(app)} and kind = 'charge'
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

/** The rows of a query, piece by piece. Runs inside a transaction, where one cursor of a name may be open at a time. */
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
 * The users of an app with charges of a window, by id; some hundred of them in memory. Runs inside a transaction, where one
 * such reading may be open at a time.
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
 * What some users were charged by in a window: at most as many ids as they have tickets in it. Runs inside a transaction,
 * where one such reading may be open at a time.
 */
export async function chargeIdsOf(
  db: Db,
  { app, window }: { readonly app: AppId; readonly window: Window },
  users: readonly ChargedUser[],
): Promise<string[]> {
  const arrayOf = (values: readonly unknown[]): string => escapeLiteral(`{${values.join(',')}}`)
  // Between the first and the last of a user, the primary key leads to them.
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

/** The signing times between which the tickets of a user are looked for; open where null. */
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

/** How many tickets of these charges each user has there. */
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

/** A page of the tickets of these charges in the order of the tree, after a place. */
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

/** The ticket of an event id among these. */
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
    usdPerEth: decimalOf(row.usd_attos_per_eth ?? '0'),
    networkCostUsd: decimalOf(row.cost_attos),
    termsId: row.terms_id === null ? null : String(row.terms_id),
    retailCostUsd: decimalOf(row.retail_attos),
    platformFeeUsd: decimalOf(row.platform_fee_attos),
    platformFeeWei: row.platform_fee_wei,
    chargeId: row.charge_id,
  },
})
