import { createBatchLoader } from '../../lib/concurrency.ts'
import type { Pool } from '../../lib/sql.ts'
import type { AppId, UserId } from '../../shared/ids.ts'
import { countAppUnpriced } from './store.ts'

/** Counts a user's tickets that wait for a price. Concurrent calls share one query. */
export const createUnpricedCount = (pool: Pool) =>
  createBatchLoader(
    async (users: readonly { readonly appId: AppId; readonly userId: UserId }[]) => {
      const counts = await countAppUnpriced(pool, users)
      return ({ userId }) => counts.get(userId) ?? 0n
    },
  )
