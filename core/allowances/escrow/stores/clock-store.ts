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

export async function forgetClocksAfter(db: Db, after: Date): Promise<void> {
  await db.query(sql`delete from sidecar_clocks where booked_through > ${after}`)
}

/** Forgets up to `limit` clocks of forgotten sidecars, those that stand before `before`. Returns how many. */
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
