import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import { listApps, lockInApps } from '../../shared/database/app-groups.ts'
import type { AppId } from '../../shared/ids.ts'
import { allowLongStatements } from '../store.ts'

/** Writes checkpoints. */

/** The head of one account's chain. */
export interface AccountHead {
  readonly userId: string
  readonly seq: bigint
  /** Hexadecimal; null while the account has no chained entry. */
  readonly hash: string | null
}

export interface Checkpoint {
  readonly number: bigint
  readonly createdAt: Date
  readonly snapshot: string
  readonly through: Date
  readonly users: bigint
  readonly entries: bigint
  readonly root: string
  readonly ends: Ends
  readonly head: string
}

/** Ends of an app's other chains. */
export interface Ends {
  /** Number of items in the price chain, and the hash of the last; empty without items. */
  readonly prices: bigint
  readonly pricesHash: string
  /** Day and hash of the last root; null without roots. */
  readonly receiptDay: string | null
  readonly receiptHash: string | null
}

interface CheckpointRow extends EndsRow {
  number: bigint
  created_at: Date
  snapshot: string
  through: Date
  users: bigint
  entries: bigint
  root: string
  head: string
}

const fromRow = (row: CheckpointRow): Checkpoint => ({
  number: row.number,
  createdAt: row.created_at,
  snapshot: row.snapshot,
  through: row.through,
  users: row.users,
  entries: row.entries,
  root: row.root,
  head: row.head,
  ends: endsFromRow(row),
})

interface EndsRow {
  prices: bigint
  prices_hash: string | null
  receipt_day: string | null
  receipt_hash: string | null
}

const endsFromRow = (row: EndsRow): Ends => ({
  prices: row.prices,
  pricesHash: row.prices_hash ?? '',
  receiptDay: row.receipt_day,
  receiptHash: row.receipt_hash,
})

/** Reads the ends in this transaction. */
export async function findEnds(db: Db, app: AppId): Promise<Ends> {
  const row = await one<EndsRow>(
    db,
    sql`
    select coalesce(p.number, 0) as prices, encode(p.hash, 'hex') as prices_hash,
           to_char(date '1970-01-01' + h.number::integer, 'YYYY-MM-DD') as receipt_day, encode(h.hash, 'hex') as receipt_hash
    from (select ${app}::uuid as app_id) a
    left join price_heads p on p.app_id = a.app_id
    left join book_heads h on h.app_id = a.app_id and h.kind = 'root'`,
  )
  return endsFromRow(row)
}

/** Lists checkpoints that name a lost or changed end, with the current one. */
export async function goneEnds(
  db: Db,
  app: AppId,
  limit: number,
): Promise<{ number: bigint; stored: EndColumns; expected: EndColumns }[]> {
  return many(
    db,
    sql`
    select c.number,
           jsonb_build_object('prices_hash', encode(p.hash, 'hex'), 'receipt_hash', encode(r.hash, 'hex')) as stored,
           jsonb_build_object('prices_hash', encode(nullif(c.prices_hash, ''), 'hex'), 'receipt_hash', encode(c.receipt_hash, 'hex')) as expected
    from checkpoints c
    left join price_chain p on p.app_id = c.app_id and p.number = c.prices
    left join lateral (
      select sha256(convert_to(statement, 'UTF8')) as hash
      from receipt_roots
      where app_id = c.app_id and day = c.receipt_day) r on true
    where c.app_id = ${app}
      and (p.hash is distinct from nullif(c.prices_hash, '') or r.hash is distinct from c.receipt_hash)
    order by c.number
    limit ${limit}`,
  )
}

type EndColumns = Readonly<Record<'prices_hash' | 'receipt_hash', string | null>>

/** Returns the head of a checkpoint; null when the checkpoint does not exist. */
export async function headAt(db: Db, app: AppId, number: bigint): Promise<string | null> {
  const row = await maybeOne<{ head: string }>(
    db,
    sql`
    select encode(head, 'hex') as head
    from checkpoints
    where app_id = ${app} and number = ${number}`,
  )
  return row && row.head
}

/** Makes this transaction a single snapshot and allows long statements. */
export async function beginSealing(db: Db): Promise<void> {
  await db.query(sql`set transaction isolation level repeatable read`)
  await allowLongStatements(db)
}

/** Lets one core seal an app at a time. Returns false when another core does. */
export async function tryLock(db: Db, app: AppId): Promise<boolean> {
  const row = await one<{ locked: boolean }>(
    db,
    sql`select pg_try_advisory_xact_lock(hashtext('tollgate.checkpoints'), hashtext(${app}::text)) as locked`,
  )
  return row.locked
}

export async function lastCheckpoint(db: Db, app: AppId): Promise<Checkpoint | null> {
  const row = await maybeOne<CheckpointRow>(
    db,
    sql`
    select number, created_at, snapshot::text as snapshot, through, users, entries, encode(root, 'hex') as root,
           encode(head, 'hex') as head, prices, encode(prices_hash, 'hex') as prices_hash,
           to_char(receipt_day, 'YYYY-MM-DD') as receipt_day, encode(receipt_hash, 'hex') as receipt_hash
    from checkpoints
    where app_id = ${app}
    order by number desc
    limit 1`,
  )
  return row && fromRow(row)
}

