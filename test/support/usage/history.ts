import type { AppId, UserId } from '../../../core/shared/ids.ts'
import { type Db, type Pool, sql, tx } from '../../../core/lib/sql.ts'

/** A user with `perHour` tickets in each of `hours` hours, spread evenly over the month. */
export interface Habit {
  readonly appId: AppId
  readonly userId: UserId
  readonly hours: number
  readonly perHour: number
}

/** The generated month, of 720 hours. */
export const month = '2026-04'
const monthHours = 720
export const monthRange = { startDate: `${month}-01`, endDate: `${month}-30` }
const firstOf = `${month}-01T00:00:00Z`
const endOf = '2026-05-01T00:00:00Z'
const callsPerSession = 200

/**
 * Generates a month of tickets with their hourly sums and sessions, as ingest would store them at
 * 3000 USD for one ETH, but without ledger entries. Returns the number of tickets. The rows are
 * generated in the database, unlogged and before the month has indexes: some 100,000 a second,
 * including the indexes.
 */
export async function generateHistory(pool: Pool, habits: readonly Habit[]): Promise<number> {
  const name = `tickets_${month.replace('-', '_')}`
  await pool.query(
    `create unlogged table ${name} (like tickets including defaults including constraints)`,
  )
  await Promise.all(
    [0, 1].map((part) =>
      tx(pool, async (db) => {
        for (const habit of habits) await insertTickets(db, { ...habit, table: name, part })
      }),
    ),
  )
  await tx(pool, async (db) => {
    await db.query(sql`set local maintenance_work_mem = '512MB'`)
    await db.query(
      `alter table tickets attach partition ${name} for values from ('${firstOf}') to ('${endOf}')`,
    )
    for (const habit of habits) await insertSums(db, habit)
  })
  for (const table of ['tickets', 'usage_hourly', 'ticket_sessions'])
    await pool.query(`analyze ${table}`)
  return habits.reduce((sum, { hours, perHour }) => sum + hours * perHour, 0)
}

// Fills every other hour, so that two connections can work in parallel. Tickets of an hour have
// equal distances; a session has 200 tickets.
async function insertTickets(
  db: Db,
  { table, part, appId, userId, hours, perHour }: Habit & { table: string; part: number },
): Promise<void> {
  await db.query({
    text: `
    insert into ${table} (app_id, user_id, event_id, signed_at, session_id, sequence_number, request_id, manifest_id, app_name,
                          pipeline, model_id, fee_wei, rate_id, cost_attos, charge_id, billable_secs, pixels, num_tickets,
                          orch_address, orch_url, replayed, emitted_at, received_at)
    select $1::uuid, $2::uuid, left($2::text, 19) || '8000-' || lpad(to_hex(h * $4::int + n), 12, '0'),
           $5::timestamptz + (h * $3::int) * interval '1 hour' + n * (interval '1 hour' / $4::int),
           lpad(to_hex(h * 1000 + n / ${callsPerSession}), 8, '0'), n % ${callsPerSession}, left(md5($2::text || (h * $4::int + n)::text), 8),
           lpad(to_hex(h * 1000 + n / ${callsPerSession}), 8, '0'), 'acme/echo', 'live', 'unknown', 60000, 1, 180000000,
           '00000000-0000-7000-8000-000000000000', 5, 0, 1, '0x5bE44e23041E93CDF9bCd5A0968524e104e38ae1',
           'https://orch.example:8935', false, null, $5::timestamptz + (h * $3::int) * interval '1 hour'
    from generate_series($7::int, $6::int - 1, 2) h
    cross join generate_series(0, $4::int - 1) n`,
    values: [appId, userId, Math.floor(monthHours / hours), perHour, firstOf, hours, part],
  })
}

async function insertSums(db: Db, { appId, userId, hours, perHour }: Habit): Promise<void> {
  const every = Math.floor(monthHours / hours)
  await db.query(sql`
    insert into usage_hourly (app_id, user_id, hour, pipeline, model_id, ticket_count, unpriced_count, fee_wei, cost_attos,
                              billable_secs, pixels)
    select ${appId}::uuid, ${userId}::uuid, ${firstOf}::timestamptz + (h * ${every}::int) * interval '1 hour', 'live', 'unknown',
           ${perHour}::int, 0, 60000 * ${perHour}::numeric, 180000000 * ${perHour}::numeric, 5 * ${perHour}::numeric, 0
    from generate_series(0, ${hours}::int - 1) h`)
  await db.query(sql`
    insert into ticket_sessions (app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id, started_at, last_at,
                                 ticket_count, unpriced_count, fee_wei, cost_attos, billable_secs, pixels, replayed_count,
                                 late_count, seen, gapped)
    select ${appId}::uuid, ${userId}::uuid, lpad(to_hex(h * 1000 + s), 8, '0'), lpad(to_hex(h * 1000 + s), 8, '0'), 'acme/echo', 'live',
           'unknown', at + first * step, at + last * step, last - first + 1, 0, 60000 * (last - first + 1),
           180000000 * (last - first + 1)::numeric, 5 * (last - first + 1), 0, 0, 0, int8multirange(int8range(0, last - first + 1)), false
    from generate_series(0, ${hours}::int - 1) h
    cross join generate_series(0, (${perHour}::int - 1) / 200) s
    cross join lateral (
      select s * 200 as first, least(${perHour}::int, (s + 1) * 200) - 1 as last, interval '1 hour' / ${perHour}::int as step,
             ${firstOf}::timestamptz + (h * ${every}::int) * interval '1 hour' as at) part`)
}
