import { hash } from 'node:crypto'
import type { Db } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'
import * as store from './store.ts'
import type { ChainedPrice, Facts, Priced, PriceHead } from './store.ts'

/**
 * Chains the prices of an app: each plan version with its bundles, and each cut (docs/ledger.md,
 * "Chain of prices"). The chain stores the facts of each row, so that `verify` can report the
 * original of an edited row.
 */

export const versionItem = (planId: string, version: number): string =>
  `plan_version ${planId} ${version}`

/** A cut begins at a whole millisecond. */
export const cutItem = (since: Date): string => `cut ${since.toISOString().replace('Z', '000Z')}`

/** Chains a row in the transaction that writes it. */
export async function chainPrice(db: Db, app: AppId, item: string): Promise<void> {
  const head = await store.lockHead(db, app)
  const rows = await store.findPriced(db, app, [item])
  if (rows.length === 0) throw new Error(`${item} was not written before it was chained`)
  await store.appendItems(db, app, follow(app, head, rows))
}

function follow(app: AppId, head: PriceHead, rows: readonly Priced[]): ChainedPrice[] {
  let previous = head
  return rows.map((row) => {
    const number = previous.number + 1n
    const item = { ...row, number, hash: hashPrice(app, previous.hash, { ...row, number }) }
    previous = item
    return item
  })
}

/**
 * Returns the hash, in hexadecimal, of the item after the one with hash `previous`, which is empty
 * for the first item.
 */
export function hashPrice(
  app: string,
  previous: string,
  { number, item, facts }: Omit<ChainedPrice, 'hash'>,
): string {
  const columns = Object.entries(facts).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return hash('sha256', JSON.stringify([previous, app, String(number), item, columns]), 'hex')
}

/** Reads of the chain, for `verify`. */
export const priceReads = {
  hashPrice,
  findHead: store.findHead,
  chainAfter: store.chainAfter,
  findPriced: store.findPriced,
  unchained: store.unchained,
}

export type PriceReads = typeof priceReads
export type { ChainedPrice, Facts, Priced, PriceHead }
