import { DomainError } from '../../../proto/errors.ts'
import { auditSuccess } from '../../shared/audit.ts'
import type { Role } from '../../rpc/callers.ts'
import { type AccountId, type AppId, appId, isUuid } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { type AppRow, lockApp } from '../apps/store.ts'
import { parseEmail } from '../input.ts'
import type { CredentialIssuer } from '../types.ts'
import type { MemberEditor } from './editor.ts'
import type { InvitationRow } from './invitation-store.ts'
import type { Invitations } from './invitations.ts'
import { admitsStranger } from './login-policy.ts'
import * as store from './store.ts'

type Deps = Shared & {
  readonly invitations: Pick<Invitations, 'invite' | 'end'>
  /** Domains that end a person's logins with the membership. */
  readonly credentialIssuers: readonly CredentialIssuer[]
}

/**
 * People who may view and change an app. An app always has an owner. Only an owner may add or
 * remove an owner.
 */
export function createMembers(deps: Deps) {
  const { pool, invitations, grants, credentialIssuers, now } = deps
  const list = (app: AppId): Promise<store.MemberRow[]> => store.listMembers(pool, app)

  /** Makes the account an owner of an app that the same transaction creates. */
  const putOwner = (db: Db, owner: { app: AppId; account: AccountId; at: Date }): Promise<void> =>
    store.putMember(db, { ...owner, role: 'owner' })

  /**
   * Changes the role of a member. Sends an invitation to a non-member, and to a member who is to
   * become an owner.
   */
  async function put(
    editor: MemberEditor,
    request: { email: string; role: Role },
  ): Promise<{ member: store.MemberRow } | { invitation: InvitationRow }> {
    const { role } = request
    return tx(pool, async (db) => {
      await lock(db, editor)
      const email = parseEmail(request.email)
      const before = await store.findMemberByEmail(db, editor.appId, email)
      if (before === null || (role === 'owner' && before.role !== 'owner'))
        return { invitation: await invitations.invite(db, editor, { email, role }) }
      await allowChange(db, editor, { from: before.role, to: role })
      const { account_id: account } = before
      await store.putMember(db, { app: editor.appId, account, role, at: now() })
      await invitations.end(db, editor.appId, email)
      const details = { accountId: account, role }
      await note(db, { editor, action: 'member_role_changed' }, details)
      return { member: { ...before, role } }
    })
  }

  /**
   * Ends the membership. Also ends the person's logins to the app, unless the login policy admits
   * the person without it.
   */
  async function remove(editor: MemberEditor, account: string): Promise<void> {
    await tx(pool, async (db) => {
      const app = await lock(db, editor)
      const before = isUuid(account) ? await store.findMember(db, editor.appId, account) : null
      if (!before) throw new DomainError('NOT_FOUND', 'the app has no such member')
      await allowChange(db, editor, { from: before.role, to: null })
      await store.deleteMember(db, editor.appId, account)
      await invitations.end(db, editor.appId, before.email)
      const endedLogins = await endLogins(db, app, before)
      await note(
        db,
        { editor, action: 'member_removed' },
        { accountId: account, role: before.role, endedLogins },
      )
    })
  }

  /** Returns the number of ended logins. */
  async function endLogins(db: Db, app: AppRow, member: store.MemberRow): Promise<number> {
    const { email, is_platform_admin: isPlatformAdmin, account_id } = member
    const { login_policy: loginPolicy, login_domains: loginDomains } = app
    if (admitsStranger({ loginPolicy, loginDomains }, { email, isPlatformAdmin })) return 0
    const at = now()
    const logins: string[] = []
    for (const { endOfLogins } of credentialIssuers)
      logins.push(
        ...((await endOfLogins?.(db, { appId: appId(app.id), accountId: account_id }, at)) ?? []),
      )
    await grants.end(
      db,
      logins.map((id) => ({ id, cause: 'member_removed', at })),
    )
    return logins.length
  }

  // Changes run one after the other, so that two owners who leave at the same time cannot both
  // count the other one.
  async function lock(db: Db, editor: MemberEditor): Promise<AppRow> {
    const app = await lockApp(db, editor.appId)
    if (!app) throw new DomainError('NOT_FOUND', 'no such app for this credential')
    return app
  }

  async function allowChange(
    db: Db,
    editor: MemberEditor,
    { from, to }: { from: Role; to: Role | null },
  ): Promise<void> {
    if (from === 'owner' && editor.role !== 'owner') {
      throw new DomainError('EDIT_FORBIDDEN', 'only an owner can change or remove an owner')
    }
    const { owners } = await store.countMembers(db, editor.appId)
    if (from === 'owner' && to !== 'owner' && owners === 1) {
      throw new DomainError('CONFLICT', 'an app must have an owner; add another owner first')
    }
  }

  async function note(
    db: Db,
    { editor: { appId: app, actor }, action }: { editor: MemberEditor; action: string },
    details: Readonly<Record<string, string | number>>,
  ): Promise<void> {
    await auditSuccess(db, { appId: app, actor, action, details, at: now() })
  }

  return { list, put, putOwner, remove }
}

export type Members = ReturnType<typeof createMembers>
