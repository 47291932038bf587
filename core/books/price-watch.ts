import { tx } from '../lib/sql.ts'
import type { PriceReads } from '../plans/prices/chain.ts'
import type { Shared } from '../shared/shared.ts'
import { forApps } from './ranges.ts'
import { beginSnapshot } from './store.ts'
import type { AppRef } from './types.ts'
import { toDifferences } from './verify/differences.ts'
import { priceChainDifferences } from './verify/prices.ts'

export interface PriceWatchDeps extends Pick<Shared, 'pool' | 'log'> {
  readonly prices: PriceReads
}

/** Limit of log lines per app and round; `tollgate verify` prints all differences. */
const loggedMax = 20

/**
 * Compares prices with their chain while core runs, so that an edit is found before the next
 * `tollgate verify`.
 */
export function createPriceWatch({ pool, log, prices }: PriceWatchDeps) {
  let differences = 0

  async function check(signal: AbortSignal): Promise<void> {
    let count = 0
    const compare = async (app: AppRef): Promise<void> => void (count += await checkApp(app))
    await forApps(pool, { clientId: undefined, parallel: 1, signal }, compare)
    differences = count
  }

  const checkApp = (app: AppRef): Promise<number> =>
    tx(pool, async (db) => {
      await beginSnapshot(db)
      let count = 0
      for await (const difference of priceChainDifferences(db, app.id, prices))
        for (const { row, column, stored, expected } of toDifferences('price_chain', difference)) {
          count += 1
          if (count <= loggedMax)
            log.error({ appId: app.id, row, column, stored, expected }, 'a price was changed')
        }
      return count
    })

  return { check, differences: (): number => differences }
}
