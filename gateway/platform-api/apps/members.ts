import { Type } from 'typebox'
import type { Member as MemberMessage } from '../../../proto/gen/es/tollgate/identity/v1/management_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { route } from '../../http/route.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, Success, oneOf, required } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/admins'
const tags = ['apps']

const memberFields = {
  accountId: Type.String(),
  email: Type.String(),
  name: Type.String(),
  role: Type.String(),
  createdAt: Instant('Since when.'),
}
const Member = named(Type.Object(memberFields), 'Member')
const MemberList = named(Type.Object({ members: Type.Array(ref(Member)) }), 'MemberList')

const MemberBody = Type.Object(
  {
    email: required('Of the account.'),
    role: oneOf(
      ['owner', 'admin', 'viewer'],
      'A viewer reads, an admin edits, an owner also deletes.',
    ),
  },
  { additionalProperties: false },
)

/** The people of an app: who may see and change it. */
export function memberRoutes(app: App): void {
  addSchemas(app, [Member, MemberList])
  listMembers(app)
  putMember(app)
  removeMember(app)
}

function listMembers(app: App): void {
  app.get(
    url,
    route(
      { guard: { kind: 'member_read' } },
      {
        operationId: 'listMembers',
        summary: "List the app's people",
        description: 'The accounts that may see or change the app, with their roles.',
        tags,
        params: AppParams,
        response: { 200: ref(MemberList) },
      },
    ),
    async ({ params, core }) => {
      const { members } = await core.management.listMembers(params)
      return { members: members.map(toMember) }
    },
  )
}

function putMember(app: App): void {
  app.put(
    url,
    route(
      { guard: { kind: 'member_edit' }, refuses: ['CONFLICT'] },
      {
        operationId: 'putMember',
        summary: 'Add someone with an account, or change a role',
        description:
          'Makes the account with this e-mail address a member, or changes its role. Only an owner makes, changes or removes an owner, and an app is never without one.',
        tags,
        params: AppParams,
        body: MemberBody,
        response: { 200: ref(Member), 201: ref(Member) },
      },
    ),
    async ({ params, body, core }, reply) => {
      const { member, created } = await core.management.putMember({ ...params, ...body })
      return reply.code(created ? 201 : 200).send(toMember(requireField(member, 'member')))
    },
  )
}

function removeMember(app: App): void {
  app.delete(
    url,
    route(
      { guard: { kind: 'member_edit' }, refuses: ['CONFLICT'] },
      {
        operationId: 'removeMember',
        summary: 'Take someone out',
        description: 'Ends the membership of an account. The account itself stays.',
        tags,
        params: AppParams,
        querystring: Type.Object({ accountId: required('Whom.') }),
        response: { 200: ref(Success) },
      },
    ),
    async ({ params, query: { accountId }, core, correlationId }) => {
      await core.management.removeMember({ ...params, accountId })
      return { success: true, correlation_id: correlationId }
    },
  )
}

const toMember = ({ accountId, email, name, role, createdAt }: MemberMessage) => ({
  accountId,
  email,
  name,
  role,
  createdAt,
})
