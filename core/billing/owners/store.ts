import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { Email } from '../../lib/text/email.ts'
import {
  type AccountId,
  type AppId,
  type UserId,
  type UserKey,
  accountId,
} from '../../shared/ids.ts'

/** Reads owners' accounts in the platform app. Other domains write them. */

export interface OwnerName {
  readonly accountId: AccountId
  readonly email: string
}

interface NameRow {
  id: string
  email: string
}

const nameOf = (row: NameRow): OwnerName => ({ accountId: accountId(row.id), email: row.email })

/** Finds the account with that e-mail address; null if there is none. */
export async function findByEmail(db: Db, email: Email): Promise<OwnerName | null> {
  const row = await maybeOne<NameRow>(
    db,
    sql`
    select id, email
    from accounts
    where email = ${email}`,
  )
  return row && nameOf(row)
}

/** Finds the account that pays as the owner of an app; null for a platform-owned app. */
export async function findPayer(db: Db, app: AppId): Promise<OwnerName | null> {
  const row = await maybeOne<NameRow>(
    db,
    sql`
    select a.id, a.email
    from app_payers p
    join accounts a on a.id = p.account_id
    where p.app_id = ${app}`,
  )
  return row && nameOf(row)
}

export interface AppCharge {
  readonly clientId: string
  readonly name: string
  readonly tickets: bigint
  readonly amount: UsdAttos
}

/** Returns the owner charges booked since `start`, by app, the highest first. */
export async function chargesByApp(
  db: Db,
  { appId: platformApp, userId }: UserKey,
  start: Date,
): Promise<AppCharge[]> {
  const rows = await many<{ client_id: string; name: string; tickets: string; amount: string }>(
    db,
    sql`
    select c.client_id, a.name, e.tickets, e.amount
    from (
      select charged_app_id, sum(ticket_count) as tickets, sum(overage_attos - amount_attos) as amount
      from ledger_entries
      where app_id = ${platformApp} and user_id = ${userId} and charged_app_id is not null and created_at >= ${start}
      group by charged_app_id) e
    join apps a on a.id = e.charged_app_id
    join clients c on c.app_id = e.charged_app_id and c.kind = 'public'
    order by e.amount desc, c.client_id`,
  )
  return rows.map((row) => ({
    clientId: row.client_id,
    name: row.name,
    tickets: BigInt(row.tickets),
    amount: usdAttos(BigInt(row.amount)),
  }))
}

/**
 * Whether a user of the app, or the named one, has overage that no payment covers, or an invoice
 * that is still collected: one of prices alone is no overage.
 */
export async function hasUnpaid(
  db: Db,
  { appId: app, userId: user = null }: { readonly appId: AppId; readonly userId?: UserId | null },
): Promise<boolean> {
  const { unpaid } = await one<{ unpaid: boolean }>(
    db,
    sql`
    select exists (
      select
      from balances
      where app_id = ${app} and (${user}::uuid is null or user_id = ${user}) and overage_attos > collected_attos
    ) or exists (
      select
      from collections
      where app_id = ${app} and (${user}::uuid is null or user_id = ${user}) and invoice_id is not null
        and ended_at is null) as unpaid`,
  )
  return unpaid
}
