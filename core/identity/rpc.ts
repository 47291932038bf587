import { DomainError } from '../../proto/errors.ts'
import type * as pb from '../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import {
  actorOf,
  type Guard,
  type Caller,
  type RequireMetering,
  m2m,
  m2mBasic,
  m2mOrMember,
  member,
  operator,
  serviceCaller,
  session,
  endUser,
} from '../rpc/callers.ts'
import { parseCursor, parseLimit } from '../platform/cursor.ts'
import { type ClientId, isClientId, parseExternalUserId } from '../platform/ids.ts'
import { type UsdMicros, parseInteger, usdMicros } from '../lib/money.ts'
import { addSeconds } from '../lib/time.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'
import type { Apps } from './apps/apps.ts'
import type { Users } from './users/users.ts'
import { type User, type UserChange, type UserState, userStates } from './types.ts'

export interface IdentityRpcDeps {
  readonly apps: Apps
  readonly users: Users
  readonly starterUsdMicros: UsdMicros
  /** How long caches elsewhere may hold a permission after it ended. */
  readonly revocationBoundSeconds: number
  readonly requireMetering: RequireMetering
}

export function createIdentityRpc({
  apps,
  users,
  starterUsdMicros,
  revocationBoundSeconds,
  requireMetering,
}: IdentityRpcDeps) {
  const appService: Handlers<pb.AppServiceServer> = {
    createApp: rpc(operator(), async (request: pb.CreateAppRequest) => {
      const created = await apps.create({
        name: parseName(request.name),
        included:
          request.starterUsdMicros === undefined
            ? starterUsdMicros
            : parseMicros(request.starterUsdMicros),
        ...parseOwner(request),
      })
      return {
        clientId: created.clientId,
        name: created.name,
        m2mClientId: created.m2mClientId,
        m2mClientSecret: created.m2mClientSecret,
        ownerEmail: created.ownerEmail,
        ownerPassword: created.ownerPassword,
        createdAt: created.createdAt.toISOString(),
      }
    }),
    findApp: rpc(serviceCaller(), async ({ clientId }: pb.FindAppRequest) => {
      const client = isClientId(clientId) ? await apps.findPublic(clientId) : null
      if (!client) throw new DomainError('NOT_FOUND', 'there is no such app')
      return { clientId }
    }),
    listApps: rpc(operator(), async (request: pb.ListAppsRequest) => {
      const { items, nextCursor } = await apps.list(
        parseCursor(request.cursor),
        parseLimit(request.limit),
      )
      return {
        nextCursor,
        apps: items.map((app) => ({
          clientId: app.clientId,
          name: app.name,
          m2mClientId: app.m2mClientId,
          createdAt: app.createdAt.toISOString(),
        })),
      }
    }),
  }

  const callerService: Handlers<pb.CallerServiceServer> = {
    // The guard depends on the request, so each kind has its own RPC body; all it does is pass or throw.
    checkCaller: {
      unary: (call, deps) => checkFor(call.request, requireMetering).unary(call, deps),
    },
  }

  const userService: Handlers<pb.UserServiceServer> = {
    upsertUser: rpc(m2m('users:write'), async (request: pb.UpsertUserRequest, caller, context) => {
      const { user, created } = await users.upsert(
        caller.appId,
        parseChange(request),
        actorOf(caller, context),
      )
      return { user: render(user, caller.clientId), created }
    }),
    updateUser: rpc(m2m('users:write'), async (request: pb.UpdateUserRequest, caller, context) => ({
      user: render(
        await users.update(caller.appId, parseChange(request), actorOf(caller, context)),
        caller.clientId,
      ),
    })),
    deactivateUser: rpc(
      m2m('users:write'),
      async (request: pb.DeactivateUserRequest, caller, context) => {
        const external = parseExternalUserId(request.externalUserId)
        const user = await users.deactivate(caller.appId, external, actorOf(caller, context))
        const since = user.deactivatedAt ?? user.updatedAt
        return {
          user: render(user, caller.clientId),
          effectiveBy: addSeconds(since, revocationBoundSeconds).toISOString(),
        }
      },
    ),
    listUsers: rpc(m2m('users:read'), async (request: pb.ListUsersRequest, caller) => {
      const { items, nextCursor } = await users.list({
        app: caller.appId,
        status: request.status === undefined ? null : parseStatus(request.status),
        externalUserId:
          request.externalUserId === undefined ? null : parseExternalUserId(request.externalUserId),
        after: parseCursor(request.cursor),
        limit: parseLimit(request.limit),
      })
      return { users: items.map((user) => render(user, caller.clientId)), nextCursor }
    }),
  }

  return { appService, callerService, userService }
}

