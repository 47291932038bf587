import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { member } from '../../rpc/callers.ts'
import { rpc } from '../../rpc/serve.ts'
import { parseRole } from '../input.ts'
import type { Members } from './members.ts'
import type { MemberRow } from './store.ts'

/** The part of ManagementService that is about members. */
export const createMemberHandlers = (members: Members) => ({
  listMembers: rpc(member('read'), async (_: pb.ListMembersRequest, caller) => ({
    members: (await members.list(caller)).map(render),
  })),
  putMember: rpc(member('edit'), async (request: pb.PutMemberRequest, caller, context) => {
    const change = { email: request.email, role: parseRole(request.role) }
    const { member: written, created } = await members.put(caller, change, context)
    return { member: render(written), created }
  }),
  removeMember: rpc(member('edit'), async (request: pb.RemoveMemberRequest, caller, context) => {
    await members.remove(caller, request.accountId, context)
    return {}
  }),
})

const render = (row: MemberRow) => ({
  accountId: row.account_id,
  email: row.email,
  name: row.name,
  role: row.role,
  createdAt: row.created_at.toISOString(),
})
