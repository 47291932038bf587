import { type EthRate, type Wei, ethRate, wei } from '../../lib/money.ts'
import { type AppId, type UserId, appId, userId } from '../../shared/ids.ts'
import { type Db, many, maybeOne, one, sql, prepared } from '../../lib/sql.ts'
import { plainArray } from '../../lib/copy-sql.ts'
import { inAppGroups, lockInApps } from '../../shared/database/app-groups.ts'

/** One observation of the price of one ETH. */
export interface Rate {
  readonly id: bigint
  readonly usdAttosPerEth: EthRate
  readonly source: string
  readonly observedAt: Date
}

export interface NewRate {
  readonly usdAttosPerEth: EthRate
  readonly source: string
}

interface RateRow {
  id: bigint
  usd_attos_per_eth: string
  source: string
  observed_at: Date
}

const fromRow = (row: RateRow): Rate => ({
  id: row.id,
  usdAttosPerEth: ethRate(BigInt(row.usd_attos_per_eth)),
  source: row.source,
  observedAt: row.observed_at,
})

/** Records an observation at `at`. `observedAt` is when it was made, if earlier. */
export async function insertRate(
  db: Db,
  rate: NewRate,
  { at, observedAt = at }: { at: Date; observedAt?: Date },
): Promise<Rate> {
  return fromRow(
    await one<RateRow>(
      db,
      sql`
    insert into rates (usd_attos_per_eth, source, observed_at, created_at)
    values (${rate.usdAttosPerEth}, ${rate.source}, ${observedAt}, ${at})
    returning id, usd_attos_per_eth, source, observed_at`,
    ),
  )
}

/** Maximum age of an observation, by its source, at the time of the ticket that it prices. */
export interface RateAges {
  readonly maxAgeSeconds: number
  /** For rates recorded by an operator. */
  readonly manualMaxAgeSeconds: number
}

export const manualPrefix = 'manual:'

/** Returns the age up to which an observation from this source prices tickets. */
export const toMaxAge = (
  source: string,
  { maxAgeSeconds, manualMaxAgeSeconds }: RateAges,
): number => (source.startsWith(manualPrefix) ? manualMaxAgeSeconds : maxAgeSeconds)

/** Returns the newest observation at or before `at`. */
export async function rateAt(db: Db, at: Date): Promise<Rate | null> {
  const row = await maybeOne<RateRow>(
    db,
    sql`
    select id, usd_attos_per_eth, source, observed_at
    from rates
    where observed_at <= ${at}
    order by observed_at desc, id desc
    limit 1`,
  )
  return row && fromRow(row)
}

/** Returns the newest observation of any age. */
export async function newestRate(db: Db): Promise<Rate | null> {
  const row = await maybeOne<RateRow>(
    db,
    sql`
    select id, usd_attos_per_eth, source, observed_at
    from rates
    order by observed_at desc, id desc
    limit 1`,
  )
  return row && fromRow(row)
}

// A batch spans seconds, or months if a topic is read from its start. There is a rate about every
// 30 seconds.
const maxRead = 20_000

/** Microseconds since 1970, the resolution of timestamptz. */
export type Micros = number

/**
 * Returns the rate of each instant: the newest observation at or before it; null if it is missing
 * or too old (decision 31). Reads the table each time, so that another process's observation counts
 * at once.
 */
export async function ratesAt(
  db: Db,
  instants: readonly Micros[],
  ages: RateAges,
): Promise<(Rate | null)[]> {
  if (instants.length === 0) return []
  const first = instants.reduce((a, b) => Math.min(a, b))
  const last = instants.reduce((a, b) => Math.max(a, b))
  const observed = await ratesFrom(db, first - ages.maxAgeSeconds * 1_000_000, last)
  const newest =
    observed.length >= maxRead
      ? await newestOneByOne(db, instants)
      : instants.map((instant) => newestAt(observed, instant))
  return newest.map((observation, i) => {
    if (!observation) return null
    const { rate, micros } = observation
    return micros >= (instants[i] ?? 0) - toMaxAge(rate.source, ages) * 1_000_000 ? rate : null
  })
}

