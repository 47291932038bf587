import { DomainError } from '../../../proto/errors.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { type Email, normalizeEmail } from '../../lib/text/email.ts'
import { addSeconds } from '../../lib/time.ts'
import { type Actor, audit } from '../../shared/audit.ts'
import { type AccountId, type AppId, isUuid } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import type { AccountCaller, Role } from '../../rpc/callers.ts'
import type { Context } from '../../rpc/serve.ts'
import type { Mails } from '../../mail/mails.ts'
import type { AppQuota } from '../accounts/app-quota.ts'
import { lockApp } from '../apps/store.ts'
import type { MemberEditor } from './editor.ts'
import * as store from './invitation-store.ts'
import { countMembers, findMember, findOwnerAccount, putMember } from './store.ts'

type Deps = Shared & {
  readonly quota: Pick<AppQuota, 'requireRoom'>
  readonly mails: Pick<Mails, 'send'>
}

const daySeconds = 86_400
const lifetimeSeconds = 14 * daySeconds
/** Further invitations of an app are not mailed, so that no app sends mails to strangers for long. */
const mailedPerDay = 50
const pendingMax = 100
const membersMax = 100
// Maximum number of invitations that a person sees at a time; the rest follow once these are
// answered.
const shownMax = 100

/**
 * Members and owners must accept an invitation first. An invitation is to an address, with or
 * without an account, so it does not reveal which addresses have accounts. Changes of invitations
 * and members lock the app's row first.
 */
