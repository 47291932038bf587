import { type AppId, userId } from '../shared/ids.ts'
import { splitAtHours } from '../lib/time.ts'
import { usdAttos, wei } from '../lib/money.ts'
import { type Db, type Pool, type Statement, many, sql, tx } from '../lib/sql.ts'
import { maxTimes } from './range.ts'
import { type Grouping, type Selection, type UsageRow, addSums } from './types.ts'

// The columns of each grouping.
const keysOf: Readonly<Record<Grouping, readonly Key[]>> = {
  none: [],
  user: ['user_id'],
  pipeline_model: ['pipeline', 'model_id'],
  daily_pipeline: ['day', 'pipeline', 'model_id'],
  manifest: ['manifest_id', 'pipeline', 'model_id'],
  session: ['user_id', 'session_id', 'manifest_id', 'pipeline', 'model_id'],
  day: ['day'],
  hour: ['hour'],
  daily_top_models: ['day', 'pipeline', 'model_id'],
  hourly_top_models: ['hour', 'pipeline', 'model_id'],
}

/** Groupings whose rows name the costliest models only; one row of each time sums the others. */
const hasTopModels = (grouping: Grouping): grouping is 'daily_top_models' | 'hourly_top_models' =>
  grouping === 'daily_top_models' || grouping === 'hourly_top_models'
const topModels = 5

/** A grouping column for sums of usage. */
export type Key =
  'user_id' | 'pipeline' | 'model_id' | 'day' | 'hour' | 'manifest_id' | 'session_id'
const keys: readonly Key[] = [
  'user_id',
  'pipeline',
  'model_id',
  'day',
  'hour',
  'manifest_id',
  'session_id',
]

interface Row {
  rest: boolean
  user_id: string | null
  external_user_id: string | null
  pipeline: string | null
  model_id: string | null
  day: string | null
  hour: string | null
  manifest_id: string | null
  session_id: string | null
  requests: string
  unpriced: string
  fee: string
  cost: string
  retail: string
  platform_fee: string
  platform_wei: string
  secs: string
  first_at: Date | null
  last_at: Date | null
}

const toRow = (row: Row): UsageRow => ({
  rest: row.rest,
  userId: row.user_id === null ? null : userId(row.user_id),
  externalUserId: row.external_user_id,
  pipeline: row.pipeline,
  modelId: row.model_id,
  manifestId: row.manifest_id,
  sessionId: row.session_id,
  day: row.day,
  hour: row.hour,
  requests: BigInt(row.requests),
  unpriced: BigInt(row.unpriced),
  fee: wei(BigInt(row.fee)),
  cost: usdAttos(BigInt(row.cost)),
  retail: usdAttos(BigInt(row.retail)),
  platformFee: usdAttos(BigInt(row.platform_fee)),
  platformWei: wei(BigInt(row.platform_wei)),
  billableSecs: row.secs,
  firstAt: row.first_at,
  lastAt: row.last_at,
})

/**
 * Each of the next three functions selects usage with a common table `selected` (user_id,
 * session_id, manifest_id, pipeline, model_id, requests, unpriced, fee, cost, retail, platform_fee,
 * platform_wei, secs, first_at, last_at). The cost grows with the hours or sessions in the range,
 * never with the tickets of a month.
 */

/** Reads whole hours from their sums, and the partial hours at both ends from tickets. */
function selectedHours({ appId, userId, range, pipeline, modelId }: Selection): Statement {
  const {
    from,
    to,
    edges: [first, second],
  } = splitAtHours(range)
  // A missing edge is null and reads nothing. Each edge has its own arm, because the planner folds
  // only constants.
  return sql`
    with selected as (
      select user_id, null::text as session_id, null::text as manifest_id, pipeline, model_id, ticket_count as requests,
             unpriced_count as unpriced, fee_wei as fee, cost_attos as cost,
             cost_attos + markup_attos as retail, platform_fee_attos as platform_fee, platform_fee_wei as platform_wei,
             billable_secs as secs, hour as first_at, hour as last_at
      from usage_hourly
      where app_id = ${appId} and (${userId}::uuid is null or user_id = ${userId})
        and hour >= coalesce(${from}::timestamptz, '-infinity') and hour < coalesce(${to}::timestamptz, 'infinity')
        and (${pipeline}::text is null or pipeline = ${pipeline}) and (${modelId}::text is null or model_id = ${modelId})
      union all
      select user_id, null, null, pipeline, model_id, 1, case when cost_attos is null then 1 else 0 end, fee_wei,
             coalesce(cost_attos, 0), coalesce(retail_attos, cost_attos, 0), coalesce(platform_fee_attos, 0),
             coalesce(platform_fee_wei, 0), billable_secs, signed_at, signed_at
      from tickets
      where app_id = ${appId} and (${userId}::uuid is null or user_id = ${userId})
        and signed_at >= ${first?.start}::timestamptz and signed_at < ${first?.end}::timestamptz
        and (${pipeline}::text is null or pipeline = ${pipeline}) and (${modelId}::text is null or model_id = ${modelId})
      union all
      select user_id, null, null, pipeline, model_id, 1, case when cost_attos is null then 1 else 0 end, fee_wei,
             coalesce(cost_attos, 0), coalesce(retail_attos, cost_attos, 0), coalesce(platform_fee_attos, 0),
             coalesce(platform_fee_wei, 0), billable_secs, signed_at, signed_at
      from tickets
      where app_id = ${appId} and (${userId}::uuid is null or user_id = ${userId})
        and signed_at >= ${second?.start}::timestamptz and signed_at < ${second?.end}::timestamptz
        and (${pipeline}::text is null or pipeline = ${pipeline}) and (${modelId}::text is null or model_id = ${modelId})
    )`
}

