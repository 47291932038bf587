import { type AppId, type UserId, userId } from '../../shared/ids.ts'
import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import type { Day } from './store.ts'

/** Writes `receipt_chunks`. */

/** Position of a ticket in the order of a tree. */
export interface Place {
  readonly userId: UserId
  /** UTC with microseconds. */
  readonly signedAt: string
  readonly eventId: string
}

/** A subtree, with the place of its first ticket. */
export interface Chunk extends Place {
  readonly number: number
  readonly hash: Buffer
  /** Hashes of its leaves. */
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

/** Returns the hashes of all chunks of a tree, in order. */
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

/** Returns the chunk with this number, or null. */
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

/** Returns the chunk that contains a ticket; null if the ticket precedes all chunks. */
export async function findChunk(
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
