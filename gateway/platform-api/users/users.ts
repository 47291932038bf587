import { Type } from 'typebox'
import { Scope } from '../../../proto/scopes.ts'
import { DomainError } from '../../../proto/errors.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { del, get, post, put } from '../../http/endpoint.ts'
import { provisioningReasons } from '../../http/route.ts'
import { CorrelationId, addSchemas, asDocumented, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, nullable, oneOf, pageQuery, required, text } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/users'
const tags = ['users']
const statuses = ['active', 'inactive'] as const
const roles = ['user', 'owner'] as const

const userFields = {
  id: Type.String({ format: 'uuid' }),
  clientId: Type.String(),
  externalUserId: Type.String(),
  email: nullable({ format: 'email' }),
  status: oneOf(statuses, 'Inactive users get no tokens.'),
  role: oneOf(roles, "owner: the app's owner, as whom app-level keys sign."),
  createdAt: Instant('When the user was created.'),
  updatedAt: Instant('When an attribute last changed.'),
  deactivatedAt: nullable({ format: 'date-time' }),
}
const User = named(Type.Object(userFields), 'User')
const UpdatedUser = named(Type.Object({ success: Type.Boolean(), ...userFields }), 'UpdatedUser')
const UserList = named(
  Type.Object({
    users: Type.Array(ref(User)),
    nextCursor: Type.Optional(Type.String()),
  }),
  'UserList',
)
const DeactivatedUser = named(
  Type.Object({
    success: Type.Boolean(),
    status: Type.String(),
    correlation_id: CorrelationId,
    effectiveBy: Instant('The time after which no cache accepts this user.'),
  }),
  'Deactivated',
)

// Unknown fields are ignored, because existing clients send more than these.
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

const DocumentedUser = asDocumented(UserBody, { formats: { email: 'email' } })

const UsersQuery = Type.Object({
  status: Type.Optional(oneOf(statuses, 'Only users in this state.')),
  externalUserId: Type.Optional(text('only this user')),
  startsWith: Type.Optional(
    text(
      'only users with this beginning of the external id, in which capital and small letters differ, or of the e-mail address',
    ),
  ),
  ...pageQuery,
})

/** Users of an app: created, listed, changed and deactivated by its backend. */
export function userRoutes(app: App): void {
  addSchemas(app, [User, UpdatedUser, UserList, DeactivatedUser])
  listUsers(app)
  upsertUser(app)
  updateUser(app)
  deactivateUser(app)
}

const listUsers = get({
  url,
  guard: { kind: 'm2m', scope: Scope.usersRead },
  members: 'read',
  operationId: 'listUsers',
  summary: 'List provisioned users',
  description: 'Lists the users of the app, the oldest first, in pages.',
  tags,
  params: AppParams,
  querystring: UsersQuery,
  response: { 200: ref(UserList) },
  handler: async ({ params, query: { limit, ...filter }, core }) => {
    const { users, nextCursor } = await core.users.listUsers({
      ...params,
      ...filter,
      limit: Number(limit ?? 0),
    })
    return { users, nextCursor }
  },
})

const upsertUser = post({
  url,
  guard: { kind: 'm2m', scope: Scope.usersWrite },
  members: 'edit',
  refuses: provisioningReasons,
  operationId: 'upsertUser',
  summary: 'Create a user or update the named attributes',
  description:
    'Creates the user with the Starter allowance (201), or updates the attributes in the body (200). It is safe to send before every use: externalUserId identifies the user.',
  tags,
  params: AppParams,
  body: UserBody,
  documentedBody: DocumentedUser,
  response: { 200: ref(User), 201: ref(User) },
  handler: async ({ params, body, core }, reply) => {
    const { user, created } = await core.users.upsertUser({ ...params, ...toAttributes(body) })
    return reply.code(created ? 201 : 200).send(requireField(user, 'user'))
  },
})

const updateUser = put({
  url,
  guard: { kind: 'm2m', scope: Scope.usersWrite },
  members: 'edit',
  refuses: provisioningReasons,
  operationId: 'updateUser',
  summary: 'Update a user',
  description:
    'Changes the attributes in the body. status: inactive deactivates the user, active activates it again; revoked keys stay revoked.',
  tags,
  params: AppParams,
  body: UserBody,
  documentedBody: DocumentedUser,
  response: { 200: ref(UpdatedUser) },
  handler: async ({ params, body, core }) => {
    const { user } = await core.users.updateUser({ ...params, ...toAttributes(body) })
    return { success: true, ...requireField(user, 'user') }
  },
})

const deactivateUser = del({
  url,
  guard: { kind: 'm2m', scope: Scope.usersWrite },
  members: 'edit',
  operationId: 'deactivateUser',
  summary: 'Deactivate a user',
  description:
    'Ends every key, session and token of the user and refuses new ones. Until effectiveBy a cache may still accept an older permission. The ledger and the tickets stay.',
  tags,
  params: AppParams,
  querystring: Type.Object({ externalUserId: required('The user to deactivate.') }),
  response: { 200: ref(DeactivatedUser) },
  handler: async ({ params, query: { externalUserId }, core, correlationId }) => {
    const { user, effectiveBy } = await core.users.deactivateUser({ ...params, externalUserId })
    const { status } = requireField(user, 'user')
    return { success: true, status, correlation_id: correlationId, effectiveBy }
  },
})

interface UserAttributes {
  externalUserId: string
  email?: string | null
  status?: string
}

function toAttributes({ externalUserId, email, status }: UserAttributes) {
  return {
    externalUserId,
    email: email?.trim() || undefined,
    clearEmail: email === null,
    status: status === undefined ? undefined : parseStatus(status),
  }
}

function parseStatus(text: string): string {
  const status = statuses.find((one) => one === text.trim().toLowerCase())
  if (status !== undefined) return status
  throw new DomainError('REQUEST_INVALID', `status must be one of: ${statuses.join(', ')}`)
}
