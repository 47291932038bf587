import { Type } from 'typebox'
import { DomainError } from '../../../proto/errors.ts'
import type { App } from '../../http/app.ts'
import { del, get, put } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { Invitation } from '../invitations.ts'
import { AppParams, Email, Instant, Success, oneOf, required } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/admins'
const tags = ['apps']

const memberFields = {
  accountId: Type.String(),
  email: Email,
  name: Type.String(),
  role: Type.String(),
  createdAt: Instant('Since when.'),
}
const Member = named(Type.Object(memberFields), 'Member')
const MemberList = named(
  Type.Object({ members: Type.Array(ref(Member)), invitations: Type.Array(ref(Invitation)) }),
  'MemberList',
)
const PendingInvitation = named(
  Type.Object({
    status: oneOf(['pending'], 'The invitation waits for an answer.'),
    invitation: ref(Invitation),
  }),
  'PendingInvitation',
)

const MemberBody = Type.Object(
  {
    email: required('E-mail address of the member or invited person.'),
    role: oneOf(
      ['owner', 'admin', 'viewer'],
      'A viewer may read, an admin may also change, an owner may also delete the app.',
    ),
  },
  { additionalProperties: false },
)

/** An app's members, who may see or change it. */
export function memberRoutes(app: App): void {
  addSchemas(app, [Invitation, Member, MemberList, PendingInvitation])
  listMembers(app)
  upsertMember(app)
  deleteMember(app)
}

const listMembers = get({
  url,
  guard: { kind: 'member_read' },
  operationId: 'listMembers',
  summary: 'List members and invitations',
  description:
    'Lists the members of the app with their roles, and the invitations that wait for an answer.',
  tags,
  params: AppParams,
  response: { 200: ref(MemberList) },
  handler: async ({ params, core }) => core.management.listMembers(params),
})

const upsertMember = put({
  url,
  guard: { kind: 'member_edit' },
  refuses: ['CONFLICT'],
  operationId: 'upsertMember',
  summary: 'Invite a person, or change a role',
  description:
    'Changes the role of the member with this e-mail address. A person who is not a member, or a member who shall become an owner, gets an invitation (202), which replaces an earlier one: it ends after 14 days, and the person accepts or declines it after login. No mail is sent, and the answer is the same whether the address has an account or not. Only an owner invites, changes or removes an owner, and an app is never without one.',
  tags,
  params: AppParams,
  body: MemberBody,
  response: { 200: ref(Member), 202: ref(PendingInvitation) },
  handler: async ({ params, body, core }, reply) => {
    const { member, invitation } = await core.management.upsertMember({ ...params, ...body })
    if (member) return reply.code(200).send(member)
    return reply.code(202).send({ status: 'pending', invitation })
  },
})

const deleteMember = del({
  url,
  guard: { kind: 'member_edit' },
  refuses: ['CONFLICT'],
  operationId: 'deleteMember',
  summary: 'Remove a member, or withdraw an invitation',
  description:
    'Ends the membership of an account (accountId) and its permissions at once; if only members may log in (loginPolicy), its logins to the app end, too. The account itself stays. With invitationId it withdraws an invitation.',
  tags,
  params: AppParams,
  querystring: Type.Object({
    accountId: Type.Optional(required('Whom.')),
    invitationId: Type.Optional(required('The invitation to withdraw, instead of accountId.')),
  }),
  response: { 200: ref(Success) },
  handler: async ({ params, query: { accountId, invitationId }, core, correlationId }) => {
    if ((accountId === undefined) === (invitationId === undefined))
      throw new DomainError('REQUEST_INVALID', 'send accountId or invitationId')
    if (accountId !== undefined) await core.management.deleteMember({ ...params, accountId })
    if (invitationId !== undefined)
      await core.management.withdrawInvitation({ ...params, invitationId })
    return { success: true, correlation_id: correlationId }
  },
})
