import type { AppId } from '../../shared/ids.ts'
import { type Db, many, one, sql } from '../../lib/sql.ts'

/** Tickets as lines of a file: each value as text, exactly as stored. */

export interface TicketCursor {
  readonly userId: string
  readonly signedAt: string
  readonly eventId: string
}

export interface TicketLine extends TicketCursor {
  /**
   * A JSON object; null when the ticket has no envelope, because it could then be imported twice.
   */
  readonly line: string | null
}

export interface TicketSelection {
  readonly appId: AppId
  /** Signing time: from inclusive, to exclusive; null is unbounded. */
  readonly from: Date | null
  readonly to: Date | null
}

/** Returns the next tickets in key order. */
export async function ticketsAfter(
  db: Db,
  { appId, from, to }: TicketSelection,
  { after, limit }: { after: TicketCursor | null; limit: number },
): Promise<TicketLine[]> {
  const start: TicketCursor = after ?? {
    userId: '00000000-0000-0000-0000-000000000000',
    signedAt: '-infinity',
    eventId: '',
  }
  const rows = await many<{
    user_id: string
    signed: string
    event_id: string
    line: string | null
  }>(
    db,
    sql`
    select t.user_id, t.event_id, to_char(t.signed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as signed,
           case when e.digest is not null then json_build_object(
             'id', t.event_id, 'digest', replace(e.digest::text, '-', ''), 'user', u.external_user_id,
             'signedAt', to_char(t.signed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
             'clockMs', t.clock_ms::text,
             'session', t.session_id, 'sequence', t.sequence_number::text, 'request', t.request_id, 'manifest', t.manifest_id,
             'app', t.app_name, 'pipeline', t.pipeline, 'model', t.model_id, 'feeWei', t.fee_wei::text,
             'costAttos', t.cost_attos::text, 'retailAttos', coalesce(t.retail_attos, t.cost_attos)::text,
             'platformFeeAttos', case when t.cost_attos is not null then coalesce(t.platform_fee_attos, 0)::text end,
             'platformFeeWei', case when t.cost_attos is not null then coalesce(t.platform_fee_wei, 0)::text end,
             'plan', v.plan_id::text, 'planVersion', v.version::text, 'rateAttosPerEth', r.usd_attos_per_eth::text, 'rateSource', r.source,
             'rateObservedAt', to_char(r.observed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
             'charge', t.charge_id::text, 'billableSecs', t.billable_secs::text, 'pixels', t.pixels::text,
             'tickets', t.num_tickets::text, 'orchAddress', t.orch_address, 'orchUrl', t.orch_url,
             'replayed', t.replayed::text, 'emittedAt', to_char(t.emitted_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
             'statedUsd', trim_scale(t.stated_usd)::text,
             'receivedAt', to_char(t.received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text end as line
    from tickets t
    join end_users u on u.app_id = t.app_id and u.id = t.user_id
    left join rates r on r.id = t.rate_id
    left join plan_versions v on v.id = t.terms_id
    left join envelopes e on e.key = case
      when t.event_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then t.event_id::uuid
      else left(encode(sha256(convert_to(t.event_id, 'UTF8')), 'hex'), 32)::uuid end
    where t.app_id = ${appId} and (t.user_id, t.signed_at, t.event_id) > (${start.userId}, ${start.signedAt}, ${start.eventId})
      and t.signed_at >= coalesce(${from}::timestamptz, '-infinity') and t.signed_at < coalesce(${to}::timestamptz, 'infinity')
    order by t.user_id, t.signed_at, t.event_id
    limit ${limit}`,
  )
  return rows.map((row) => ({
    userId: row.user_id,
    signedAt: row.signed,
    eventId: row.event_id,
    line: row.line,
  }))
}

/** Counts the tickets; rounds the range to whole hours. */
export async function countTickets(db: Db, { appId, from, to }: TicketSelection): Promise<bigint> {
  const row = await one<{ count: bigint }>(
    db,
    sql`
    select coalesce(sum(ticket_count), 0)::bigint as count
    from usage_hourly
    where app_id = ${appId} and hour >= coalesce(date_trunc('hour', ${from}::timestamptz, 'UTC'), '-infinity')
      and hour < coalesce(${to}::timestamptz, 'infinity')`,
  )
  return row.count
}
