import { usdAttos } from '../../../lib/money.ts'
import { type Db, one, sql } from '../../../lib/sql.ts'

/** Reads what is held. */

/** Held money of all users, by the leases and authorisations themselves, which are far fewer than users. */
export async function heldMoney(db: Db) {
  const row = await one<{ lent: string; pending: string }>(
    db,
    sql`
    select (select coalesce(sum(amount_attos - used_attos), 0) from leases) as lent,
           (select coalesce(sum(bound_attos), 0) from authorisations where state = 'pending') as pending`,
  )
  return { lent: usdAttos(BigInt(row.lent)), pending: usdAttos(BigInt(row.pending)) }
}
