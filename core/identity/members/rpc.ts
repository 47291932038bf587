import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { appOperator, appOperatorWrite, member, orOperator } from '../../rpc/guards.ts'
import { rpc } from '../../rpc/serve.ts'
import { parseRole } from '../input.ts'
import type { Invitations } from './invitations.ts'
import { renderInvitation } from './invitations-rpc.ts'
import { toEditor } from './editor.ts'
import type { Members } from './members.ts'
import type { MemberRow } from './store.ts'

/** The member RPCs of ManagementService. */
export const createMemberHandlers = (members: Members, invitations: Pick<Invitations, 'list'>) => ({
  listMembers: rpc(
    orOperator(member('read'), appOperator()),
    async (_: pb.ListMembersRequest, caller) => ({
      members: (await members.list(caller.appId)).map(renderMember),
      invitations: (await invitations.list(caller.appId)).map(renderInvitation),
    }),
  ),
  upsertMember: rpc(
    orOperator(member('edit'), appOperatorWrite()),
    async (request: pb.UpsertMemberRequest, caller, context) => {
      const change = { email: request.email, role: parseRole(request.role) }
      const written = await members.put(toEditor(caller, context), change)
      return 'member' in written
        ? { member: renderMember(written.member), created: false, invitation: undefined }
        : { member: undefined, created: false, invitation: renderInvitation(written.invitation) }
    },
  ),
  deleteMember: rpc(
    orOperator(member('edit'), appOperatorWrite()),
    async (request: pb.DeleteMemberRequest, caller, context) => {
      await members.remove(toEditor(caller, context), request.accountId)
      return {}
    },
  ),
})

const renderMember = (row: MemberRow) => ({
  accountId: row.account_id,
  email: row.email,
  name: row.name,
  role: row.role,
  createdAt: row.created_at.toISOString(),
})