export function createInvitations({ pool, quota, mails, now }: Deps) {
  /** Invites the address, and replaces an earlier invitation. The app's row must be locked. */
  async function invite(
    db: Db,
    editor: MemberEditor,
    { email, role }: { email: Email; role: Role },
  ): Promise<store.InvitationRow> {
    const at = now()
    const { appId: app, actor } = editor
    requireRights(editor, role)
    await store.deleteInvitationTo(db, app, email)
    if ((await store.countInvitations(db, app, at)) >= pendingMax)
      throw new DomainError(
        'CONFLICT',
        `${pendingMax} invitations of this app are open, which is the limit; withdraw some`,
      )
    const id = uuidV7(at.getTime())
    await store.insertInvitation(db, {
      appId: app,
      id,
      email,
      role,
      invitedBy: editor.accountId ?? (await ownerOf(db, app)),
      at,
      expiresAt: addSeconds(at, lifetimeSeconds),
    })
    const isMailed =
      (await store.countInvitedSince(db, app, addSeconds(at, -daySeconds))) < mailedPerDay
    await note(db, { app, actor }, { action: 'member_invited', details: { email, role } })
    const invitation = await store.findInvitation(db, { app, id, at })
    if (!invitation) throw new Error('an invitation that was just written cannot be found')
    if (isMailed) await mails.send(db, { email, content: contentOf(invitation) })
    return invitation
  }

  /** Lists the app's open invitations. */
  const list = (app: AppId): Promise<store.InvitationRow[]> =>
    store.listInvitations(pool, app, now())

  /** Lists the account's open invitations. */
  async function listOwn({ email: address }: AccountCaller): Promise<store.InvitationRow[]> {
    const email = normalizeEmail(address)
    return email === null
      ? []
      : store.listInvitationsTo(pool, { email, at: now(), limit: shownMax })
  }

  /** Withdraws an invitation. Only an owner may withdraw the invitation of an owner. */
  async function withdraw(editor: MemberEditor, id: string): Promise<void> {
    const { appId: app, actor } = editor
    await tx(pool, async (db) => {
      await lockApp(db, app)
      const key = { app, id, at: now() }
      const invitation = isUuid(id) ? await store.findInvitation(db, key) : null
      if (!invitation) throw unknownInvitation()
      const { email, role } = invitation
      requireRights(editor, role)
      await store.deleteInvitationTo(db, app, email)
      const entry = { action: 'member_invitation_withdrawn', details: { email, role } }
      await note(db, { app, actor }, entry)
    })
  }

  /**
   * Makes the account a member or an owner. Throws CONFLICT when the app's member limit or the
   * account's app quota is reached.
   */
  const accept = (account: AccountCaller, id: string, context: Context) =>
    answer(account, { id, context }, async (db, invitation) => {
      const { role, invited_by: invitedBy } = invitation
      const before = await join(db, account, invitation)
      return {
        action: before === null ? 'member_added' : 'member_role_changed',
        details: { accountId: account.accountId, role, invitedBy },
      }
    })

  const decline = (account: AccountCaller, id: string, context: Context) =>
    answer(account, { id, context }, async (_, { role }) => ({
      action: 'member_invitation_declined',
      details: { accountId: account.accountId, role },
    }))

  async function answer(
    account: AccountCaller,
    { id, context }: { id: string; context: Context },
    act: (db: Db, invitation: store.InvitationRow) => Promise<Note>,
  ): Promise<store.InvitationRow> {
    return tx(pool, async (db) => {
      const invitation = await lockOwn(db, account, id)
      await store.deleteInvitationTo(db, invitation.app_id, invitation.email)
      const entry = await act(db, invitation)
      const actor = { name: account.accountId, context }
      await note(db, { app: invitation.app_id, actor }, entry)
      return invitation
    })
  }

  /**
   * Locks the app's row and returns the invitation, so that a concurrent answer and withdrawal run
   * one after the other.
   */
  async function lockOwn(db: Db, account: AccountCaller, id: string): Promise<store.InvitationRow> {
    const email = normalizeEmail(account.email)
    if (email === null || !isUuid(id)) throw unknownInvitation()
    const key = { email, id, at: now() }
    const invitation = await store.findInvitationTo(db, key)
    if (!invitation || !(await lockApp(db, invitation.app_id))) throw unknownInvitation()
    const current = await store.findInvitationTo(db, key)
    if (!current) throw unknownInvitation()
    return current
  }

  /** Returns the account's previous role. An owner stays an owner. */
  async function join(
    db: Db,
    { accountId }: AccountCaller,
    { app_id: app, role }: store.InvitationRow,
  ): Promise<Role | null> {
    const before = (await findMember(db, app, accountId))?.role ?? null
    if (before === 'owner') return before
    if (before === null && (await countMembers(db, app)).members >= membersMax)
      throw new DomainError('CONFLICT', `an app may have ${membersMax} members`)
    if (role === 'owner') await quota.requireRoom(db, accountId)
    await putMember(db, { app, account: accountId, role, at: now() })
    return before
  }

  async function note(
    db: Db,
    { app, actor: { name, context } }: { app: AppId; actor: Actor },
    { action, details }: Note,
  ): Promise<void> {
    const { correlationId } = context ?? {}
    const entry = { appId: app, actor: name, action, details, correlationId, at: now() }
    await audit(db, { ...entry, status: 'success' })
  }

  /**
   * Ends the invitation of an address after a change of its member. The caller must have locked the
   * app's row.
   */
  const end = (db: Db, app: AppId, email: string): Promise<void> =>
    store.deleteInvitationTo(db, app, email)

  /** Upkeep: deletes expired invitations. */
  const deleteExpired = (): Promise<void> => store.deleteExpiredInvitations(pool, now())

  return { invite, list, listOwn, withdraw, accept, decline, end, deleteExpired }
}

export type Invitations = ReturnType<typeof createInvitations>

interface Note {
  readonly action: string
  readonly details: Readonly<Record<string, string>>
}

const contentOf = ({ role, ...invitation }: store.InvitationRow) => {
  const { app_name: appName, invited_by: invitedBy, expires_at: until } = invitation
  return { kind: 'invitation', appName, role, invitedBy, until } as const
}

/**
 * Returns the account that an operator's invitation names as inviter. Throws CONFLICT if there is
 * no owner and no platform admin.
 */
async function ownerOf(db: Db, app: AppId): Promise<AccountId> {
  const owner = await findOwnerAccount(db, app)
  if (owner !== null) return owner
  throw new DomainError(
    'CONFLICT',
    'the app has no owner who could invite, and there is no platform admin; create a platform admin first',
  )
}

function requireRights(editor: MemberEditor, role: Role): void {
  if (role === 'owner' && editor.role !== 'owner')
    throw new DomainError(
      'EDIT_FORBIDDEN',
      'only an owner can invite an owner or withdraw that invitation',
    )
}

const unknownInvitation = (): DomainError =>
  new DomainError('NOT_FOUND', 'the invitation does not exist, or is no longer open')
