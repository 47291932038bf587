import { plainArray, textArray } from '../../../lib/copy-sql.ts'
import { type Db, sql } from '../../../lib/sql.ts'

/** Writes sidecar_clocks. What the functions promise is in `port.ts`. */

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
