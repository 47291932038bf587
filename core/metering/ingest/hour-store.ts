import { int8s, numerics, texts, uuids } from '../../lib/copy-sql.ts'
import { type DecimalSum, decimalText } from '../../lib/decimal.ts'
import { type Db, type Statement, sql } from '../../lib/sql.ts'
import type { AppId, UserId } from '../../shared/ids.ts'
import type { Feature } from '../batch/parsed-batch.ts'
import type { Subject } from '../batch/subjects.ts'
import type { Prices } from '../batch/tariff.ts'

/** Writes `usage_hourly`, always in key order, so that writers never deadlock. */

/** Sums over tickets. */
export interface Sums {
  tickets: number
  unpriced: number
  fee: bigint
  cost: bigint
  /** Retail minus cost. */
  markup: bigint
  platformFee: bigint
  platformWei: bigint
  readonly billableSecs: DecimalSum
  pixels: bigint
}

/** An addition to a row of `usage_hourly`. */
export interface HourSums extends Sums {
  readonly subject: Subject
  readonly feature: Feature
  readonly hourMs: number
}

/** Returns the statement that adds sums to their hours. `sums` must be in key order. */
export function hoursStatement(sums: readonly HourSums[]): Statement {
  const column = <T>(value: (row: HourSums) => T): T[] => sums.map(value)
  return sql`
    insert into usage_hourly (app_id, user_id, hour, pipeline, model_id, ticket_count, unpriced_count, fee_wei,
                              cost_attos, markup_attos, platform_fee_attos, platform_fee_wei, billable_secs, pixels)
    select app_id, user_id, to_timestamp(hour_ms / 1000), pipeline, model_id, tickets, unpriced, fee, cost, markup,
           platform_fee, platform_wei, secs, pixels
    from unnest(
      ${uuids(column((s) => s.subject.appId))}::uuid[], ${uuids(column((s) => s.subject.userId))}::uuid[],
      ${int8s(column((s) => s.hourMs))}::bigint[], ${texts(column((s) => s.feature.pipeline))}::text[],
      ${texts(column((s) => s.feature.modelId))}::text[], ${int8s(column((s) => s.tickets))}::bigint[],
      ${int8s(column((s) => s.unpriced))}::bigint[], ${numerics(column((s) => s.fee))}::numeric[],
      ${numerics(column((s) => s.cost))}::numeric[], ${numerics(column((s) => s.markup))}::numeric[],
      ${numerics(column((s) => s.platformFee))}::numeric[], ${numerics(column((s) => s.platformWei))}::numeric[],
      ${numerics(column((s) => decimalText(s.billableSecs)))}::numeric[],
      ${numerics(column((s) => s.pixels))}::numeric[]) with ordinality
      as b (app_id, user_id, hour_ms, pipeline, model_id, tickets, unpriced, fee, cost, markup, platform_fee, platform_wei,
            secs, pixels, position)
    order by position
    on conflict (app_id, user_id, hour, pipeline, model_id) do update
    set ticket_count = usage_hourly.ticket_count + excluded.ticket_count,
        unpriced_count = usage_hourly.unpriced_count + excluded.unpriced_count,
        fee_wei = usage_hourly.fee_wei + excluded.fee_wei,
        cost_attos = usage_hourly.cost_attos + excluded.cost_attos,
        markup_attos = usage_hourly.markup_attos + excluded.markup_attos,
        platform_fee_attos = usage_hourly.platform_fee_attos + excluded.platform_fee_attos,
        platform_fee_wei = usage_hourly.platform_fee_wei + excluded.platform_fee_wei,
        billable_secs = usage_hourly.billable_secs + excluded.billable_secs,
        pixels = usage_hourly.pixels + excluded.pixels`
}

/** Runs an `hoursStatement`. */
export async function addHours(db: Db, statement: Statement): Promise<void> {
  await db.query(statement)
}

/** A late-priced ticket's addition to its hour. */
export interface LateCost extends Prices {
  readonly appId: AppId
  readonly userId: UserId
  readonly signedAt: string
  readonly pipeline: string
  readonly modelId: string
}

