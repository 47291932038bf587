import { Type } from 'typebox'
import type { Member as MemberMessage } from '../../../proto/gen/es/tollgate/identity/v1/management_pb.ts'
import { present } from '../../core/client.ts'
import type { App } from '../../http/listener.ts'
import { Member, MemberList, Success } from './schemas.ts'
import { AppParams, required } from '../request-schemas.ts'
import { route } from '../../http/route.ts'
import { oneOf, ref } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/admins'
const tags = ['apps']

/** Who may see and change an app (facts 9.1). */
export function memberRoutes(app: App): void {
  app.get(
    url,
    route(
      { guard: { kind: 'member_read' } },
      {
        summary: "List the app's people",
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

  app.put(
    url,
    route(
      { guard: { kind: 'member_edit' }, refuses: ['CONFLICT'] },
      {
        summary: 'Add someone with an account, or change a role',
        tags,
        params: AppParams,
        body: Type.Object(
          {
            email: required('Of the account.'),
            role: oneOf(
              ['owner', 'admin', 'viewer'],
              'A viewer reads, an admin edits, an owner also deletes.',
            ),
          },
          { additionalProperties: false },
        ),
        response: { 200: ref(Member), 201: ref(Member) },
      },
    ),
    async ({ params, body, core }, reply) => {
      const { member, created } = await core.management.putMember({ ...params, ...body })
      return reply.code(created ? 201 : 200).send(toMember(present(member, 'member')))
    },
  )

  app.delete(
    url,
    route(
      { guard: { kind: 'member_edit' }, refuses: ['CONFLICT'] },
      {
        summary: 'Take someone out',
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