const guards: Readonly<Record<string, () => Guard<Caller>>> = {
  m2m_basic: m2mBasic,
  user: endUser,
  session,
  member_read: () => member('read'),
  member_edit: () => member('edit'),
  member_own: () => member('own'),
  m2m_or_member: m2mOrMember,
}

function checkFor(request: pb.CheckCallerRequest, requireMetering: RequireMetering) {
  if (request.kind === 'm2m' && request.scope !== undefined)
    return rpc(m2m(request.scope), async () => ({}))
  const guard = Object.hasOwn(guards, request.kind) ? guards[request.kind] : undefined
  if (guard) return rpc(request.metered ? requireMetering(guard()) : guard(), async () => ({}))
  return rpc(serviceCaller(), async (): Promise<pb.CheckCallerResponse> => {
    throw new DomainError(
      'REQUEST_INVALID',
      `kind must be m2m (with a scope) or one of: ${Object.keys(guards).join(', ')}`,
    )
  })
}

const render = (user: User, clientId: ClientId) => ({
  id: user.id,
  clientId,
  externalUserId: user.externalUserId,
  email: user.email ?? undefined,
  status: user.status,
  createdAt: user.createdAt.toISOString(),
  updatedAt: user.updatedAt.toISOString(),
  deactivatedAt: user.deactivatedAt?.toISOString(),
})

const emailSyntax = /^[^\s@\p{Cc}]{1,64}@[^\s@\p{Cc}]{1,255}$/u

function parseChange(request: pb.UpsertUserRequest): UserChange {
  const email = request.clearEmail
    ? { email: null }
    : request.email === undefined
      ? {}
      : { email: parseEmail(request.email) }
  const status = request.status === undefined ? {} : { status: parseStatus(request.status) }
  return { externalUserId: parseExternalUserId(request.externalUserId), ...email, ...status }
}

function parseEmail(text: string): string {
  const email = text.trim()
  if (!emailSyntax.test(email))
    throw new DomainError('REQUEST_INVALID', 'email must be an e-mail address')
  return email
}

function parseStatus(text: string): UserState {
  const status = userStates.find((known) => known === text.trim().toLowerCase())
  if (!status)
    throw new DomainError('REQUEST_INVALID', `status must be one of: ${userStates.join(', ')}`)
  return status
}

function parseName(text: string): string {
  const name = text.trim()
  if (name === '' || name.length > 100 || /\p{Cc}/u.test(name)) {
    throw new DomainError(
      'REQUEST_INVALID',
      'name must have 1 to 100 characters, none of them a control character',
    )
  }
  return name
}

function parseMicros(text: string): UsdMicros {
  const value = parseInteger(text)
  if (value === null || value > 10n ** 15n) {
    throw new DomainError(
      'REQUEST_INVALID',
      'starterUsdMicros must be a whole number of USD micros, at most 10^15',
    )
  }
  return usdMicros(value)
}

function parseOwner(request: pb.CreateAppRequest) {
  if (request.ownerEmail === undefined) return {}
  const { ownerPassword } = request
  if (ownerPassword !== undefined && (ownerPassword.length < 12 || ownerPassword.length > 200)) {
    throw new DomainError('REQUEST_INVALID', 'ownerPassword must have 12 to 200 characters')
  }
  const password = ownerPassword === undefined ? {} : { password: ownerPassword }
  return { owner: { email: parseEmail(request.ownerEmail), ...password } }
}