/** Adds the cost of tickets that were stored without a price to their hours. */
export async function priceHours(db: Db, tickets: readonly LateCost[]): Promise<void> {
  const column = <T>(value: (ticket: LateCost) => T): T[] => tickets.map(value)
  // An insert, as in `addHours`, so that both lock the hours in the same order; all rows exist.
  // Ingest sorts by code unit, which is the order of "C".
  await db.query(sql`
    insert into usage_hourly (app_id, user_id, hour, pipeline, model_id, ticket_count, unpriced_count, fee_wei,
                              cost_attos, markup_attos, platform_fee_attos, platform_fee_wei, billable_secs, pixels)
    select app_id, user_id, date_trunc('hour', signed_at, 'UTC') as hour, pipeline, model_id, 0, -count(*), 0,
           sum(cost_attos), sum(markup_attos), sum(platform_fee_attos), sum(platform_fee_wei), 0, 0
    from unnest(
      ${column((t) => t.appId)}::uuid[], ${column((t) => t.userId)}::uuid[], ${column((t) => t.signedAt)}::timestamptz[],
      ${column((t) => t.pipeline)}::text[], ${column((t) => t.modelId)}::text[], ${column((t) => t.cost)}::numeric[],
      ${column((t) => t.retail - t.cost)}::numeric[], ${column((t) => t.platformFee)}::numeric[],
      ${column((t) => t.platformWei)}::numeric[])
      as b (app_id, user_id, signed_at, pipeline, model_id, cost_attos, markup_attos, platform_fee_attos, platform_fee_wei)
    group by app_id, user_id, date_trunc('hour', signed_at, 'UTC'), pipeline, model_id
    order by app_id, user_id, hour, pipeline collate "C", model_id collate "C"
    on conflict (app_id, user_id, hour, pipeline, model_id) do update
    set unpriced_count = usage_hourly.unpriced_count + excluded.unpriced_count,
        cost_attos = usage_hourly.cost_attos + excluded.cost_attos,
        markup_attos = usage_hourly.markup_attos + excluded.markup_attos,
        platform_fee_attos = usage_hourly.platform_fee_attos + excluded.platform_fee_attos,
        platform_fee_wei = usage_hourly.platform_fee_wei + excluded.platform_fee_wei`)
}

export interface HourKey {
  readonly hour: string
  readonly pipeline: string
  readonly modelId: string
}

/**
 * Recomputes a user's hours from their tickets and removes hours without tickets. It first inserts
 * and locks the rows, in key order like ingest, and computes them in separate statements:
 * concurrent ingest waits for the lock, is not counted here, and adds its own sums afterwards.
 */
export async function rebuildHours(
  db: Db,
  { appId, userId }: { appId: AppId; userId: string },
  keys: readonly HourKey[],
): Promise<void> {
  const [hours, pipelines, models] = [
    keys.map((key) => key.hour),
    keys.map((key) => key.pipeline),
    keys.map((key) => key.modelId),
  ]
  await db.query(sql`
    insert into usage_hourly (app_id, user_id, hour, pipeline, model_id, ticket_count, unpriced_count, fee_wei, cost_attos,
                              billable_secs, pixels)
    select ${appId}, ${userId}, hour, pipeline, model_id, 0, 0, 0, 0, 0, 0
    from unnest(${hours}::timestamptz[], ${pipelines}::text[], ${models}::text[]) as w (hour, pipeline, model_id)
    order by hour, pipeline, model_id
    on conflict do nothing`)
  await db.query(sql`
    select 1
    from usage_hourly h
    join unnest(${hours}::timestamptz[], ${pipelines}::text[], ${models}::text[]) as w (hour, pipeline, model_id)
      using (hour, pipeline, model_id)
    where h.app_id = ${appId} and h.user_id = ${userId}
    order by hour, pipeline, model_id
    for update of h`)
  await db.query(sql`
    update usage_hourly h
    set ticket_count = r.ticket_count, unpriced_count = r.unpriced_count, fee_wei = r.fee_wei, cost_attos = r.cost_attos,
        markup_attos = r.markup_attos, platform_fee_attos = r.platform_fee_attos, platform_fee_wei = r.platform_fee_wei,
        billable_secs = r.billable_secs, pixels = r.pixels
    from (
      select w.hour, w.pipeline, w.model_id, count(t.event_id) as ticket_count,
             count(t.event_id) filter (where t.cost_attos is null) as unpriced_count,
             coalesce(sum(t.fee_wei), 0) as fee_wei, coalesce(sum(t.cost_attos), 0) as cost_attos,
             coalesce(sum(t.retail_attos - t.cost_attos), 0) as markup_attos,
             coalesce(sum(t.platform_fee_attos), 0) as platform_fee_attos,
             coalesce(sum(t.platform_fee_wei), 0) as platform_fee_wei,
             coalesce(sum(t.billable_secs), 0) as billable_secs, coalesce(sum(t.pixels), 0) as pixels
      from unnest(${hours}::timestamptz[], ${pipelines}::text[], ${models}::text[]) as w (hour, pipeline, model_id)
      left join tickets t on t.app_id = ${appId} and t.user_id = ${userId} and t.signed_at >= w.hour
        and t.signed_at < w.hour + interval '1 hour' and t.pipeline = w.pipeline and t.model_id = w.model_id
      group by w.hour, w.pipeline, w.model_id) r
    where h.app_id = ${appId} and h.user_id = ${userId} and h.hour = r.hour and h.pipeline = r.pipeline
      and h.model_id = r.model_id`)
  await db.query(sql`
    delete from usage_hourly h
    using unnest(${hours}::timestamptz[], ${pipelines}::text[], ${models}::text[]) as w (hour, pipeline, model_id)
    where h.app_id = ${appId} and h.user_id = ${userId} and h.hour = w.hour and h.pipeline = w.pipeline
      and h.model_id = w.model_id and h.ticket_count = 0`)
}
