import { type Db, maybeOne, sql } from '../../lib/sql.ts'
import type { ProcessorKind } from './config.ts'

/** Writes payment_processor. */

export async function saveKind(db: Db, kind: ProcessorKind): Promise<void> {
  await db.query(sql`
    insert into payment_processor (kind)
    values (${kind})
    on conflict (is_row) do update
    set kind = excluded.kind`)
}

/** Returns the deployment's payment processor; null before core's first start. */
export async function findKind(db: Db): Promise<ProcessorKind | null> {
  const row = await maybeOne<{ kind: ProcessorKind }>(db, sql`select kind from payment_processor`)
  return row && row.kind
}
