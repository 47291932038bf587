import { createBatchLoader } from '../../lib/concurrency.ts'
import type { Pool } from '../../lib/sql.ts'
import type { AppId, UserId } from '../../platform/ids.ts'
import { countUnpricedOf } from './store.ts'

/** How many tickets of a user wait for their price: one look-up for all who ask at the same time. */
export const createUnpricedCount = (pool: Pool) =>
  createBatchLoader(
    async (users: readonly { readonly appId: AppId; readonly userId: UserId }[]) => {
      const counts = await countUnpricedOf(pool, users)
      return ({ userId }) => counts.get(userId) ?? 0n
    },
  )
