import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { TicketCharge } from '../../metering/ingest/charges.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { Credit } from '../accounts/credits.ts'
import { type CreditRow, attos, creditFromRow } from '../accounts/read-store.ts'

/** Reads the tickets and charges that adjustments correct. */

export interface CorrectedTicket {
  readonly pipeline: string
  readonly modelId: string
  /** Retail cost; null while the ticket waits for its rate. */
  readonly cost: UsdAttos | null
  readonly chargeId: string | null
}

/**
 * Finds a user's ticket by its event id. Scans all of the user's tickets, so use it for an
 * operator's correction, not on a hot path.
 */
export async function findTicket(
  db: Db,
  { appId: app, userId }: { appId: string; userId: string },
  eventId: string,
): Promise<CorrectedTicket | null> {
  const row = await maybeOne<{
    pipeline: string
    model_id: string
    cost_attos: string | null
    charge_id: string | null
  }>(
    db,
    sql`
    select pipeline, model_id, coalesce(retail_attos, cost_attos) as cost_attos, charge_id
    from tickets
    where app_id = ${app} and user_id = ${userId} and event_id = ${eventId}
    limit 1`,
  )
  return (
    row && {
      pipeline: row.pipeline,
      modelId: row.model_id,
      cost: row.cost_attos === null ? null : usdAttos(BigInt(row.cost_attos)),
      chargeId: row.charge_id,
    }
  )
}

/** A charge with its draws: `remaining` of each credit is the part that it paid. */
export interface DrawnCharge {
  readonly credits: readonly Credit[]
  readonly tickets: readonly TicketCharge[]
}

/** Finds a charge of a locked user, with all of its tickets that are in the table. */
export async function findCharge(
  db: Db,
  { appId: app, userId: user }: UserKey,
  chargeId: string,
): Promise<DrawnCharge | null> {
  const entry = await maybeOne<object>(
    db,
    sql`
    select
    from ledger_entries
    where app_id = ${app} and user_id = ${user} and cause_id = ${chargeId} and kind = 'charge'`,
  )
  if (!entry) return null
  const credits = await many<CreditRow>(
    db,
    sql`
    select g.user_id, g.id, g.kind, g.source, g.feature_key, g.amount_attos, -d.amount as remaining_attos, g.priority,
           (extract(epoch from g.effective_at) * 1000)::float8 as effective_ms,
           (extract(epoch from g.expires_at) * 1000)::float8 as expires_ms, null::float8 as expired_ms,
           (extract(epoch from g.created_at) * 1000)::float8 as created_ms
    from ledger_entries e
    cross join unnest(e.credit_ids, e.credit_attos) as d (id, amount)
    join grants g on g.app_id = e.app_id and g.user_id = e.user_id and g.id = d.id
    where e.app_id = ${app} and e.user_id = ${user} and e.cause_id = ${chargeId} and e.kind = 'charge'`,
  )
  const tickets = await many<{
    event_id: string
    signed_ms: number
    pipeline: string
    model_id: string
    cost_attos: string
  }>(
    db,
    sql`
    select event_id, floor(extract(epoch from signed_at) * 1000)::float8 as signed_ms, pipeline, model_id,
           coalesce(retail_attos, cost_attos) as cost_attos
    from tickets
    where app_id = ${app} and user_id = ${user} and charge_id = ${chargeId}`,
  )
  return {
    credits: credits.map(creditFromRow),
    tickets: tickets.map((row) => ({
      appId: app,
      userId: user,
      eventId: row.event_id,
      signedAt: new Date(row.signed_ms),
      pipeline: row.pipeline,
      modelId: row.model_id,
      cost: attos(row.cost_attos),
    })),
  }
}

/** Returns the sum given back for a ticket. */
export async function givenBackFor(
  db: Db,
  { appId: app, userId }: UserKey,
  eventId: string,
): Promise<bigint> {
  const row = await one<{ sum: string }>(
    db,
    sql`
    select coalesce(sum(amount_attos), 0) as sum
    from adjustments
    where app_id = ${app} and user_id = ${userId} and event_id = ${eventId} and amount_attos > 0`,
  )
  return BigInt(row.sum)
}
