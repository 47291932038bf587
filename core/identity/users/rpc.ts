import { DomainError } from '../../../proto/errors.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import { Scope } from '../../../proto/scopes.ts'
import { addSeconds } from '../../lib/time.ts'
import { parseCursor, parseLimit } from '../../shared/cursor.ts'
import { type AppId, isOwnerSubject, parseExternalUserId } from '../../shared/ids.ts'
import {
  type AppOperatorCaller,
  type M2mCaller,
  type MemberCaller,
  toActor,
} from '../../rpc/callers.ts'
import {
  appOperatorWrite,
  appReader,
  m2m,
  orMember,
  orOperator,
  session,
} from '../../rpc/guards.ts'
import { batchedRpc } from '../../rpc/batched.ts'
import { type Context, type Handlers, rpc } from '../../rpc/serve.ts'
import type { Shared } from '../../shared/shared.ts'
import { parseEmail } from '../input.ts'
import { type User, type UserChange, type UserState, userStates } from '../types.ts'
import type { OwnUserRow } from './store.ts'
import type { Users } from './users.ts'

export interface UsersRpcDeps extends Pick<Shared, 'pool' | 'clocks'> {
  readonly users: Users
  /** Maximum time that other processes' caches may still allow what has ended. */
  readonly revocationBoundSeconds: number
}

export function createUsersRpc({ users, pool, clocks, revocationBoundSeconds }: UsersRpcDeps) {
  const client = m2m(Scope.usersWrite)
  const writer = orOperator(orMember(client, 'edit'), appOperatorWrite())
  const upsert = async (
    request: pb.UpsertUserRequest,
    caller: M2mCaller | MemberCaller | AppOperatorCaller,
    context: Context,
  ) => {
    const change = parseChange(request)
    const { user, created } = await users.upsert(caller.appId, change, toActor(caller, context))
    return { user: renderUser(user, caller.clientId), created }
  }

  const userService: Handlers<pb.UserServiceServer> = {
    upsertUser: rpc(writer, upsert),
    upsertUsers: batchedRpc('tollgate.identity.v1.UserService/UpsertUser', client, upsert),
    updateUser: rpc(writer, async (request: pb.UpdateUserRequest, caller, context) => ({
      user: renderUser(
        await users.update(caller.appId, parseChange(request), toActor(caller, context)),
        caller.clientId,
      ),
    })),
    deactivateUser: rpc(writer, async (request: pb.DeactivateUserRequest, caller, context) => {
      const external = parseExternalUserId(request.externalUserId)
      const user = await users.deactivate(caller.appId, external, toActor(caller, context))
      const effectiveBy = computeEffectiveBy(user, revocationBoundSeconds)
      return { user: renderUser(user, caller.clientId), effectiveBy }
    }),
    getUser: rpc(appReader(), async ({ externalUserId }: pb.GetUserRequest, caller) => ({
      user: renderUser(await users.get(caller.appId, externalUserId), caller.clientId),
    })),
    listOwnUsers: rpc(session(), async (request: pb.ListOwnUsersRequest, { accountId }) => {
      const { items, nextCursor } = await users.listOfAccount(accountId, {
        after: parseCursor(request.cursor),
        limit: parseLimit(request.limit),
      })
      const ahead = await clocks.ahead(pool, items)
      const toMs = ({ appId }: { readonly appId: AppId }) => ahead.get(appId) ?? 0
      return { users: items.map((row) => renderOwnUser(row, toMs(row))), nextCursor }
    }),
    listUsers: rpc(
      orOperator(orMember(m2m(Scope.usersRead), 'read'), appReader()),
      async (request: pb.ListUsersRequest, caller) => {
        const { items, nextCursor } = await users.list({
          app: caller.appId,
          status: request.status === undefined ? null : parseStatus(request.status),
          externalUserId:
            request.externalUserId === undefined
              ? null
              : parseExternalUserId(request.externalUserId),
          startsWith: request.startsWith === undefined ? null : parseStart(request.startsWith),
          after: parseCursor(request.cursor),
          limit: parseLimit(request.limit),
        })
        return { users: items.map((user) => renderUser(user, caller.clientId)), nextCursor }
      },
    ),
  }

  return { userService }
}

const renderUser = (user: User, clientId: string) => ({
  id: user.id,
  clientId,
  externalUserId: user.externalUserId,
  email: user.email ?? undefined,
  status: user.status,
  role: isOwnerSubject(user.externalUserId) ? 'owner' : 'user',
  createdAt: user.createdAt.toISOString(),
  updatedAt: user.updatedAt.toISOString(),
  deactivatedAt: user.deactivatedAt?.toISOString(),
})

const renderOwnUser = (row: OwnUserRow, aheadMs: number) => ({
  clientId: row.client_id,
  appName: row.app_name,
  status: row.status,
  createdAt: row.created_at.toISOString(),
  deactivatedAt: row.deactivated_at?.toISOString(),
  clockAheadSeconds: aheadMs / 1_000,
})

/** Time at which the last cached permission of a deactivated user has expired. */
const computeEffectiveBy = (user: User, boundSeconds: number): string =>
  addSeconds(user.deactivatedAt ?? user.updatedAt, boundSeconds).toISOString()

export function parseChange(
  request: Pick<pb.UpsertUserRequest, 'externalUserId' | 'email' | 'clearEmail' | 'status'>,
): UserChange {
  const email = request.clearEmail
    ? { email: null }
    : request.email === undefined
      ? {}
      : { email: parseEmail(request.email) }
  const status = request.status === undefined ? {} : { status: parseStatus(request.status) }
  return { externalUserId: parseExternalUserId(request.externalUserId), ...email, ...status }
}

/** An e-mail address has at most 320 characters, an external id fewer. */
const startMax = 320

/** Parses the beginning of an external id or e-mail address. Returns null for blank text. */
function parseStart(text: string): string | null {
  const trimmed = text.trim()
  if (trimmed === '') return null
  if (trimmed.length <= startMax && !/\p{Cc}/u.test(trimmed)) return trimmed
  throw new DomainError(
    'REQUEST_INVALID',
    `startsWith must have at most ${startMax} characters and no control characters`,
  )
}

export function parseStatus(text: string): UserState {
  const status = userStates.find((known) => known === text.trim().toLowerCase())
  if (!status)
    throw new DomainError('REQUEST_INVALID', `status must be one of: ${userStates.join(', ')}`)
  return status
}
