import type { Pool } from '../../../core/lib/sql.ts'

/** Fills `ticket_sessions` from the tickets, for as long as ingest does not. */
export async function fillSessions(pool: Pick<Pool, 'query'>): Promise<void> {
  await pool.query(`
    insert into ticket_sessions (app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id, started_at, last_at,
                                 ticket_count, unpriced_count, fee_wei, cost_attos, billable_secs, pixels, replayed_count,
                                 late_count, seen, gapped)
    select app_id, user_id, session_id, min(manifest_id), min(app_name), min(pipeline), min(model_id), min(signed_at),
           max(signed_at), count(*), count(*) filter (where cost_attos is null), sum(fee_wei), coalesce(sum(cost_attos), 0),
           sum(billable_secs), sum(pixels), 0, 0, range_agg(int8range(sequence_number, sequence_number + 1)), false
    from tickets
    group by app_id, user_id, session_id
    on conflict (app_id, user_id, session_id) do nothing`)
}
