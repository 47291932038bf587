import { type AccountId, type AppId, accountId } from '../../shared/ids.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { Email } from '../../lib/text/email.ts'
import type { Role } from '../../rpc/callers.ts'

export interface MemberRow {
  account_id: string
  email: string
  name: string
  role: Role
  created_at: Date
  is_platform_admin: boolean
}

export const listMembers = (db: Db, app: AppId): Promise<MemberRow[]> =>
  many<MemberRow>(
    db,
    sql`
    select m.account_id, a.email, a.name, m.role, m.created_at, a.is_platform_admin
    from members m
    join accounts a on a.id = m.account_id
    where m.app_id = ${app}
    order by m.created_at, m.account_id`,
  )

export const findMember = (db: Db, app: AppId, account: string): Promise<MemberRow | null> =>
  maybeOne<MemberRow>(
    db,
    sql`
    select m.account_id, a.email, a.name, m.role, m.created_at, a.is_platform_admin
    from members m
    join accounts a on a.id = m.account_id
    where m.app_id = ${app} and m.account_id = ${account}`,
  )

export const findMemberByEmail = (db: Db, app: AppId, email: Email): Promise<MemberRow | null> =>
  maybeOne<MemberRow>(
    db,
    sql`
    select m.account_id, a.email, a.name, m.role, m.created_at, a.is_platform_admin
    from members m
    join accounts a on a.id = m.account_id
    where m.app_id = ${app} and a.email = ${email}`,
  )

/**
 * Whether the account is a member. Keeps the membership from ending before the transaction does.
 */
export async function lockMembership(db: Db, app: AppId, account: string): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    select from members where app_id = ${app} and account_id = ${account} for key share`)
  return rowCount === 1
}

export async function countMembers(
  db: Db,
  app: AppId,
): Promise<{ members: number; owners: number }> {
  return one<{ members: number; owners: number }>(
    db,
    sql`
    select count(*)::int as members, (count(*) filter (where role = 'owner'))::int as owners
    from members where app_id = ${app}`,
  )
}

export async function putMember(
  db: Db,
  member: { app: AppId; account: string; role: Role; at: Date },
): Promise<void> {
  await db.query(sql`
    insert into members (app_id, account_id, role, created_at)
    values (${member.app}, ${member.account}, ${member.role}, ${member.at})
    on conflict (app_id, account_id) do update set role = excluded.role`)
}

export async function deleteMember(db: Db, app: AppId, account: string): Promise<void> {
  await db.query(sql`delete from members where app_id = ${app} and account_id = ${account}`)
}

/**
 * Returns the account that counts as the app's owner: its first owner, otherwise the first platform
 * admin, who is an owner everywhere. Returns null if there is neither.
 */
export async function findOwnerAccount(db: Db, app: AppId): Promise<AccountId | null> {
  const row = await maybeOne<{ id: string }>(
    db,
    sql`
    select id
    from (select account_id as id, 1 as place, null::timestamptz as created_at from app_owners where app_id = ${app}
          union all
          select id, 2, created_at from accounts where is_platform_admin) owners
    order by place, created_at, id
    limit 1`,
  )
  return row && accountId(row.id)
}
