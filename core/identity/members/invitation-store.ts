import type { AppId } from '../../shared/ids.ts'
import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import type { Email } from '../../lib/text/email.ts'
import type { Role } from '../../rpc/callers.ts'

export interface InvitationRow {
  app_id: AppId
  id: string
  email: string
  role: Role
  created_at: Date
  expires_at: Date
  client_id: string
  app_name: string
  /** E-mail address of the inviter. */
  invited_by: string
}

export async function insertInvitation(
  db: Db,
  invitation: {
    appId: AppId
    id: string
    email: Email
    role: Role
    invitedBy: string
    at: Date
    expiresAt: Date
  },
): Promise<void> {
  await db.query(sql`
    insert into invitations (app_id, id, email, role, invited_by, created_at, expires_at)
    values (${invitation.appId}, ${invitation.id}, ${invitation.email}, ${invitation.role}, ${invitation.invitedBy},
            ${invitation.at}, ${invitation.expiresAt})`)
}

/** Finds an open invitation of the app. */
export const findInvitation = (
  db: Db,
  { app, id, at }: { app: AppId; id: string; at: Date },
): Promise<InvitationRow | null> =>
  maybeOne<InvitationRow>(
    db,
    sql`
    select app_id, id, email, role, created_at, expires_at, client_id, app_name, invited_by
    from standing_invitations
    where app_id = ${app} and id = ${id} and expires_at > ${at}`,
  )

/** Finds an open invitation to the address. */
export const findInvitationTo = (
  db: Db,
  { email, id, at }: { email: Email; id: string; at: Date },
): Promise<InvitationRow | null> =>
  maybeOne<InvitationRow>(
    db,
    sql`
    select app_id, id, email, role, created_at, expires_at, client_id, app_name, invited_by
    from standing_invitations
    where email = ${email} and id = ${id} and expires_at > ${at}`,
  )

/** Lists the app's open invitations, oldest first. */
export const listInvitations = (db: Db, app: AppId, at: Date): Promise<InvitationRow[]> =>
  many<InvitationRow>(
    db,
    sql`
    select app_id, id, email, role, created_at, expires_at, client_id, app_name, invited_by
    from standing_invitations
    where app_id = ${app} and expires_at > ${at}
    order by created_at, id`,
  )

/** Lists open invitations to the address, oldest first. */
export const listInvitationsTo = (
  db: Db,
  { email, at, limit }: { email: Email; at: Date; limit: number },
): Promise<InvitationRow[]> =>
  many<InvitationRow>(
    db,
    sql`
    select app_id, id, email, role, created_at, expires_at, client_id, app_name, invited_by
    from standing_invitations
    where email = ${email} and expires_at > ${at}
    order by created_at, id
    limit ${limit}`,
  )

/** Whether an app has an open invitation to the address. */
export const isInvited = async (db: Db, email: Email, at: Date): Promise<boolean> =>
  (await listInvitationsTo(db, { email, at, limit: 1 })).length > 0

export async function countInvitations(db: Db, app: AppId, at: Date): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`select count(*)::int as count from invitations where app_id = ${app} and expires_at > ${at}`,
  )
  return count
}

/** Counts the app's invitations since a time, withdrawn ones included. */
export async function countInvitedSince(db: Db, app: AppId, since: Date): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`
    select count(*)::int as count
    from audit_log
    where app_id = ${app} and action = 'member_invited' and created_at > ${since}`,
  )
  return count
}

/** Deletes the app's invitation to the address, if there is one. */
export async function deleteInvitationTo(db: Db, app: AppId, email: string): Promise<void> {
  await db.query(sql`delete from invitations where app_id = ${app} and email = ${email}`)
}

export async function deleteExpiredInvitations(db: Db, at: Date): Promise<void> {
  await db.query(sql`delete from invitations where expires_at <= ${at}`)
}
