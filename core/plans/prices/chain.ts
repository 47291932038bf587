import { hash } from 'node:crypto'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Log } from '../../lib/log.ts'
import type { AppId } from '../../platform/ids.ts'
import * as store from './store.ts'
import type { ChainedPrice, Facts, Priced, PriceHead } from './store.ts'

/**
 * Chains the prices of an app: each plan version with its bundles, and each cut (docs/ledger.md,
 * "Chain of prices"). The chain stores the facts of each row, so that `verify` can report the
 * original of an edited row.
 */

const pageSize = 500

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

/**
 * Chains rows that are older than the chain, and rows written by an older core during an upgrade.
 * Runs when core starts. Warns when an app that has a chain has rows outside it: unless an upgrade
 * is running, they were written by SQL.
 */
export async function chainEarlierPrices(pool: Pool, log: Log): Promise<void> {
  for (let after: AppId | null = null; ;) {
    const apps: AppId[] = await store.appsWithUnchained(pool, { after, limit: pageSize })
    for (const appId of apps) {
      const { first, count } = await tx(pool, (db) => chainUnchained(db, appId))
      // Another core has chained them since they were listed.
      if (count === 0) continue
      if (first === 1n) log.info({ appId, count }, 'prices older than the chain were added to it')
      else
        log.warn(
          { appId, first: String(first), count },
          'prices that core had not chained were added to the chain',
        )
    }
    after = apps.at(-1) ?? null
    if (after === null || apps.length < pageSize) return
  }
}

/** Returns the number of the first new item, and how many are new. */
async function chainUnchained(db: Db, app: AppId): Promise<{ first: bigint; count: number }> {
  let head = await store.lockHead(db, app)
  const first = head.number + 1n
  for (let count = 0; ;) {
    const rows = await store.unchained(db, app, pageSize)
    if (rows.length === 0) return { first, count }
    const items = follow(app, head, rows)
    await store.appendItems(db, app, items)
    head = items.at(-1) ?? head
    count += items.length
  }
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
