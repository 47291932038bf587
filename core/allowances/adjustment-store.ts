import { type AppId, appId } from '../platform/ids.ts'
import { type UsdAttos, usdAttos } from '../lib/money.ts'
import { type Db, maybeOne, one, sql } from '../lib/sql.ts'
import type { Account } from './types.ts'

/** The app of a public client id, whatever its status: a correction may be due after the end. */
export async function findApp(db: Db, clientId: string): Promise<AppId | null> {
  const row = await maybeOne<{ app_id: string }>(
    db,
    sql`
    select app_id
    from clients
    where client_id = ${clientId} and kind = 'public'`,
  )
  return row && appId(row.app_id)
}

export interface CorrectedTicket {
  readonly pipeline: string
  readonly modelId: string
  /** Null while it waits for its rate. */
  readonly cost: UsdAttos | null
}

/** A user's ticket by its event id. Looks through all of the user's tickets: for hands, not for programs. */
export async function findTicket(
  db: Db,
  { appId: app, userId }: { appId: string; userId: string },
  eventId: string,
): Promise<CorrectedTicket | null> {
  const row = await maybeOne<{ pipeline: string; model_id: string; cost_attos: string | null }>(
    db,
    sql`
    select pipeline, model_id, cost_attos
    from tickets
    where app_id = ${app} and user_id = ${userId} and event_id = ${eventId}
    limit 1`,
  )
  return (
    row && {
      pipeline: row.pipeline,
      modelId: row.model_id,
      cost: row.cost_attos === null ? null : usdAttos(BigInt(row.cost_attos)),
    }
  )
}

/** What adjustments that name a ticket came to. */
export async function adjustedFor(
  db: Db,
  { appId: app, userId }: Pick<Account, 'appId' | 'userId'>,
  eventId: string,
): Promise<bigint> {
  const row = await one<{ sum: string }>(
    db,
    sql`
    select coalesce(sum(amount_attos), 0) as sum
    from adjustments
    where app_id = ${app} and user_id = ${userId} and event_id = ${eventId}`,
  )
  return BigInt(row.sum)
}

export interface NewAdjustment {
  readonly id: string
  readonly amount: UsdAttos
  readonly reason: string
  readonly author: string
  readonly eventId: string | null
  readonly at: Date
}

/** Writes an adjustment of a locked account, and the account's head with it; entries and grants are still to be saved. */
export async function insertAdjustment(
  db: Db,
  account: Account,
  adjustment: NewAdjustment,
): Promise<void> {
  const { appId: app, userId } = account
  await db.query(sql`
    insert into adjustments (app_id, user_id, id, amount_attos, reason, author, event_id, created_at)
    values (${app}, ${userId}, ${adjustment.id}, ${adjustment.amount}, ${adjustment.reason}, ${adjustment.author},
            ${adjustment.eventId}, ${adjustment.at})`)
  await db.query(sql`
    update balances
    set adjusted_attos = adjusted_attos + ${adjustment.amount}, seq = ${account.seq}, balance_attos = ${account.balance},
        granted_attos = ${account.granted}, topup_attos = ${account.topup}, consumed_attos = ${account.consumed},
        overage_attos = ${account.overage}, expired_attos = ${account.expired}
    where app_id = ${app} and user_id = ${userId}`)
}
