import { type EthRate, ethRate } from '../lib/money.ts'
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

/** An observation as it is told to others: the instant is ISO 8601 with microseconds. */
export interface ObservedRate {
  readonly usdAttosPerEth: EthRate
  readonly source: string
  readonly observedAt: string
}

const factsOf = ({ usdAttosPerEth, source, observedAt }: ObservedRate): string => `${usdAttosPerEth} ${observedAt} ${source}`

/** Records those observations that are not there yet; returns the number of each. */
export async function ensureRates(db: Db, rates: readonly ObservedRate[]): Promise<(rate: ObservedRate) => bigint> {
  const distinct = [...new Map(rates.map((rate) => [factsOf(rate), rate])).values()]
  const ids = new Map<string, bigint>()
  if (distinct.length > 0) {
    const [values, sources, times] = [distinct.map((rate) => rate.usdAttosPerEth), distinct.map((rate) => rate.source), distinct.map((rate) => rate.observedAt)]
    await db.query(sql`
      insert into rates (usd_attos_per_eth, source, observed_at)
      select value, source, at
      from unnest(${values}::numeric[], ${sources}::text[], ${times}::timestamptz[]) as told (value, source, at)
      where not exists (
        select 1
        from rates r
        where r.observed_at = told.at and r.source = told.source and r.usd_attos_per_eth = told.value)`)
    const rows = await many<{ id: bigint; place: bigint }>(db, sql`
      select min(r.id) as id, told.place
      from unnest(${values}::numeric[], ${sources}::text[], ${times}::timestamptz[]) with ordinality as told (value, source, at, place)
      join rates r on r.observed_at = told.at and r.source = told.source and r.usd_attos_per_eth = told.value
      group by told.place`)
    for (const { id, place } of rows) {
      const rate = distinct[Number(place) - 1]
      if (rate) ids.set(factsOf(rate), id)
    }
  }
  return (rate) => {
    const id = ids.get(factsOf(rate))
    if (id === undefined) throw new Error('a recorded rate cannot be found')
    return id
  }
}
