import type { Pool } from 'pg'
import { tx } from '../../../core/lib/sql.ts'
import { chainPrice, priceReads } from '../../../core/plans/prices/chain.ts'
import { appId } from '../../../core/shared/ids.ts'

/** Chains the prices of all apps that were inserted by SQL. */
export async function chainInserted(pool: Pool): Promise<void> {
  const { rows } = await pool.query<{ id: string }>('select id from apps')
  for (const app of rows.map(({ id }) => appId(id)))
    await tx(pool, async (db) => {
      for (const { item } of await priceReads.unchained(db, app, 1_000))
        await chainPrice(db, app, item)
    })
}
