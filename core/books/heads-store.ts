import { type Db, maybeOne, sql } from '../lib/sql.ts'
import type { AppId } from '../shared/ids.ts'
import type { Columns, DifferentRow } from './types.ts'

/** Writes book_heads: the last checkpoint and the last root of each app. */

export type HeadKind = 'checkpoint' | 'root'

/** A row of a chain. */
export interface Link {
  /** Number of the checkpoint, or day of the root in days since 1970. */
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

/** The stored rows of an app's chain. */
export interface StoredChain {
  readonly kind: HeadKind
  /** Null when the chain is empty. */
  readonly last: Link | null
  /** Returns the hash of a row; null when it is missing. */
  readonly hashAt: (number: bigint) => Promise<string | null>
}

/**
 * Returns the link that the next row must follow, normally the last row. If the head's row is
 * missing or changed, returns the head instead: then the next row names the lost hash, and later
 * rows cannot hide the loss. An older core writes rows after the head.
 */
export async function linkToFollow(db: Db, app: AppId, chain: StoredChain): Promise<Link | null> {
  const head = await findHead(db, app, chain.kind)
  return head && (await chain.hashAt(head.number)) !== head.hash ? head : chain.last
}

/** Reports the head if its row is missing or changed, and rows without a head. */
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
  const toColumns = (hash: string | null): Columns => ({ last: hash })
  const row = { userId: null, externalUserId: null, key: chain.keyOf(link.number) }
  return [{ ...row, stored: toColumns(stored), expected: toColumns(link.hash) }]
}