// How many of the latest sessions that began before a range are checked for overlap with it.
const earlierMax = 10_000

/**
 * Reads sessions within the range from their sums. Reads the tickets of sessions that extend beyond
 * the range. Leaves out a session that began more than `earlierMax` sessions before the range.
 */
function selectedSessions({ appId, userId, range: { start, end } }: Selection): Statement {
  return sql`
    with touched as (
      select user_id, session_id, coalesce(nullif(manifest_id, '') collate "C", session_id) as manifest_id, pipeline, model_id,
             ticket_count, unpriced_count, fee_wei, cost_attos, markup_attos, platform_fee_attos, platform_fee_wei,
             billable_secs, started_at, last_at
      from ticket_sessions
      where app_id = ${appId} and (${userId}::uuid is null or user_id = ${userId})
        and started_at >= coalesce(${start}::timestamptz, '-infinity') and started_at < coalesce(${end}::timestamptz, 'infinity')
      union all
      select *
      from (
        select user_id, session_id, coalesce(nullif(manifest_id, '') collate "C", session_id) as manifest_id, pipeline, model_id,
               ticket_count, unpriced_count, fee_wei, cost_attos, markup_attos, platform_fee_attos, platform_fee_wei,
             billable_secs, started_at, last_at
        from ticket_sessions
        where app_id = ${appId} and (${userId}::uuid is null or user_id = ${userId}) and started_at < ${start}::timestamptz
        order by started_at desc, session_id desc
        limit ${earlierMax}) earlier
      where last_at >= ${start}::timestamptz
    ), cut as materialized (
      select *
      from touched
      where started_at < ${start}::timestamptz or last_at >= ${end}::timestamptz
    ), selected as (
      select user_id, session_id, manifest_id, pipeline, model_id, ticket_count as requests, unpriced_count as unpriced,
             fee_wei as fee, cost_attos as cost, cost_attos + markup_attos as retail,
             platform_fee_attos as platform_fee, platform_fee_wei as platform_wei, billable_secs as secs,
             started_at as first_at, last_at
      from touched
      where not (coalesce(started_at < ${start}::timestamptz, false) or coalesce(last_at >= ${end}::timestamptz, false))
      union all
      select cut.user_id, cut.session_id, cut.manifest_id, cut.pipeline, cut.model_id, 1,
             case when t.cost_attos is null then 1 else 0 end, t.fee_wei, coalesce(t.cost_attos, 0),
             coalesce(t.retail_attos, t.cost_attos, 0), coalesce(t.platform_fee_attos, 0),
             coalesce(t.platform_fee_wei, 0), t.billable_secs,
             t.signed_at, t.signed_at
      from (
        select user_id, started_at < ${start}::timestamptz as earlier, min(started_at) as from_at, max(last_at) as to_at
        from cut
        group by user_id, earlier) span
      -- "offset 0" makes the planner look up by the key for each user and end.
      cross join lateral (
        select session_id, signed_at, fee_wei, cost_attos, retail_attos, platform_fee_attos, platform_fee_wei, billable_secs
        from tickets
        where app_id = ${appId} and user_id = span.user_id and signed_at >= span.from_at and signed_at <= span.to_at
          and signed_at >= coalesce(${start}::timestamptz, '-infinity') and signed_at < coalesce(${end}::timestamptz, 'infinity')
        offset 0) t
      join cut on cut.user_id = span.user_id and cut.session_id = t.session_id
        and (cut.started_at < ${start}::timestamptz) is not distinct from span.earlier
    )`
}

