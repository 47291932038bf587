import { type AppId, type UserId, userId } from '../ids.ts'
import { usdAttos, wei } from '../lib/money.ts'
import { type Db, type Statement, many, one, sql } from '../lib/sql.ts'
import type { PipelineModelSums, Range, Sums, UserSums } from './types.ts'

/** What of an app's usage is asked for. */
export interface Selection {
  readonly appId: AppId
  readonly userId: UserId | null
  readonly range: Range
}

interface SumsRow { requests: string; unpriced: string; fee: string; cost: string }

const toSums = (row: SumsRow): Sums => ({
  requests: BigInt(row.requests), unpriced: BigInt(row.unpriced), fee: wei(BigInt(row.fee)), cost: usdAttos(BigInt(row.cost)),
})

/** All of it together. */
export async function sumAll(db: Db, selection: Selection): Promise<Sums> {
  return toSums(await one<SumsRow>(db, selected(selection, sql`
    select coalesce(sum(requests), 0) as requests, coalesce(sum(unpriced), 0) as unpriced, coalesce(sum(fee), 0) as fee,
           coalesce(sum(cost), 0) as cost
    from selected`)))
}

/** By user, the dearest first. What is beyond `limit` rows comes together as one row without a user. */
export async function sumByUser(db: Db, selection: Selection, limit: number): Promise<UserSums[]> {
  const rows = await many<SumsRow & { user_id: string | null; external_user_id: string | null }>(db, selected(selection, sql`
    , ranked as (
      select user_id, sum(requests) as requests, sum(unpriced) as unpriced, sum(fee) as fee, sum(cost) as cost,
             row_number() over (order by sum(cost) desc, user_id) as place
      from selected
      group by user_id
    ), bounded as (
      select shown.user_id, sum(requests) as requests, sum(unpriced) as unpriced, sum(fee) as fee, sum(cost) as cost,
             min(place) as place
      from ranked
      cross join lateral (select case when place <= ${limit} then ranked.user_id end as user_id) shown
      group by shown.user_id
    )
    select b.user_id, u.external_user_id, b.requests, b.unpriced, b.fee, b.cost
    from bounded b
    left join end_users u on u.app_id = ${selection.appId} and u.id = b.user_id
    order by b.place`))
  return rows.map((row) => ({
    ...toSums(row), userId: row.user_id === null ? null : userId(row.user_id), externalUserId: row.external_user_id,
  }))
}

/** By pipeline and model, the dearest first; bounded like `sumByUser`, the rest under "other". */
export async function sumByPipelineModel(db: Db, selection: Selection, limit: number): Promise<PipelineModelSums[]> {
  const rows = await many<SumsRow & { pipeline: string | null; model_id: string | null }>(db, selected(selection, sql`
    , ranked as (
      select pipeline, model_id, sum(requests) as requests, sum(unpriced) as unpriced, sum(fee) as fee, sum(cost) as cost,
             row_number() over (order by sum(cost) desc, pipeline, model_id) as place
      from selected
      group by pipeline, model_id
    )
    select shown.pipeline, shown.model_id, sum(requests) as requests, sum(unpriced) as unpriced, sum(fee) as fee,
           sum(cost) as cost
    from ranked
    cross join lateral (
      select case when within then ranked.pipeline end as pipeline, case when within then ranked.model_id end as model_id
      from (select place <= ${limit} as within) w) shown
    group by shown.pipeline, shown.model_id
    order by min(place)`))
  return rows.map((row) => ({ ...toSums(row), pipeline: row.pipeline ?? 'other', modelId: row.model_id ?? 'other' }))
}

/** Tickets of a user that wait for a rate. Costs the same however many tickets the user has. */
export async function countUnpriced(db: Db, app: AppId, user: UserId): Promise<bigint> {
  const row = await one<{ count: bigint }>(db, sql`
    select count(*) as count
    from (
      select 1
      from tickets
      where cost_attos is null and app_id = ${app} and user_id = ${user}
      limit 1000000) waiting`)
  return row.count
}

/** Puts `tail` behind the common table `selected`, and numbers its holes on from there. */
function selected(selection: Selection, tail: Statement): Statement {
  const head = selectedRows(selection)
  const shifted = tail.text.replace(/\$(\d+)/g, (_hole, position: string) => `$${Number(position) + head.values.length}`)
  return { text: head.text + shifted, values: [...head.values, ...tail.values] }
}

// Whole hours come from their sums; the parts of hours at the two ends come from the tickets themselves.
function selectedRows({ appId, userId, range }: Selection): Statement {
  const { from, to, edges } = splitAtHours(range)
  return sql`
    with selected as (
      select user_id, pipeline, model_id, ticket_count as requests, unpriced_count as unpriced, fee_wei as fee,
             cost_attos as cost
      from usage_hourly
      where app_id = ${appId} and (${userId}::uuid is null or user_id = ${userId})
        and hour >= coalesce(${from}::timestamptz, '-infinity') and hour < coalesce(${to}::timestamptz, 'infinity')
      union all
      select t.user_id, t.pipeline, t.model_id, 1, case when t.cost_attos is null then 1 else 0 end, t.fee_wei,
             coalesce(t.cost_attos, 0)
      from unnest(${edges.map((edge) => edge.start)}::timestamptz[], ${edges.map((edge) => edge.end)}::timestamptz[])
        as edge (start_at, end_at)
      join tickets t on t.signed_at >= edge.start_at and t.signed_at < edge.end_at
      where t.app_id = ${appId} and (${userId}::uuid is null or t.user_id = ${userId})
    )`
}

const hourMs = 3_600_000

interface Edge { readonly start: Date; readonly end: Date }

/** The whole hours `[from, to)` of a range, and what of it lies before and after them. */
export function splitAtHours({ start, end }: Range): { from: Date | null; to: Date | null; edges: Edge[] } {
  const from = start && new Date(Math.ceil(start.getTime() / hourMs) * hourMs)
  const to = end && new Date(Math.floor(end.getTime() / hourMs) * hourMs)
  // Both ends within one hour: there is no whole hour between them.
  if (start && end && from && to && from > to) return { from, to: from, edges: [{ start, end }] }
  const edges: Edge[] = []
  if (start && from && start < from) edges.push({ start, end: from })
  if (end && to && to < end) edges.push({ start: to, end })
  return { from, to, edges }
}
