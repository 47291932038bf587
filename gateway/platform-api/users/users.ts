import { Type } from 'typebox'
import { DomainError } from '../../../proto/errors.ts'
import type { User as UserMessage } from '../../../proto/gen/es/tollgate/identity/v1/identity_pb.ts'
import { present } from '../../core/client.ts'
import type { App } from '../../http/listener.ts'
import { AppParams, pageQuery, required, text } from '../request-schemas.ts'
import { route } from '../../http/route.ts'
import { Deactivated, UpdatedUser, User, UserList, oneOf, ref } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/users'
const tags = ['users']
const statuses = ['active', 'inactive'] as const

// Open on purpose: existing clients send more than the specification names.
const UserBody = Type.Object({
  externalUserId: required("The integrator's id of the user, at most 200 bytes of UTF-8."),
  email: Type.Optional(
    Type.Unsafe<string | null>({
      type: 'string',
      nullable: true,
      maxLength: 320,
      description: 'null removes it',
    }),
  ),
  status: Type.Optional(Type.String({ description: 'active or inactive', maxLength: 20 })),
})

const UsersQuery = Type.Object({
  status: Type.Optional(oneOf(statuses, 'Only users in this state.')),
  externalUserId: Type.Optional(text('only this user')),
  ...pageQuery,
})

/** Provisioning of end users (service specification, surface B: users and keys). */
export function userRoutes(app: App): void {
  app.get(
    url,
    route(
      { guard: { kind: 'm2m', scope: 'users:read' } },
      {
        summary: 'List provisioned users',
        tags,
        params: AppParams,
        querystring: UsersQuery,
        response: { 200: ref(UserList) },
      },
    ),
    async ({ params, query: { limit, ...filter }, core }) => {
      const { users, nextCursor } = await core.users.list({
        ...params,
        ...filter,
        limit: Number(limit ?? 0),
      })
      return { users: users.map(toUser), ...(nextCursor === undefined ? {} : { nextCursor }) }
    },
  )

  app.post(
    url,
    route(
      { guard: { kind: 'm2m', scope: 'users:write' } },
      {
        summary: 'Create a user or update the named attributes',
        tags,
        params: AppParams,
        body: UserBody,
        response: { 200: ref(User), 201: ref(User) },
      },
    ),
    async ({ params, body, core }, reply) => {
      const { user, created } = await core.users.upsert({ ...params, ...attributes(body) })
      return reply.code(created ? 201 : 200).send(toUser(present(user, 'user')))
    },
  )

  app.put(
    url,
    route(
      { guard: { kind: 'm2m', scope: 'users:write' } },
      {
        summary: 'Update a user',
        tags,
        params: AppParams,
        body: UserBody,
        response: { 200: ref(UpdatedUser) },
      },
    ),
    async ({ params, body, core }) => {
      const { user } = await core.users.update({ ...params, ...attributes(body) })
      return { success: true, ...toUser(present(user, 'user')) }
    },
  )

  app.delete(
    url,
    route(
      { guard: { kind: 'm2m', scope: 'users:write' } },
      {
        summary: 'Deactivate a user',
        tags,
        params: AppParams,
        querystring: Type.Object({ externalUserId: required('Whom to deactivate.') }),
        response: { 200: ref(Deactivated) },
      },
    ),
    async ({ params, query: { externalUserId }, core, correlationId }) => {
      const { user, effectiveBy } = await core.users.deactivate({ ...params, externalUserId })
      const { status } = present(user, 'user')
      return { success: true, status, correlation_id: correlationId, effectiveBy }
    },
  )
}

interface Body {
  externalUserId: string
  email?: string | null
  status?: string
}

function attributes({ externalUserId, email, status }: Body) {
  return {
    externalUserId,
    email: email?.trim() || undefined,
    clearEmail: email === null,
    status: status === undefined ? undefined : toStatus(status),
  }
}

function toStatus(given: string): string {
  const status = statuses.find((one) => one === given.trim().toLowerCase())
  if (status !== undefined) return status
  throw new DomainError('REQUEST_INVALID', `status must be one of: ${statuses.join(', ')}`)
}

function toUser(user: UserMessage) {
  const status = present(
    statuses.find((one) => one === user.status),
    'status',
  )
  return {
    id: user.id,
    clientId: user.clientId,
    externalUserId: user.externalUserId,
    email: user.email ?? null,
    status,
    role: 'user',
    createdAt: user.createdAt,
    updatedAt: user.updatedAt,
    deactivatedAt: user.deactivatedAt ?? null,
  }
}
