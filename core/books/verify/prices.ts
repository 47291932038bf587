import type { PriceReads } from '../../plans/prices/chain.ts'
import type { Db } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Columns, DifferentRow } from '../types.ts'

/** Compares an app's prices with its price chain (docs/ledger.md, "Chain of prices"). */

const pageSize = 500
/** Limit of reported rows without an item; more have the same cause. */
const unchainedMax = 100

/**
 * Finds plan versions, bundles and cuts that were edited, removed or inserted, and a broken or
 * truncated chain.
 */
export async function* priceChainDifferences(
  db: Db,
  app: AppId,
  prices: PriceReads,
): AsyncGenerator<DifferentRow> {
  let last = { number: 0n, hash: '' }
  for (;;) {
    const page = await prices.chainAfter(db, { app, after: last.number, limit: pageSize })
    const rows = await prices.findPriced(
      db,
      app,
      page.map(({ item }) => item),
    )
    const stored = new Map(rows.map(({ item, facts }) => [item, facts]))
    for (const price of page) {
      const key = { price: String(price.number), item: price.item }
      yield rowOf(key, stored.get(price.item) ?? null, price.facts)
      const hash = prices.hashPrice(app, last.hash, price)
      const [number, expected] = [String(price.number), String(last.number + 1n)]
      yield rowOf(key, { number, hash: price.hash }, { number: expected, hash })
      last = price
    }
    if (page.length < pageSize) break
  }
  const head = await prices.findHead(db, app)
  yield rowOf({ price: 'last' }, headOf(last), headOf(head ?? { number: 0n, hash: '' }))
  for (const { item } of await prices.unchained(db, app, unchainedMax))
    yield rowOf({ item }, { chained: 'false' }, { chained: 'true' })
}

const headOf = ({ number, hash }: { number: bigint; hash: string }): Columns => ({
  number: String(number),
  hash,
})

const rowOf = (
  key: DifferentRow['key'],
  stored: Columns | null,
  expected: Columns,
): DifferentRow => ({ userId: null, externalUserId: null, key, stored, expected })
