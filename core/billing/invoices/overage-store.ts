import { type Db, many, sql } from '../../lib/sql.ts'
import { inAppGroups } from '../../shared/database/app-groups.ts'
import { type UserKey, type AppId, appId, userId } from '../../shared/ids.ts'

/** Reads units beyond those that plans include. A unit is a pixel, as in the billing summary. */

export interface EndedPeriod extends UserKey {
  readonly planId: string
  readonly planName: string
  readonly includedUnits: bigint
  readonly overageRateWei: bigint
  readonly start: Date
  readonly end: Date
  /** Tickets signed at or after this instant count; equals the start, except in a user's first period. */
  readonly countsFrom: Date
  /** The apps of the tickets: the user's own, or those that an owner is charged for. */
  readonly apps: readonly AppId[]
  readonly isOwner: boolean
  /** What earlier invoices have for the period. */
  readonly invoiced: { readonly amount: bigint; readonly units: bigint }
  /** No less than the units of the period. */
  readonly unitsMax: bigint
}

export interface EndedQuery extends UserKey {
  /** By the clock of the app. */
  readonly at: Date
  /** When usage was last invoiced; null before. */
  readonly since: Date | null
}

interface EndedRow {
  app_id: string
  user_id: string
  plan_id: string
  name: string
  included_units: string
  overage_rate_wei: string
  starts_at: Date
  counts_from: Date
  end_at: Date
  apps: string[] | null
  amount: string
  units: string
  units_max: string
}

/**
 * Returns the periods of plans with an overage rate that ended since usage was last invoiced, and
 * the one before them, which may have late tickets. Counts units by whole hours.
 */
export async function findEndedPeriods(
  db: Db,
  users: readonly EndedQuery[],
): Promise<EndedPeriod[]> {
  const rows = await inAppGroups(db, users, (group, app) => readEndedPeriods(db, group, app))
  const periods = rows.map((row) => ({
    appId: appId(row.app_id),
    userId: userId(row.user_id),
    planId: row.plan_id,
    planName: row.name,
    includedUnits: BigInt(row.included_units),
    overageRateWei: BigInt(row.overage_rate_wei),
    start: row.starts_at,
    countsFrom: row.counts_from,
    end: row.end_at,
    apps: row.apps === null ? [appId(row.app_id)] : row.apps.map(appId),
    isOwner: row.apps !== null,
    invoiced: { amount: BigInt(row.amount), units: BigInt(row.units) },
    unitsMax: BigInt(row.units_max),
  }))
  const ownerUnits = await sumOwnerUnits(
    db,
    periods.filter(({ isOwner }) => isOwner),
  )
  return periods.flatMap((period) => {
    const unitsMax = ownerUnits.get(period) ?? period.unitsMax
    return unitsMax > period.includedUnits ? { ...period, unitsMax } : []
  })
}

/** The units of owners, whose tickets are other apps' rows, are 0. */
const readEndedPeriods = (
  db: Db,
  users: readonly EndedQuery[],
  app: AppId | null,
): Promise<EndedRow[]> =>
  many<EndedRow>(
    db,
    sql`
    select p.app_id, p.user_id, p.plan_id, n.name, v.included_units, v.overage_rate_wei, p.starts_at, p.counts_from, p.end_at, o.apps,
           l.amount, l.units, h.units as units_max
    from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.userId)}::uuid[],
                ${users.map((user) => user.at)}::timestamptz[], ${users.map((user) => user.since)}::timestamptz[])
      as w (app_id, user_id, at, since)
    cross join lateral (
      select app_id, user_id, starts_at, counts_from, end_at, after_seq, plan_id, plan_version, price_attos,
             row_number() over (partition by end_at > coalesce(w.since, '-infinity') order by starts_at desc) as place
      from (
        select app_id, user_id, starts_at, counts_from, after_seq, plan_id, plan_version, price_attos,
               least(ends_at, lead(starts_at) over (order by starts_at)) as end_at
        from periods
        where app_id = coalesce(${app}, w.app_id) and user_id = w.user_id) all_periods
      where end_at <= w.at) p
    join plans n on n.app_id = p.app_id and n.id = p.plan_id
    join plan_versions v on v.app_id = p.app_id and v.plan_id = p.plan_id and v.version = p.plan_version
      and v.type in ('subscription', 'usage') and v.included_units is not null and v.overage_rate_wei > 0
    cross join lateral (
      select array_agg(distinct charged_app_id) as apps
      from ledger_entries
      where app_id = coalesce(${app}, p.app_id) and user_id = p.user_id and seq > p.after_seq and charged_app_id is not null
        and exists (select from platform_app where app_id = p.app_id)) o
    cross join lateral (
      select coalesce(sum(amount_attos), 0) as amount, coalesce(sum(units), 0) as units
      from invoice_lines
      where app_id = coalesce(${app}, p.app_id) and user_id = p.user_id and kind = 'overage' and period_start = p.starts_at) l
    cross join lateral (
      select coalesce(sum(pixels), 0) as units
      from usage_hourly
      where o.apps is null and app_id = coalesce(${app}, p.app_id) and user_id = p.user_id
        and hour >= date_trunc('hour', p.counts_from) and hour < p.end_at) h
    where (p.end_at > coalesce(w.since, '-infinity') or p.place = 1) and p.price_attos is not null
      and (o.apps is not null or h.units > v.included_units)
    order by p.user_id, p.starts_at`,
  )

