import { plainArray, textArray } from '../../../lib/copy-sql.ts'
import { type Db, sql } from '../../../lib/sql.ts'

/** Writes sidecar_clocks. The functions are documented in `port.ts`. */

export async function advanceClocks(db: Db, clocks: ReadonlyMap<string, Date>): Promise<void> {
  const inOrder = [...clocks].sort(([a], [b]) => (a < b ? -1 : 1))
  await db.query(sql`
    insert into sidecar_clocks as c (sidecar_id, booked_through)
    select sidecar_id, booked_through
    from unnest(
      ${textArray(inOrder.map(([id]) => id))}::text[],
      ${plainArray(inOrder.map(([, through]) => through.toISOString()))}::timestamptz[]) with ordinality
      as t (sidecar_id, booked_through, position)
    order by position
    on conflict (sidecar_id) do update
    set booked_through = excluded.booked_through
    where c.booked_through < excluded.booked_through`)
}

export async function forgetClocksAfter(db: Db, after: Date): Promise<void> {
  await db.query(sql`delete from sidecar_clocks where booked_through > ${after}`)
}

/**
 * Deletes up to `limit` clocks that are earlier than `before` and belong to deleted sidecars.
 * Returns the number deleted.
 */
export async function forgetClocks(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from sidecar_clocks
    where ctid = any(array(
      select c.ctid
      from sidecar_clocks c
      where c.booked_through < ${before} and not exists (select 1 from sidecars s where s.id = c.sidecar_id)
      limit ${limit}
      for update of c skip locked))`)
  return rowCount ?? 0
}