async function newestOneByOne(db: Db, instants: readonly Micros[]): Promise<(Observed | null)[]> {
  const rows = await many<(RateRow & { micros: bigint }) | { id: null }>(
    db,
    sql`
    select r.id, r.usd_attos_per_eth, r.source, r.observed_at,
           (extract(epoch from r.observed_at) * 1000000)::bigint as micros
    from (
      select timestamptz 'epoch' + micros * interval '1 microsecond' as at, position
      from unnest(${plainArray(instants)}::bigint[]) with ordinality as i (micros, position)) instants
    left join lateral (
      select *
      from rates
      where observed_at <= instants.at
      order by observed_at desc, id desc
      limit 1) r on true
    order by instants.position`,
  )
  return rows.map((row) =>
    row.id === null ? null : { micros: Number(row.micros), rate: fromRow(row) },
  )
}

interface Observed {
  readonly micros: Micros
  readonly rate: Rate
}

/**
 * Returns the observations from `from` to `to`, and the newest one before `from`: if manual, it may
 * still serve.
 */
async function ratesFrom(db: Db, from: Micros, to: Micros): Promise<Observed[]> {
  const rows = await many<RateRow & { micros: bigint }>(
    db,
    sql`
    select id, usd_attos_per_eth, source, observed_at, (extract(epoch from observed_at) * 1000000)::bigint as micros
    from (
      (select *
       from rates
       where observed_at < timestamptz 'epoch' + ${from}::bigint * interval '1 microsecond'
       order by observed_at desc, id desc
       limit 1)
      union all
      (select *
       from rates
       where observed_at >= timestamptz 'epoch' + ${from}::bigint * interval '1 microsecond'
         and observed_at <= timestamptz 'epoch' + ${to}::bigint * interval '1 microsecond'
       order by observed_at, id
       limit ${maxRead})) r
    order by observed_at, id`,
  )
  return rows.map((row) => ({ micros: Number(row.micros), rate: fromRow(row) }))
}

/** Returns the last of `observed`, which must be in order, at or before `at`. */
function newestAt(observed: readonly Observed[], at: Micros): Observed | null {
  let low = 0
  let high = observed.length
  while (low < high) {
    const middle = (low + high) >> 1
    if ((observed[middle]?.micros ?? 0) <= at) low = middle + 1
    else high = middle
  }
  return observed[low - 1] ?? null
}

/** An observation that can be exported. `observedAt` is ISO 8601 with microseconds. */
export interface ObservedRate {
  readonly usdAttosPerEth: EthRate
  readonly source: string
  readonly observedAt: string
}

const factsOf = ({ usdAttosPerEth, source, observedAt }: ObservedRate): string =>
  `${usdAttosPerEth} ${observedAt} ${source}`

