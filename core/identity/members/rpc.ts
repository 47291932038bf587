import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { member } from '../../rpc/callers.ts'
import { rpc } from '../../rpc/serve.ts'
import { parseRole } from '../input.ts'
import type { Invitations } from '../invitations/invitations.ts'
import { renderInvitation } from '../invitations/rpc.ts'
import { memberEditor } from './editor.ts'
import type { Members } from './members.ts'
import type { MemberRow } from './store.ts'

/** The member RPCs of ManagementService. */
export const createMemberHandlers = (members: Members, invitations: Pick<Invitations, 'list'>) => ({
  listMembers: rpc(member('read'), async (_: pb.ListMembersRequest, caller) => ({
    members: (await members.list(caller.appId)).map(renderMember),
    invitations: (await invitations.list(caller.appId)).map(renderInvitation),
  })),
  putMember: rpc(member('edit'), async (request: pb.PutMemberRequest, caller, context) => {
    const change = { email: request.email, role: parseRole(request.role) }
    const written = await members.put(memberEditor(caller, context), change)
    return 'member' in written
      ? { member: renderMember(written.member), created: false, invitation: undefined }
      : { member: undefined, created: false, invitation: renderInvitation(written.invitation) }
  }),
  removeMember: rpc(member('edit'), async (request: pb.RemoveMemberRequest, caller, context) => {
    await members.remove(memberEditor(caller, context), request.accountId)
    return {}
  }),
})

export const renderMember = (row: MemberRow) => ({
  accountId: row.account_id,
  email: row.email,
  name: row.name,
  role: row.role,
  createdAt: row.created_at.toISOString(),
})
