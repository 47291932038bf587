import type { Actor } from '../../shared/audit.ts'
import type { AccountId, AppId } from '../../shared/ids.ts'
import { type AppOperatorCaller, type MemberCaller, type Role, toActor } from '../../rpc/callers.ts'

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

/** A member or an operator as editor. An operator has the rights of an owner in every app. */
export const toEditor = (
  caller: MemberCaller | AppOperatorCaller,
  context: { readonly correlationId: string },
): MemberEditor => ({
  appId: caller.appId,
  role: caller.kind === 'operator' ? 'owner' : caller.role,
  accountId: caller.kind === 'operator' ? null : caller.accountId,
  actor: toActor(caller, context),
})