/** Records missing observations at `at`; returns a function from an observation to its id. */
export async function ensureRates(
  db: Db,
  rates: readonly ObservedRate[],
  at: Date,
): Promise<(rate: ObservedRate) => bigint> {
  const distinct = [...new Map(rates.map((rate) => [factsOf(rate), rate])).values()]
  const ids = new Map<string, bigint>()
  if (distinct.length > 0) {
    const [values, sources, times] = [
      distinct.map((rate) => rate.usdAttosPerEth),
      distinct.map((rate) => rate.source),
      distinct.map((rate) => rate.observedAt),
    ]
    await db.query(sql`
      insert into rates (usd_attos_per_eth, source, observed_at, created_at)
      select t.value, t.source, t.at, ${at}
      from unnest(${values}::numeric[], ${sources}::text[], ${times}::timestamptz[]) as t (value, source, at)
      left join rates r on r.observed_at = t.at and r.source = t.source and r.usd_attos_per_eth = t.value
      where r.id is null`)
    const rows = await many<{ id: bigint; place: bigint }>(
      db,
      sql`
      select min(r.id) as id, t.place
      from unnest(${values}::numeric[], ${sources}::text[], ${times}::timestamptz[]) with ordinality as t (value, source, at, place)
      join rates r on r.observed_at = t.at and r.source = t.source and r.usd_attos_per_eth = t.value
      group by t.place`,
    )
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

export interface WaitingTicket {
  readonly appId: AppId
  readonly userId: UserId
  readonly eventId: string
  /** ISO 8601 UTC with microseconds, exactly as stored in the primary key. */
  readonly signedAt: string
  readonly signedAtMicros: number
  /** Milliseconds by which the app's clock, which dates the ticket, was ahead. */
  readonly aheadMs: number
  readonly sessionId: string
  readonly sequence: bigint
  readonly pipeline: string
  readonly modelId: string
  readonly fee: Wei
  /** Key in `envelopes` and digest of the event, 16 bytes each. */
  readonly key: Buffer
  readonly digest: Buffer
}

export interface Window {
  readonly from: Date
  readonly to: Date
  readonly newestId: bigint
}

/**
 * Returns the time span that observations with ids above `afterId` can price; null without such
 * observations.
 */
export async function pricedSpan(
  db: Db,
  afterId: bigint,
  { maxAgeSeconds, manualMaxAgeSeconds }: RateAges,
): Promise<Window | null> {
  const row = await one<{ from: Date | null; to: Date | null; newest: bigint | null }>(
    db,
    sql`
    select min(observed_at) as from, max(id) as newest,
           greatest(max(observed_at) + make_interval(secs => ${maxAgeSeconds}),
                    max(observed_at) filter (where source like 'manual:%')
                      + make_interval(secs => ${manualMaxAgeSeconds})) as to
    from rates
    where id > ${afterId}`,
  )
  return row.from && row.to && row.newest !== null
    ? { from: row.from, to: row.to, newestId: row.newest }
    : null
}

export interface WaitingSearch {
  readonly ages: RateAges
  readonly limit: number
  readonly skipped: ReadonlySet<AppId>
}

/**
 * Locks waiting tickets of the span that have a rate, oldest first. Excludes apps in `skipped` and
 * tickets that another process is pricing (`skip locked`).
 */
export async function lockWaiting(
  db: Db,
  span: Window,
  options: WaitingSearch,
): Promise<WaitingTicket[]> {
  const rows = await lockInApps(db, {
    app: null,
    limit: options.limit,
    findApps: () => listWaitingApps(db, span, options.skipped),
    lock: (app, limit) => lockWaitingRows(db, span, { ...options, app, limit }),
  })
  const events = await findEvents(
    db,
    rows.map((row) => row.event_id),
  )
  return rows.flatMap((row) => {
    const event = events.get(row.event_id)
    if (!event) return []
    return {
      appId: appId(row.app_id),
      userId: userId(row.user_id),
      eventId: row.event_id,
      signedAt: row.signed_at,
      signedAtMicros: Number(row.micros),
      aheadMs: Number(row.ahead_ms),
      sessionId: row.session_id,
      sequence: row.sequence_number,
      pipeline: row.pipeline,
      modelId: row.model_id,
      fee: wei(BigInt(row.fee_wei)),
      key: event.key,
      digest: event.digest,
    }
  })
}

interface WaitingRow {
  app_id: string
  user_id: string
  event_id: string
  signed_at: string
  micros: bigint
  ahead_ms: bigint
  session_id: string
  sequence_number: bigint
  pipeline: string
  model_id: string
  fee_wei: string
}

const lockWaitingRows = (
  db: Db,
  span: Window,
  { ages, skipped, app, limit }: WaitingSearch & { readonly app: AppId | null },
): Promise<WaitingRow[]> =>
  many<WaitingRow>(
    db,
    sql`
    select t.app_id, t.user_id, t.event_id, t.session_id, t.sequence_number, t.pipeline, t.model_id, t.fee_wei,
           to_char(t.signed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as signed_at,
           (extract(epoch from t.signed_at) * 1000000)::bigint as micros, coalesce(t.clock_ms, 0) as ahead_ms
    from tickets t
    cross join lateral (
      select t.signed_at - coalesce(t.clock_ms, 0) * interval '1 millisecond' as signed_at) signer
    where t.cost_attos is null and t.signed_at >= ${span.from} and (t.signed_at <= ${span.to} or t.clock_ms is not null)
      and signer.signed_at >= ${span.from} and signer.signed_at <= ${span.to}
      and exists (
        select 1
        from (
          select observed_at, source
          from rates
          where observed_at <= signer.signed_at
          order by observed_at desc, id desc
          limit 1) r
        where r.observed_at >= signer.signed_at - make_interval(secs =>
          case when r.source like 'manual:%' then ${ages.manualMaxAgeSeconds}::float8
          else ${ages.maxAgeSeconds}::float8 end))
      and t.app_id <> all(${[...skipped]}::uuid[]) and (${app}::uuid is null or t.app_id = ${app})
    order by t.signed_at
    limit ${limit}
    for update of t skip locked`,
  )

/** Returns apps with waiting tickets of the span. */
async function listWaitingApps(
  db: Db,
  { from, to }: Window,
  skipped: ReadonlySet<AppId>,
): Promise<AppId[]> {
  const rows = await many<{ app_id: string }>(
    db,
    sql`
    select distinct app_id
    from tickets
    where cost_attos is null and signed_at >= ${from} and (signed_at <= ${to} or clock_ms is not null)
      and app_id <> all(${[...skipped]}::uuid[])`,
  )
  return rows.map((row) => appId(row.app_id))
}

/** Returns keys and digests of stored events by their ids. */
async function findEvents(
  db: Db,
  ids: readonly string[],
): Promise<Map<string, { readonly key: Buffer; readonly digest: Buffer }>> {
  if (ids.length === 0) return new Map()
  const rows = await many<{ id: string; key: Buffer; digest: Buffer }>(
    db,
    sql`
    select t.id, uuid_send(e.key) as key, uuid_send(e.digest) as digest
    from unnest(${ids}::text[]) as t (id)
    join envelopes e on e.key = case
      when t.id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then t.id::uuid
      else left(encode(sha256(convert_to(t.id, 'UTF8')), 'hex'), 32)::uuid end`,
  )
  return new Map(rows.map((row) => [row.id, row]))
}

// The exact number does not matter beyond this.
const countBound = 1_000_000

/** Counts the tickets that wait for a rate, up to a million. */
export async function countUnpriced(db: Db): Promise<bigint> {
  const row = await one<{ count: bigint }>(
    db,
    sql`
    select count(*) as count
    from (select 1 from tickets where cost_attos is null limit ${countBound}) waiting`,
  )
  return row.count
}

/**
 * Returns the signing time, by the signer's clock, of the oldest ticket that waits for a rate; null
 * without one.
 */
export async function oldestUnpriced(db: Db): Promise<Date | null> {
  const row = await maybeOne<{ signed_at: Date }>(
    db,
    sql`
    select signed_at - coalesce(clock_ms, 0) * interval '1 millisecond' as signed_at
    from tickets
    where cost_attos is null
    order by tickets.signed_at
    limit 1`,
  )
  return row && row.signed_at
}

/**
 * Counts each user's tickets that wait for a rate, up to a million each. Omits users without any.
 * The cost does not depend on the number of a user's tickets.
 */
export async function countAppUnpriced(
  db: Db,
  users: readonly { appId: AppId; userId: UserId }[],
): Promise<Map<UserId, bigint>> {
  const rows = await inAppGroups(db, users, (group, app) =>
    many<{ user_id: string; count: bigint }>(
      db,
      prepared('unpriced-of-users')`
    select w.user_id, t.count
    from unnest(${group.map((user) => user.appId)}::uuid[], ${group.map((user) => user.userId)}::uuid[]) as w (app_id, user_id)
    cross join lateral (
      select count(*) as count
      from (
        select 1
        from tickets
        where cost_attos is null and app_id = w.app_id and user_id = w.user_id
          and (${app}::uuid is null or app_id = ${app})
        limit ${countBound}::int) waiting) t
    where t.count > 0`,
    ),
  )
  return new Map(rows.map((row) => [userId(row.user_id), row.count]))
}