/** Returns a page of checkpoints after a number, in order. */
export async function checkpointsAfter(
  db: Db,
  { app, after, limit }: { app: AppId; after: bigint; limit: number },
): Promise<Checkpoint[]> {
  const rows = await many<CheckpointRow>(
    db,
    sql`
    select number, created_at, snapshot::text as snapshot, through, users, entries, encode(root, 'hex') as root,
           encode(head, 'hex') as head, prices, encode(prices_hash, 'hex') as prices_hash,
           to_char(receipt_day, 'YYYY-MM-DD') as receipt_day, encode(receipt_hash, 'hex') as receipt_hash
    from checkpoints
    where app_id = ${app} and number > ${after}
    order by number
    limit ${limit}`,
  )
  return rows.map(fromRow)
}

export async function insertCheckpoint(db: Db, app: AppId, checkpoint: Checkpoint): Promise<void> {
  await db.query(sql`
    insert into checkpoints (app_id, number, created_at, snapshot, through, users, entries, root, head, prices, prices_hash,
                             receipt_day, receipt_hash)
    values (${app}, ${checkpoint.number}, ${checkpoint.createdAt}, ${checkpoint.snapshot}::pg_snapshot, ${checkpoint.through}, ${checkpoint.users}, ${checkpoint.entries},
            decode(${checkpoint.root}, 'hex'), decode(${checkpoint.head}, 'hex'), ${checkpoint.ends.prices}, decode(${checkpoint.ends.pricesHash}, 'hex'),
            ${checkpoint.ends.receiptDay}::date, decode(${checkpoint.ends.receiptHash}, 'hex'))`)
}

/**
 * Returns the oldest time among apps with uncovered entries: creation of the app's newest
 * checkpoint, or of its first entry if it has no checkpoint. Null when all entries are covered.
 * Reads one or two entries per app, regardless of their number.
 */
export async function unsealedSince(db: Db): Promise<Date | null> {
  const rows = await lockInApps(db, {
    app: null,
    limit: Infinity,
    findApps: () => listApps(db),
    lock: (app) =>
      many<{ since: Date | null }>(
        db,
        sql`
    select min(coalesce(c.created_at, e.created_at)) as since
    from clients a
    left join lateral (
      select created_at, snapshot
      from checkpoints
      where app_id = coalesce(${app}, a.app_id)
      order by number desc
      limit 1) c on true
    cross join lateral (
      select created_at
      from ledger_entries
      where app_id = coalesce(${app}, a.app_id) and xact >= coalesce(pg_snapshot_xmin(c.snapshot)::text::bigint, 0)
        and (c.snapshot is null or not pg_visible_in_snapshot(xact::text::xid8, c.snapshot))
      order by xact
      limit 1) e
    where a.kind = 'public' and (${app}::uuid is null or a.app_id = ${app})`,
      ),
  })
  const times = rows.flatMap(({ since }) => since ?? [])
  return times.toSorted((a, b) => a.getTime() - b.getTime())[0] ?? null
}

export interface Extent {
  readonly snapshot: string
  /** No visible entry was booked later. */
  readonly through: Date
  readonly entries: bigint
}

/** Returns how far the ledger of an app extends in this transaction. */
export async function findExtent(db: Db, app: AppId): Promise<Extent> {
  return one(
    db,
    sql`
    select pg_current_snapshot()::text as snapshot, coalesce(max(booked_through), 'epoch') as through,
           coalesce(sum(seq), 0)::bigint as entries
    from balances
    where app_id = ${app}`,
  )
}

const pageSize = 10_000

/** Yields the heads of an app's accounts by user, from the balances. */
export async function* currentHeads(db: Db, app: AppId): AsyncGenerator<AccountHead> {
  for (let after: string | null = null; ;) {
    const page: AccountHead[] = await headsAfter(db, app, after)
    yield* page
    const last = page.at(-1)
    if (!last || page.length < pageSize) return
    after = last.userId
  }
}

async function headsAfter(db: Db, app: AppId, after: string | null): Promise<AccountHead[]> {
  const rows = await many<{ user_id: string; seq: bigint; hash: string | null }>(
    db,
    sql`
    select user_id, seq, encode(head_hash, 'hex') as hash
    from balances
    where app_id = ${app} and seq > 0 and (${after}::uuid is null or user_id > ${after}::uuid)
    order by user_id
    limit ${pageSize}`,
  )
  return rows.map((row) => ({ userId: row.user_id, seq: row.seq, hash: row.hash }))
}

/** Yields the heads of an app's accounts by user, from the entries that a checkpoint covers. */
export async function* headsAt(
  db: Db,
  app: AppId,
  { snapshot, through }: Pick<Checkpoint, 'snapshot' | 'through'>,
): AsyncGenerator<AccountHead> {
  for (let after: string | null = null; ;) {
    const users: string[] = await usersWithEntries(db, app, after)
    const last = users.at(-1)
    if (last === undefined) return
    const rows = await many<{ user_id: string; seq: bigint; hash: string | null }>(
      db,
      sql`
      select distinct on (user_id) user_id, seq, encode(hash, 'hex') as hash
      from ledger_entries
      where app_id = ${app} and user_id = any(${users}::uuid[]) and created_at <= ${through}
        and pg_visible_in_snapshot(xact::text::xid8, ${snapshot}::pg_snapshot)
      order by user_id, seq desc`,
    )
    yield* rows.map((row) => ({ userId: row.user_id, seq: row.seq, hash: row.hash }))
    if (users.length < usersAtOnce) return
    after = last
  }
}

const usersAtOnce = 500

async function usersWithEntries(db: Db, app: AppId, after: string | null): Promise<string[]> {
  const rows = await many<{ user_id: string }>(
    db,
    sql`
    select user_id
    from balances
    where app_id = ${app} and seq > 0 and (${after}::uuid is null or user_id > ${after}::uuid)
    order by user_id
    limit ${usersAtOnce}`,
  )
  return rows.map((row) => row.user_id)
}