/** Returns the units of the apps in each period of an owner. */
async function sumOwnerUnits(
  db: Db,
  periods: readonly EndedPeriod[],
): Promise<ReadonlyMap<EndedPeriod, bigint>> {
  if (periods.length === 0) return new Map()
  const hours = periods.flatMap(({ apps, countsFrom, end }, place) =>
    apps.map((app) => ({ place, app, countsFrom, end })),
  )
  const rows = await many<{ place: number; units: string }>(
    db,
    sql`
    select w.place, coalesce(sum(h.pixels), 0) as units
    from unnest(${hours.map(({ place }) => place)}::int[], ${hours.map(({ app }) => app)}::uuid[],
                ${hours.map(({ countsFrom }) => countsFrom)}::timestamptz[], ${hours.map(({ end }) => end)}::timestamptz[])
      as w (place, app_id, counts_from, end_at)
    join usage_hourly h on h.app_id = w.app_id and h.hour >= date_trunc('hour', w.counts_from) and h.hour < w.end_at
    group by w.place`,
  )
  const units = new Map(rows.map((row) => [row.place, BigInt(row.units)]))
  return new Map(periods.map((period, place) => [period, units.get(place) ?? 0n]))
}

/** Units of tickets that were priced at the same rate. */
export interface RatedUnits {
  readonly units: bigint
  /** Atto-dollars per ETH. */
  readonly rate: bigint
}

/**
 * Returns the units of each period that exceed the included ones, by rate. Counts the priced tickets
 * in signing order, so the last tickets of the period cause the overage. The periods are of users of
 * one app, or of one owner, and have the same `apps`.
 */
export async function readUnitsBeyond(
  db: Db,
  periods: readonly EndedPeriod[],
): Promise<RatedUnits[][]> {
  const { apps = [], isOwner = false } = periods[0] ?? {}
  if (!isOwner) return readUserUnits(db, periods, apps)
  const units: RatedUnits[][] = []
  for (const period of periods) units.push(await readOwnerUnits(db, period))
  return units
}

interface UnitsRow {
  units: string
  rate: string
}

const toRatedUnits = (row: UnitsRow): RatedUnits => ({
  units: BigInt(row.units),
  rate: BigInt(row.rate),
})

async function readUserUnits(
  db: Db,
  periods: readonly EndedPeriod[],
  apps: readonly AppId[],
): Promise<RatedUnits[][]> {
  const rows = await many<UnitsRow & { place: bigint }>(db, {
    text: `
    select w.place, o.units, o.rate
    from unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::numeric[])
      with ordinality as w (user_id, counts_from, end_at, included, place)
    cross join lateral (${unitsBeyond('app_id = any($5::uuid[]) and user_id = w.user_id', {
      from: 'w.counts_from',
      to: 'w.end_at',
      included: 'w.included',
    })}) o
    order by w.place, o.rate::numeric`,
    values: [
      periods.map((period) => period.userId),
      periods.map(({ countsFrom }) => countsFrom),
      periods.map(({ end }) => end),
      periods.map(({ includedUnits }) => includedUnits),
      apps,
    ],
  })
  const byPlace = Map.groupBy(rows, ({ place }) => place)
  return periods.map((_, i) => (byPlace.get(BigInt(i + 1)) ?? []).map(toRatedUnits))
}

/** Reads one period, because the tickets of several apps may be on several nodes. */
async function readOwnerUnits(
  db: Db,
  { apps, countsFrom, end, includedUnits }: EndedPeriod,
): Promise<RatedUnits[]> {
  const rows = await many<UnitsRow>(db, {
    text: `
    ${unitsBeyond('app_id = any($4::uuid[])', { from: '$1::timestamptz', to: '$2::timestamptz', included: '$3::numeric' })}
    order by r.usd_attos_per_eth`,
    values: [countsFrom, end, includedUnits, apps],
  })
  return rows.map(toRatedUnits)
}

/** The query of the units beyond `included` of the tickets that `chosen` selects, by rate. */
const unitsBeyond = (
  chosen: string,
  period: { readonly from: string; readonly to: string; readonly included: string },
): string => `
      with counted as materialized (
        select date_trunc('hour', signed_at) as hour, rate_id, sum(pixels) as units
        from tickets
        where ${chosen} and signed_at >= ${period.from} and signed_at < ${period.to} and rate_id is not null
        group by 1, 2
      ), hours as materialized (
        select hour, sum(units) as units, sum(sum(units)) over (order by hour) as through
        from counted
        group by hour
      ), crossing as materialized (
        -- The hour in which the included units run out; its tickets are counted one by one.
        select hour, through - units as before
        from hours
        where through > ${period.included} and through - units <= ${period.included} and units > 0
      ), within as (
        select rate_id, least(units, greatest(0, through - ${period.included})) as units
        from (
          select t.rate_id, t.pixels as units,
                 c.before + sum(t.pixels) over (order by t.signed_at, t.app_id, t.user_id, t.event_id) as through
          from crossing c
          join tickets t on ${chosen}
            and t.signed_at >= greatest(c.hour, ${period.from})
            and t.signed_at < least(c.hour + interval '1 hour', ${period.to})
            and t.rate_id is not null) tickets_of_hour
      ), beyond as (
        select rate_id, units from within
        union all
        select k.rate_id, k.units
        from counted k
        join crossing c on k.hour > c.hour
      )
      select sum(b.units)::text as units, r.usd_attos_per_eth::text as rate
      from beyond b
      join rates r on r.id = b.rate_id
      group by r.usd_attos_per_eth
      having sum(b.units) > 0`
