import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'
import type { Email } from '../../lib/text/email.ts'
import { type AppId, appId, ownerAccountPrefix } from '../../shared/ids.ts'

/** Reads who owns apps, for operators. */

export interface OwnedApp {
  readonly email: string
  /** An app that the account pays for; null without one. */
  readonly app: AppId | null
}

interface OwnedRow {
  email: string
  app_id: string | null
}

const fromRow = (row: OwnedRow): OwnedApp => ({
  email: row.email,
  app: row.app_id === null ? null : appId(row.app_id),
})

/** Finds the account with that e-mail address, with one of the apps that it pays for. */
export async function findByEmail(db: Db, email: Email): Promise<OwnedApp | null> {
  const row = await maybeOne<OwnedRow>(
    db,
    sql`
    select a.email, m.app_id
    from accounts a
    left join lateral (
      select m.app_id
      from members m
      join app_payers p on p.app_id = m.app_id and p.account_id = m.account_id
      where m.account_id = a.id
      order by m.app_id
      limit 1) m on true
    where a.email = ${email}`,
  )
  return row && fromRow(row)
}

/** Finds the owner who pays for an app. */
export async function findByApp(db: Db, app: AppId): Promise<OwnedApp | null> {
  const row = await maybeOne<OwnedRow>(
    db,
    sql`
    select a.email, p.app_id
    from app_payers p
    join accounts a on a.id = p.account_id
    where p.app_id = ${app}`,
  )
  return row && fromRow(row)
}

/**
 * Returns owners whose apps have held money before, and whose balance and credit line are almost
 * used up by charges and holds, the least left first.
 */
export async function findNear(db: Db, limit: number): Promise<OwnedApp[]> {
  const rows = await many<OwnedRow>(
    db,
    sql`
    select a.email, m.app_id
    from owner_holds h
    join balances b on b.app_id = h.app_id and b.user_id = h.user_id
    join end_users u on u.app_id = h.app_id and u.id = h.user_id
    join accounts a on u.external_user_id = ${ownerAccountPrefix} || a.id::text
    join lateral (
      select m.app_id
      from members m
      join app_payers p on p.app_id = m.app_id and p.account_id = m.account_id
      where m.account_id = a.id
      order by m.app_id
      limit 1) m on true
    cross join lateral (
      select b.balance_attos + greatest(b.ceiling_attos - greatest(b.overage_attos - b.collected_attos, 0), 0) as money) w
    where h.held_attos >= 0.9 * w.money
    order by w.money - h.held_attos
    limit ${limit}`,
  )
  return rows.map(fromRow)
}
