import type { UsdAttos } from '../../lib/money.ts'
import { type Db, sql } from '../../lib/sql.ts'
import type { UserKey } from '../../shared/ids.ts'

/** Writes prorations, append-only. */

export interface Proration extends UserKey {
  /** Start of the period that the change began. */
  readonly periodStart: Date
  /** Start of the period that it ended. */
  readonly endedStart: Date
  readonly planId: string
  readonly amount: UsdAttos
  /** The unused included usage if it decided the amount; null if the unused time did. */
  readonly unused: UsdAttos | null
}

export async function insertProration(db: Db, row: Proration): Promise<void> {
  await db.query(sql`
    insert into prorations (app_id, user_id, period_start, ended_start, plan_id, amount_attos, unused_attos)
    values (${row.appId}, ${row.userId}, ${row.periodStart}, ${row.endedStart}, ${row.planId}, ${row.amount},
            ${row.unused})`)
}
