import type * as accounts from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import type * as management from '../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { appOperatorWrite, gatewayCaller, member, orOperator } from '../../rpc/guards.ts'
import { rpc } from '../../rpc/serve.ts'
import type { Accounts } from '../accounts/accounts.ts'
import { toEditor } from './editor.ts'
import type { Invitations } from './invitations.ts'
import type { InvitationRow } from './invitation-store.ts'

/** The invitation RPCs of ManagementService. */
export const createInvitationHandlers = (invitations: Invitations) => ({
  withdrawInvitation: rpc(
    orOperator(member('edit'), appOperatorWrite()),
    async (request: management.WithdrawInvitationRequest, caller, context) => {
      await invitations.withdraw(toEditor(caller, context), request.invitationId)
      return {}
    },
  ),
})

/** The invitation RPCs of AccountService, for the person who is logged in. */
export const createOwnInvitationHandlers = (
  invitations: Invitations,
  { bySession }: Pick<Accounts, 'bySession'>,
) => ({
  listInvitations: rpc(gatewayCaller(), async (request: accounts.ListInvitationsRequest) => ({
    invitations: (await invitations.listOwn(await bySession(request.sessionToken))).map(
      renderInvitation,
    ),
  })),
  acceptInvitation: rpc(
    gatewayCaller(),
    async (request: accounts.AcceptInvitationRequest, _, context) => {
      const account = await bySession(request.sessionToken)
      const invitation = await invitations.accept(account, request.invitationId, context)
      return { invitation: renderInvitation(invitation) }
    },
  ),
  declineInvitation: rpc(
    gatewayCaller(),
    async (request: accounts.DeclineInvitationRequest, _, context) => {
      const account = await bySession(request.sessionToken)
      const invitation = await invitations.decline(account, request.invitationId, context)
      return { invitation: renderInvitation(invitation) }
    },
  ),
})

export const renderInvitation = (row: InvitationRow) => ({
  id: row.id,
  clientId: row.client_id,
  appName: row.app_name,
  email: row.email,
  role: row.role,
  invitedBy: row.invited_by,
  createdAt: row.created_at.toISOString(),
  expiresAt: row.expires_at.toISOString(),
})
