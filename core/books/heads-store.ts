import { type Db, maybeOne, sql } from '../lib/sql.ts'
import type { AppId } from '../platform/ids.ts'
import type { Columns, DifferentRow } from './types.ts'

/** Writes book_heads: the last checkpoint and the last root of each app. */

export type HeadKind = 'checkpoint' | 'root'

/** A row of a chain. */
export interface Link {
  /** Of a checkpoint its number, of a root its day, in days since 1970. */
  readonly number: bigint
  /** Hexadecimal. */
  readonly hash: string
}

export async function findHead(db: Db, app: AppId, kind: HeadKind): Promise<Link | null> {
  return maybeOne<Link>(
    db,
    sql`
    select number, encode(hash, 'hex') as hash
    from book_heads
    where app_id = ${app} and kind = ${kind}`,
  )
}

export async function saveHead(
  db: Db,
  app: AppId,
  { kind, number, hash }: Link & { readonly kind: HeadKind },
): Promise<void> {
  await db.query(sql`
    insert into book_heads (app_id, kind, number, hash)
    values (${app}, ${kind}, ${number}, decode(${hash}, 'hex'))
    on conflict (app_id, kind) do update
    set number = excluded.number, hash = excluded.hash`)
}

/** A chain of an app, as its rows are. */
export interface StoredChain {
  readonly kind: HeadKind
  /** Null without rows. */
  readonly last: Link | null
  /** The hash of a row; null when it is missing. */
  readonly hashAt: (number: bigint) => Promise<string | null>
}

/**
 * The row that the next one follows. When the row of the head is missing or another one, that is the head: then the next
 * row names what is gone, and no later one hides it. A row behind the head is an older core's.
 */
export async function linkToFollow(db: Db, app: AppId, chain: StoredChain): Promise<Link | null> {
  const head = await findHead(db, app, chain.kind)
  return head && (await chain.hashAt(head.number)) !== head.hash ? head : chain.last
}

/** The head, when its row is missing or another one; and rows without a head. */
export async function headDifferences(
  db: Db,
  app: AppId,
  chain: StoredChain & { readonly keyOf: (number: bigint) => DifferentRow['key'] },
): Promise<DifferentRow[]> {
  const head = await findHead(db, app, chain.kind)
  const link = head ?? chain.last
  if (!link) return []
  const stored = head && (await chain.hashAt(head.number))
  if (stored === head?.hash) return []
  const of = (hash: string | null): Columns => ({ last: hash })
  const row = { userId: null, externalUserId: null, key: chain.keyOf(link.number) }
  return [{ ...row, stored: of(stored), expected: of(link.hash) }]
}