/**
 * Selects the tickets of one gateway request. Compares ids as text, so that the planner chooses the
 * index on the request id.
 */
function selectedRequest({
  appId,
  userId,
  range: { start, end },
  requestId,
  pipeline,
  modelId,
}: Selection): Statement {
  return sql`
    with selected as (
      select user_id, session_id, coalesce(nullif(manifest_id, '') collate "C", session_id) as manifest_id, pipeline, model_id,
             1 as requests, case when cost_attos is null then 1 else 0 end as unpriced, fee_wei as fee,
             coalesce(cost_attos, 0) as cost, coalesce(retail_attos, cost_attos, 0) as retail,
             coalesce(platform_fee_attos, 0) as platform_fee, coalesce(platform_fee_wei, 0) as platform_wei,
             billable_secs as secs, signed_at as first_at, signed_at as last_at
      from tickets
      where request_id = ${requestId} and app_id::text = ${appId} and (${userId}::text is null or user_id::text = ${userId})
        and (${start}::timestamptz is null or signed_at >= ${start}) and (${end}::timestamptz is null or signed_at < ${end})
        and (${pipeline}::text is null or pipeline = ${pipeline}) and (${modelId}::text is null or model_id = ${modelId})
    )`
}

/**
 * Returns sums of a selection by a grouping: at most `limit` rows, the most expensive first, and
 * one row for the rest. Reads from a single database snapshot.
 */
export async function sums(
  pool: Pool,
  selection: Selection,
  by: { grouping: Grouping; limit: number },
): Promise<UsageRow[]> {
  const how = {
    keys: keysOf[by.grouping],
    // More rows than a range may have are refused, so none of an allowed range is left out.
    ...(hasTopModels(by.grouping)
      ? { limit: (maxTimes(by.grouping) + 1) * (topModels + 1), top: topModels }
      : { limit: by.limit }),
  }
  if (selection.requestId === null) return sumsBy(pool, selection, how)
  return inRequest(pool, (db) => grouped(db, selectedRequest(selection), { ...selection, ...how }))
}

/**
 * Like `sums`, for a selection without a gateway request. Groups by any columns, except the day or
 * hour together with a session's. A selection by model must not be grouped by a session's columns,
 * because a session's row has all of its models.
 */
export async function sumsBy(
  pool: Pool,
  selection: Selection,
  by: Omit<By, 'appId'>,
): Promise<UsageRow[]> {
  if (!by.keys.includes('manifest_id'))
    return grouped(pool, selectedHours(selection), { ...by, ...selection })
  return tx(pool, async (db) => {
    await db.query(sql`set transaction isolation level repeatable read, read only`)
    const rows = await grouped(db, selectedSessions(selection), { ...by, ...selection })
    const all = await grouped(db, selectedHours(selection), { ...by, ...selection, keys: [] })
    return withRest(rows, all)
  })
}

/**
 * Runs a query by gateway request without sequential scans: the planner misjudges an index that
 * stores only page ranges as useless, and would read everything.
 */
export const inRequest = <T>(pool: Pool, work: (db: Db) => Promise<T>): Promise<T> =>
  tx(pool, async (db) => {
    await db.query(sql`set local enable_seqscan = off`)
    // Starting workers would take longer than reading the few pages.
    await db.query(sql`set local max_parallel_workers_per_gather = 0`)
    return work(db)
  })

interface By {
  readonly keys: readonly Key[]
  readonly limit: number
  readonly appId: AppId
  /** Merges all but this number of the costliest models. */
  readonly top?: number
}

