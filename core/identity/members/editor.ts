import type { Actor } from '../../platform/audit.ts'
import type { AccountId, AppId } from '../../platform/ids.ts'
import { type MemberCaller, type Role, operatorActor } from '../../rpc/callers.ts'
import type { Context } from '../../rpc/serve.ts'

/** An actor with the rights of a role, who changes the members of an app. */
export interface MemberEditor {
  readonly appId: AppId
  readonly role: Role
  readonly actor: Actor
  /**
   * Inviter's account. Null for an operator, who has no account and invites in the name of the
   * app's owner.
   */
  readonly accountId: AccountId | null
}

export const memberEditor = (
  { appId, role, accountId }: MemberCaller,
  { correlationId }: Context,
): MemberEditor => ({
  appId,
  role,
  accountId,
  actor: { name: accountId, context: { correlationId } },
})

/** An operator has the rights of an owner in every app. */
export const operatorEditor = (appId: AppId, context: Context): MemberEditor => ({
  appId,
  role: 'owner',
  accountId: null,
  actor: operatorActor(context),
})
