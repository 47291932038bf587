import { ethRate } from '../lib/money.ts'
import { type Db, many, maybeOne, one, sql } from '../lib/sql.ts'
import { plainArray } from './arrays.ts'
import type { NewRate, Rate } from './types.ts'

interface RateRow { id: bigint; usd_attos_per_eth: string; source: string; observed_at: Date }

const fromRow = (row: RateRow): Rate => ({
  id: row.id, usdAttosPerEth: ethRate(BigInt(row.usd_attos_per_eth)), source: row.source, observedAt: row.observed_at,
})

/** Records an observation. */
export async function insertRate(db: Db, rate: NewRate, observedAt: Date): Promise<Rate> {
  return fromRow(await one<RateRow>(db, sql`
    insert into rates (usd_attos_per_eth, source, observed_at)
    values (${rate.usdAttosPerEth}, ${rate.source}, ${observedAt})
    returning id, usd_attos_per_eth, source, observed_at`))
}

/** The newest observation at or before `at` and not before `since`. */
export async function rateAt(db: Db, at: Date, since: Date): Promise<Rate | null> {
  const row = await maybeOne<RateRow>(db, sql`
    select id, usd_attos_per_eth, source, observed_at
    from rates
    where observed_at <= ${at} and observed_at >= ${since}
    order by observed_at desc, id desc
    limit 1`)
  return row && fromRow(row)
}

/**
 * The rate of each instant (ISO text with microseconds): the newest observation at or before it, at most `maxAge`
 * old; null where there is none (decision 31). Reads the table each time: what another process recorded counts at once.
 */
export async function ratesAt(db: Db, instants: readonly string[], maxAgeSeconds: number): Promise<(Rate | null)[]> {
  const { rows } = await db.query<{ ids: (bigint | null)[] | null }>(sql`
    select array_agg(r.id order by wanted.position) as ids
    from unnest(${plainArray(instants)}::timestamptz[]) with ordinality as wanted (at, position)
    left join lateral (
      select id
      from rates
      where observed_at <= wanted.at and observed_at >= wanted.at - make_interval(secs => ${maxAgeSeconds})
      order by observed_at desc, id desc
      limit 1) r on true`)
  const ids = rows[0]?.ids ?? []
  const known = new Map((await ratesById(db, ids)).map((rate) => [rate.id, rate]))
  return ids.map((id) => (id === null ? null : known.get(BigInt(id)) ?? null))
}

async function ratesById(db: Db, ids: readonly (bigint | null)[]): Promise<Rate[]> {
  const distinct = [...new Set(ids)].filter((id) => id !== null)
  const rows = await many<RateRow>(db, sql`
    select id, usd_attos_per_eth, source, observed_at
    from rates
    where id = any(${distinct}::bigint[])`)
  return rows.map(fromRow)
}