async function grouped(
  db: Db,
  head: Statement,
  { keys: by, limit, appId, top }: By,
): Promise<UsageRow[]> {
  const rows = await many<Row>(
    db,
    after(head, {
      text: `
    , grouped as (
      select ${keys
        .map((key) => (by.includes(key) ? expressionOf(key) : `null::${typeOf(key)}`))
        .map((each, i) => `${each} as ${keys[i]}`)
        .join(', ')},
             coalesce(sum(requests), 0) as requests, coalesce(sum(unpriced), 0) as unpriced, coalesce(sum(fee), 0) as fee,
             coalesce(sum(cost), 0) as cost, coalesce(sum(retail), 0) as retail,
             coalesce(sum(platform_fee), 0) as platform_fee, coalesce(sum(platform_wei), 0) as platform_wei,
             coalesce(sum(secs), 0) as secs, min(first_at) as first_at, max(last_at) as last_at
      from selected
      ${by.length === 0 ? '' : `group by ${by.map((key) => keys.indexOf(key) + 1).join(', ')}`}
    )${top === undefined ? '' : `, ${named}`}, ranked as (
      select *, row_number() over (order by cost desc, requests desc, ${keys.join(', ')}) > $1 as rest,
             row_number() over (order by cost desc, requests desc, ${keys.join(', ')}) as place
      from ${top === undefined ? 'grouped' : 'named'}
    ), bounded as (
      select rest, ${keys.map((key) => `case when not rest then ${key} end as ${key}`).join(', ')},
             sum(requests) as requests, sum(unpriced) as unpriced, sum(fee) as fee, sum(cost) as cost,
             sum(retail) as retail, sum(platform_fee) as platform_fee, sum(platform_wei) as platform_wei, sum(secs) as secs,
             min(first_at) as first_at, max(last_at) as last_at, min(place) as place
      from ranked
      group by ${[rest, ...keys].map((_, i) => i + 1).join(', ')}
    )
    select b.*, u.external_user_id
    from bounded b
    left join end_users u on u.app_id = $2 and u.id = b.user_id
    order by b.place`,
      values: top === undefined ? [limit, appId] : [limit, appId, top],
    }),
  )
  return rows.map(toRow)
}

/** Replaces the names of all but the costliest models by null; `bounded` then merges their rows. */
const named = `top as (
      select pipeline, model_id
      from grouped
      group by pipeline, model_id
      order by sum(cost) desc, sum(requests) desc, pipeline, model_id
      limit $3
    ), named as (
      select g.user_id, t.pipeline, t.model_id, g.day, g.hour, g.manifest_id, g.session_id, g.requests, g.unpriced, g.fee,
             g.cost, g.retail, g.platform_fee, g.platform_wei, g.secs, g.first_at, g.last_at
      from grouped g
      left join top t on t.pipeline = g.pipeline and t.model_id = g.model_id
    )`

const rest = 'rest'
const typeOf = (key: Key): string => (key === 'user_id' ? 'uuid' : 'text')
const expressionOf = (key: Key): string =>
  key === 'day'
    ? `to_char(first_at at time zone 'UTC', 'YYYY-MM-DD')`
    : key === 'hour'
      ? `to_char(first_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24":00:00.000Z"')`
      : key

/** Appends `tail` to `head` and renumbers its placeholders. */
export function after(head: Statement, tail: Statement): Statement {
  const shifted = tail.text.replace(
    /\$(\d+)/g,
    (_hole, position: string) => `$${Number(position) + head.values.length}`,
  )
  return { text: head.text + shifted, values: [...head.values, ...tail.values] }
}

// Adds usage without a session row to the rest, so that the rows add up to the hours.
function withRest(rows: readonly UsageRow[], [all]: readonly UsageRow[]): UsageRow[] {
  if (!all) return [...rows]
  const left = (value: (row: UsageRow) => bigint): bigint =>
    rows.reduce((open, row) => open - value(row), value(all))
  const requests = left((row) => row.requests)
  if (requests === 0n) return [...rows]
  const missing = {
    requests,
    unpriced: left((row) => row.unpriced),
    fee: wei(left((row) => row.fee)),
    cost: usdAttos(left((row) => row.cost)),
    retail: usdAttos(left((row) => row.retail)),
    platformFee: usdAttos(left((row) => row.platformFee)),
    platformWei: wei(left((row) => row.platformWei)),
  }
  const listed = rows.filter((row) => !row.rest)
  const known = rows.find((row) => row.rest)
  const billableSecs = decimalOf(
    listed.reduce((open, row) => open - scaled(row.billableSecs), scaled(all.billableSecs)),
  )
  const none = {
    userId: null,
    externalUserId: null,
    pipeline: null,
    modelId: null,
    manifestId: null,
    sessionId: null,
    day: null,
    hour: null,
  }
  const merged = known === undefined ? missing : addSums(missing, known)
  return [...listed, { ...none, ...merged, rest: true, billableSecs, firstAt: null, lastAt: null }]
}

const places = 30

/** Converts a Postgres decimal with at most 30 places to an integer scaled by 10^30. */
function scaled(text: string): bigint {
  const [whole = '0', fraction = ''] = text.split('.')
  return BigInt(whole + fraction.padEnd(places, '0'))
}

function decimalOf(value: bigint): string {
  const digits = value.toString().padStart(places + 1, '0')
  return `${digits.slice(0, -places)}.${digits.slice(-places)}`.replace(/\.?0+$/, '')
}
