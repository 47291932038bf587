import { usdAttos } from '../../../lib/money.ts'
import { type Db, one, sql } from '../../../lib/sql.ts'

/** Reads what is held. */

/** Held money of all users, by the leases and authorisations themselves, which are far fewer than users. */
export async function heldMoney(db: Db, at: Date) {
  const row = await one<{ lent: string; orphaned: string; pending: string }>(
    db,
    sql`
    select (select coalesce(sum(amount_attos - used_attos), 0) from leases) as lent,
           (select coalesce(sum(amount_attos - used_attos), 0) from leases where ends_at <= ${at}) as orphaned,
           (select coalesce(sum(bound_attos), 0) from authorisations where state = 'pending') as pending`,
  )
  return {
    lent: usdAttos(BigInt(row.lent)),
    orphaned: usdAttos(BigInt(row.orphaned)),
    pending: usdAttos(BigInt(row.pending)),
  }
}

/**
 * By how many seconds the latest call of a sidecar is past its stream clock, or past its oldest call without a ticket where
 * that is later; the most of all sidecars. It grows only while calls are allowed and no event of theirs comes.
 */
export async function secondsBehind(db: Db, at: Date): Promise<number> {
  const row = await one<{ seconds: number }>(
    db,
    sql`
    select coalesce(max(extract(epoch from least(s.last_authorised_at, ${at}) - greatest(c.booked_through, a.authorised_at))), 0)::float8 as seconds
    from sidecars s
    left join sidecar_clocks c on c.sidecar_id = s.id
    cross join lateral (
      select authorised_at
      from authorisations
      where sidecar_id = s.id and state = 'pending' and not ticketed
      order by authorised_at
      limit 1) a`,
  )
  return Math.max(0, row.seconds)
}
