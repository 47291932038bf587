import type { AppId } from '../../platform/ids.ts'
import { type Db, sql } from '../../lib/sql.ts'

/**
 * Repairs of derived rows. Each function first makes and locks the rows, in key order like ingest, and then computes
 * them in a statement of its own: what is being ingested meanwhile waits for the lock, is not seen, and adds itself
 * afterwards.
 */
export interface OfUser {
  readonly appId: AppId
  readonly userId: string
}

export interface HourKey {
  readonly hour: string
  readonly pipeline: string
  readonly modelId: string
}

/** Makes hours of a user the sums of their tickets; an hour without tickets goes. */
export async function rebuildHours(
  db: Db,
  { appId, userId }: OfUser,
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
    from unnest(${hours}::timestamptz[], ${pipelines}::text[], ${models}::text[]) as wanted (hour, pipeline, model_id)
    order by hour, pipeline, model_id
    on conflict do nothing`)
  await db.query(sql`
    select 1
    from usage_hourly h
    join unnest(${hours}::timestamptz[], ${pipelines}::text[], ${models}::text[]) as wanted (hour, pipeline, model_id)
      using (hour, pipeline, model_id)
    where h.app_id = ${appId} and h.user_id = ${userId}
    order by hour, pipeline, model_id
    for update of h`)
  await db.query(sql`
    update usage_hourly h
    set ticket_count = r.ticket_count, unpriced_count = r.unpriced_count, fee_wei = r.fee_wei, cost_attos = r.cost_attos,
        billable_secs = r.billable_secs, pixels = r.pixels
    from (
      select w.hour, w.pipeline, w.model_id, count(t.event_id) as ticket_count,
             count(t.event_id) filter (where t.cost_attos is null) as unpriced_count,
             coalesce(sum(t.fee_wei), 0) as fee_wei, coalesce(sum(t.cost_attos), 0) as cost_attos,
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

/**
 * Makes sessions of a user the sums of their tickets; a session without tickets goes. Descriptions stay as they are;
 * those of a session that was gone are the first ticket's.
 */
export async function rebuildSessions(
  db: Db,
  { appId, userId }: OfUser,
  sessions: readonly string[],
): Promise<void> {
  await db.query(sql`
    insert into ticket_sessions (app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id, started_at, last_at,
                                 ticket_count, unpriced_count, fee_wei, cost_attos, billable_secs, pixels, replayed_count,
                                 late_count, seen, gapped)
    select distinct on (session_id) app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id, signed_at,
           signed_at, 1, 0, 0, 0, 0, 0, 0, 0, '{}', false
    from tickets
    where app_id = ${appId} and user_id = ${userId} and session_id = any(${sessions}::text[])
    order by session_id, received_at, signed_at, event_id
    on conflict do nothing`)
  await db.query(sql`
    select 1
    from ticket_sessions
    where app_id = ${appId} and user_id = ${userId} and session_id = any(${sessions}::text[])
    order by session_id
    for update`)
  await db.query(sql`
    update ticket_sessions s
    set started_at = r.started_at, last_at = r.last_at, ticket_count = r.ticket_count, unpriced_count = r.unpriced_count,
        fee_wei = r.fee_wei, cost_attos = r.cost_attos, billable_secs = r.billable_secs, pixels = r.pixels,
        late_count = r.late_count,
        irregular = s.irregular or r.replayed_count > 0 or r.late_count > 0, watched = s.watched or r.gapped,
        -- A session that gave up its oldest holes knows only their number, and no ticket tells it.
        replayed_count = case when s.closed_below > 0 then s.replayed_count else r.replayed_count end,
        seen = case when s.closed_below > 0 then s.seen else r.seen end,
        gapped = case when s.closed_below > 0 then s.gapped else r.gapped end
    from (
      select session_id, min(signed_at) as started_at, max(signed_at) as last_at, count(*) as ticket_count,
             count(*) filter (where cost_attos is null) as unpriced_count, sum(fee_wei) as fee_wei,
             coalesce(sum(cost_attos), 0) as cost_attos, sum(billable_secs) as billable_secs, sum(pixels) as pixels,
             count(*) filter (where replayed) as replayed_count,
             count(*) filter (where signed_at < received_at - interval '15 minutes') as late_count,
             range_agg(int8range(sequence_number, sequence_number + 1)) as seen,
             range_agg(int8range(sequence_number, sequence_number + 1))
               <> int8multirange(int8range(0, max(sequence_number) + 1)) as gapped
      from tickets
      where app_id = ${appId} and user_id = ${userId} and session_id = any(${sessions}::text[])
      group by session_id) r
    where s.app_id = ${appId} and s.user_id = ${userId} and s.session_id = r.session_id`)
  await db.query(sql`
    delete from ticket_sessions s
    where s.app_id = ${appId} and s.user_id = ${userId} and s.session_id = any(${sessions}::text[])
      and not exists (
        select 1
        from tickets t
        where t.app_id = s.app_id and t.user_id = s.user_id and t.session_id = s.session_id)`)
}

/** Makes the head of a user's ledger the fold of its entries. Locks it as the ledger does. */
export async function rebuildHead(db: Db, { appId, userId }: OfUser, at: Date): Promise<void> {
  // A head that is gone goes on in the period of its newest included usage, which must not be given again.
  await db.query(sql`
    insert into balances (app_id, user_id, period_start, period_end, period_counts_from, updated_at)
    select u.app_id, u.id, greatest(g.effective_at, u.created_at), coalesce(g.expires_at, u.created_at),
           coalesce(g.effective_at, u.created_at), ${at}
    from end_users u
    left join lateral (
      select effective_at, expires_at
      from grants
      where app_id = u.app_id and user_id = u.id and kind = 'included'
      order by expires_at desc
      limit 1) g on true
    where u.app_id = ${appId} and u.id = ${userId}
    on conflict do nothing`)
  await db.query(sql`
    select 1
    from balances
    where app_id = ${appId} and user_id = ${userId}
    for no key update`)
  await db.query(sql`
    update balances b
    set seq = f.seq, balance_attos = f.balance, granted_attos = f.granted, topup_attos = f.topup,
        adjusted_attos = f.adjusted, consumed_attos = f.consumed, overage_attos = f.overage, expired_attos = f.expired,
        updated_at = ${at}
    from (
      select coalesce(max(seq), 0) as seq, coalesce(sum(amount_attos), 0) as balance,
             coalesce(sum(amount_attos) filter (where kind = 'grant'), 0) as granted,
             coalesce(sum(amount_attos - overage_attos) filter (where kind = 'adjustment'), 0) as adjusted,
             coalesce(sum(overage_attos - amount_attos) filter (where kind = 'charge'), 0) as consumed,
             coalesce(sum(overage_attos), 0) as overage,
             coalesce(-sum(amount_attos) filter (where kind = 'expire'), 0) as expired,
             (select coalesce(sum(amount_attos), 0)
              from grants
              where app_id = ${appId} and user_id = ${userId} and kind = 'grant') as topup
      from ledger_entries
      where app_id = ${appId} and user_id = ${userId}) f
    where b.app_id = ${appId} and b.user_id = ${userId}`)
}
