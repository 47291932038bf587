import { type Db, many, one, sql } from '../../lib/sql.ts'
import type { Entry, NewEntry, Rest } from './types.ts'

/** Writes entries in the caller's transaction, so that they are delivered only if it commits. */
export async function enqueue(db: Db, entries: readonly NewEntry[], at: Date): Promise<void> {
  if (entries.length === 0) return
  await db.query(sql`
    insert into outbox (kind, payload, item_count, due_at, created_at)
    select kind, payload, item_count, ${at}::timestamptz, ${at}::timestamptz
    from unnest(${entries.map((e) => e.kind)}::text[], ${entries.map((e) => e.payload)}::bytea[],
                ${entries.map((e) => e.itemCount)}::integer[]) as e (kind, payload, item_count)`)
}

export interface Claim {
  readonly kind: string
  readonly at: Date
  /** End of the lease. No other core claims the entries before. */
  readonly until: Date
  readonly items: number
  readonly bytes: number
}

const rowsAtOnce = 500

/**
 * Claims the entries that have been due longest: at least one, within the bounds, and none that
 * another core has claimed.
 */
export async function claim(db: Db, { kind, at, until, items, bytes }: Claim): Promise<Entry[]> {
  const rows = await many<{ id: bigint; payload: Buffer; item_count: number; attempts: number }>(
    db,
    sql`
    with due as materialized (
      select id, due_at, item_count, octet_length(payload) as bytes
      from outbox
      where kind = ${kind} and set_aside_at is null and due_at <= ${at}
      order by due_at, id
      limit ${rowsAtOnce}
      for update skip locked
    ), counted as (
      select id, row_number() over due_first as place, sum(item_count) over due_first as items, sum(bytes) over due_first as bytes
      from due
      window due_first as (order by due_at, id)
    )
    update outbox o
    set due_at = ${until}
    from counted c
    where o.id = c.id and (c.place = 1 or (c.items <= ${items} and c.bytes <= ${bytes}))
    returning o.id, o.payload, o.item_count, o.attempts`,
  )
  return rows
    .map((row) => ({
      id: row.id,
      payload: row.payload,
      itemCount: row.item_count,
      attempts: row.attempts,
    }))
    .sort((a, b) => (a.id < b.id ? -1 : 1))
}

export async function remove(db: Db, ids: readonly bigint[]): Promise<void> {
  if (ids.length === 0) return
  await db.query(sql`delete from outbox where id = any(${ids}::bigint[])`)
}

export interface Postponed {
  readonly id: bigint
  readonly dueAt: Date
  readonly attempts: number
  readonly error: string
  readonly rest: Rest | undefined
  readonly setAsideAt: Date | null
}

/**
 * Returns an entry to the queue, or sets it aside for an operator, unless its lease (`held`) has
 * passed to another core.
 */
export async function putBack(
  db: Db,
  { id, dueAt, attempts, error, rest, setAsideAt }: Postponed,
  held: Date,
): Promise<void> {
  await db.query(sql`
    update outbox
    set due_at = ${dueAt}, attempts = ${attempts}, last_error = ${error}, set_aside_at = ${setAsideAt},
        payload = coalesce(${rest?.payload ?? null}::bytea, payload),
        item_count = coalesce(${rest?.itemCount ?? null}::integer, item_count)
    where id = ${id} and due_at = ${held}`)
}

/** Makes set-aside entries due again. Returns their number. */
export async function retrySetAside(db: Db, at: Date): Promise<number> {
  const { rowCount } = await db.query(sql`
    update outbox
    set set_aside_at = null, attempts = 0, due_at = ${at}
    where set_aside_at is not null`)
  return rowCount ?? 0
}

export interface SetAsideRow {
  readonly id: bigint
  readonly kind: string
  readonly itemCount: number
  readonly error: string
  readonly createdAt: Date
  readonly setAsideAt: Date
}

/** Set-aside rows, oldest first. */
export async function listSetAside(db: Db, limit: number): Promise<SetAsideRow[]> {
  const rows = await many<{
    id: bigint
    kind: string
    item_count: number
    last_error: string | null
    created_at: Date
    set_aside_at: Date
  }>(
    db,
    sql`
    select id, kind, item_count, last_error, created_at, set_aside_at
    from outbox
    where set_aside_at is not null
    order by set_aside_at, id
    limit ${limit}`,
  )
  return rows.map((row) => ({
    id: row.id,
    kind: row.kind,
    itemCount: row.item_count,
    error: row.last_error ?? '',
    createdAt: row.created_at,
    setAsideAt: row.set_aside_at,
  }))
}

const countBound = 100_000

/** The numbers of waiting rows and of set-aside rows, each counted up to a hundred thousand. */
export async function figures(db: Db): Promise<{ waiting: number; setAside: number }> {
  const row = await one<{ waiting: bigint; set_aside: bigint }>(
    db,
    sql`
    select (select count(*) from (select 1 from outbox where set_aside_at is null limit ${countBound}) w) as waiting,
           (select count(*) from (select 1 from outbox where set_aside_at is not null limit ${countBound}) a) as set_aside`,
  )
  return { waiting: Number(row.waiting), setAside: Number(row.set_aside) }
}

/** Creation time of the oldest waiting row; null if no row waits. */
export async function waitingSince(db: Db): Promise<Date | null> {
  const row = await one<{ oldest: Date | null }>(
    db,
    sql`select min(created_at) as oldest from outbox where set_aside_at is null`,
  )
  return row.oldest
}

/**
 * The number of undelivered items of a kind, set aside or not, counted in at most a hundred
 * thousand rows.
 */
export async function countItems(db: Db, kind: string): Promise<number> {
  const row = await one<{ items: bigint }>(
    db,
    sql`
    select coalesce(sum(item_count), 0)::bigint as items
    from (select item_count from outbox where kind = ${kind} limit ${countBound}) o`,
  )
  return Number(row.items)
}
