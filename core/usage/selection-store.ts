import { type Statement, sql } from '../lib/sql.ts'
import { splitAtHours } from './range.ts'
import type { Selection } from './types.ts'

/**
 * Where a selection is read from: statements that begin with the common table `selected` (user_id, session_id,
 * manifest_id, pipeline, model_id, requests, unpriced, fee, cost, secs, first_at, last_at). What they cost goes with the
 * hours, sessions or pages that are touched, never with the tickets of a month.
 */

/** Whole hours come from their sums; the parts of hours at the two ends come from the tickets themselves. */
export function selectedHours({ appId, userId, range }: Selection): Statement {
  const {
    from,
    to,
    edges: [first, second],
  } = splitAtHours(range)
  // An edge that is not there is null, and reads nothing. Each has its own arm, as the planner sees through constants only.
  return sql`
    with selected as (
      select user_id, null::text as session_id, null::text as manifest_id, pipeline, model_id, ticket_count as requests,
             unpriced_count as unpriced, fee_wei as fee, cost_attos as cost, billable_secs as secs,
             hour as first_at, hour as last_at
      from usage_hourly
      where app_id = ${appId} and (${userId}::uuid is null or user_id = ${userId})
        and hour >= coalesce(${from}::timestamptz, '-infinity') and hour < coalesce(${to}::timestamptz, 'infinity')
      union all
      select user_id, null, null, pipeline, model_id, 1, case when cost_attos is null then 1 else 0 end, fee_wei,
             coalesce(cost_attos, 0), billable_secs, signed_at, signed_at
      from tickets
      where app_id = ${appId} and (${userId}::uuid is null or user_id = ${userId})
        and signed_at >= ${first?.start}::timestamptz and signed_at < ${first?.end}::timestamptz
      union all
      select user_id, null, null, pipeline, model_id, 1, case when cost_attos is null then 1 else 0 end, fee_wei,
             coalesce(cost_attos, 0), billable_secs, signed_at, signed_at
      from tickets
      where app_id = ${appId} and (${userId}::uuid is null or user_id = ${userId})
        and signed_at >= ${second?.start}::timestamptz and signed_at < ${second?.end}::timestamptz
    )`
}

// How many sessions that began before a range are looked at, the latest first, for those that reach into it.
const earlierMax = 10_000

/**
 * Sessions that lie in the range come from their sums; of those that reach over an end of it the tickets within are
 * read. A session that began more than `earlierMax` sessions before the range is left out.
 */
export function selectedSessions({ appId, userId, range: { start, end } }: Selection): Statement {
  return sql`
    with touched as (
      select user_id, session_id, coalesce(nullif(manifest_id, '') collate "C", session_id) as manifest_id, pipeline, model_id,
             ticket_count, unpriced_count, fee_wei, cost_attos, billable_secs, started_at, last_at
      from ticket_sessions
      where app_id = ${appId} and (${userId}::uuid is null or user_id = ${userId})
        and started_at >= coalesce(${start}::timestamptz, '-infinity') and started_at < coalesce(${end}::timestamptz, 'infinity')
      union all
      select *
      from (
        select user_id, session_id, coalesce(nullif(manifest_id, '') collate "C", session_id) as manifest_id, pipeline, model_id,
               ticket_count, unpriced_count, fee_wei, cost_attos, billable_secs, started_at, last_at
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
             fee_wei as fee, cost_attos as cost, billable_secs as secs, started_at as first_at, last_at
      from touched
      where not (coalesce(started_at < ${start}::timestamptz, false) or coalesce(last_at >= ${end}::timestamptz, false))
      union all
      select cut.user_id, cut.session_id, cut.manifest_id, cut.pipeline, cut.model_id, 1,
             case when t.cost_attos is null then 1 else 0 end, t.fee_wei, coalesce(t.cost_attos, 0), t.billable_secs,
             t.signed_at, t.signed_at
      from (
        select user_id, started_at < ${start}::timestamptz as earlier, min(started_at) as from_at, max(last_at) as to_at
        from cut
        group by user_id, earlier) span
      -- "offset 0" keeps this a look-up by the key for each user and end.
      cross join lateral (
        select session_id, signed_at, fee_wei, cost_attos, billable_secs
        from tickets
        where app_id = ${appId} and user_id = span.user_id and signed_at >= span.from_at and signed_at <= span.to_at
          and signed_at >= coalesce(${start}::timestamptz, '-infinity') and signed_at < coalesce(${end}::timestamptz, 'infinity')
        offset 0) t
      join cut on cut.user_id = span.user_id and cut.session_id = t.session_id
        and (cut.started_at < ${start}::timestamptz) is not distinct from span.earlier
    )`
}

/** The tickets of one gateway request. Ids are compared as text so that no key looks better than the request's own index. */
export function selectedRequest({
  appId,
  userId,
  range: { start, end },
  requestId,
}: Selection): Statement {
  return sql`
    with selected as (
      select user_id, session_id, coalesce(nullif(manifest_id, '') collate "C", session_id) as manifest_id, pipeline, model_id,
             1 as requests, case when cost_attos is null then 1 else 0 end as unpriced, fee_wei as fee,
             coalesce(cost_attos, 0) as cost, billable_secs as secs, signed_at as first_at, signed_at as last_at
      from tickets
      where request_id = ${requestId} and app_id::text = ${appId} and (${userId}::text is null or user_id::text = ${userId})
        and (${start}::timestamptz is null or signed_at >= ${start}) and (${end}::timestamptz is null or signed_at < ${end})
    )`
}
