import type * as pb from '../../proto/gen/ts-proto/tollgate/keys/v1/keys.ts'
import { Scope } from '../../proto/scopes.ts'
import { type M2mCaller, type MemberCaller, requestedUser, toActor } from '../rpc/callers.ts'
import { gatewayCaller, m2m, member, orMember, orSelf } from '../rpc/guards.ts'
import { parseCursor, parseLimit } from '../shared/cursor.ts'
import { parseIdempotencyKey } from '../shared/idempotency.ts'
import { addSeconds } from '../lib/time.ts'
import { batchedRpc } from '../rpc/batched.ts'
import { type Context, type Handlers, rpc } from '../rpc/serve.ts'
import type { AppKeys } from './app-keys.ts'
import type { Keys } from './keys.ts'
import type { Key } from './store.ts'

export interface KeysRpcDeps {
  readonly keys: Keys
  readonly appKeys: AppKeys
  /** Maximum time that other processes' caches may still allow a revoked key. */
  readonly revocationBoundSeconds: number
}

export function createKeysRpc({ keys, appKeys, revocationBoundSeconds }: KeysRpcDeps) {
  const toRevocation = (revokedAt: Date) => ({
    revokedAt: revokedAt.toISOString(),
    effectiveBy: addSeconds(revokedAt, revocationBoundSeconds).toISOString(),
  })

  const client = m2m(Scope.usersWrite)
  const writer = orMember(client, 'edit')
  const create = async (
    request: pb.CreateKeyRequest,
    caller: M2mCaller | MemberCaller,
    context: Context,
  ) =>
    keys.create(
      caller,
      {
        externalUserId: request.externalUserId,
        label: request.label ?? null,
        idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
      },
      toActor(caller, context),
    )

  const keyService: Handlers<pb.KeyServiceServer> = {
    createKey: rpc(writer, create),
    createKeys: batchedRpc('tollgate.keys.v1.KeyService/CreateKey', client, create),
    listKeys: rpc(orSelf(orMember(client, 'read')), async (request: pb.ListKeysRequest, caller) => {
      const { items, nextCursor } = await keys.list(caller, {
        externalUserId: requestedUser(caller, request),
        after: parseCursor(request.cursor),
        limit: parseLimit(request.limit),
      })
      return { keys: items.map(render), nextCursor }
    }),
    revokeKey: rpc(orSelf(writer), async (request: pb.RevokeKeyRequest, caller, context) => {
      const key = { keyId: request.keyId, externalUserId: requestedUser(caller, request) }
      return toRevocation(await keys.revoke(caller, key, toActor(caller, context)))
    }),
    createAppKey: rpc(member('edit'), async (request: pb.CreateAppKeyRequest, caller, context) =>
      appKeys.create(
        caller,
        {
          label: request.label ?? null,
          subscriptionId: request.subscriptionId ?? null,
          idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
        },
        context,
      ),
    ),
    listAppKeys: rpc(member('read'), async (request: pb.ListAppKeysRequest, caller) => {
      const { items, nextCursor } = await appKeys.list(caller, {
        after: parseCursor(request.cursor),
        limit: parseLimit(request.limit),
      })
      return { keys: items.map(renderAppKey), nextCursor }
    }),
    revokeAppKey: rpc(member('edit'), async (request: pb.RevokeAppKeyRequest, caller, context) =>
      toRevocation(await appKeys.revoke(caller, request.keyId, context)),
    ),
    validateKey: rpc(gatewayCaller(), async (request: pb.ValidateKeyRequest) =>
      appKeys.validate(request.key),
    ),
  }
  return { keyService }
}

const render = (key: Key) => ({
  keyId: key.id,
  createdAt: key.createdAt.toISOString(),
  status: key.status,
  revokedAt: key.revokedAt?.toISOString(),
  lastUsedAt: key.lastUsedAt?.toISOString(),
  prefix: key.prefix,
  label: key.label ?? undefined,
})

const renderAppKey = (key: Key) => ({
  ...render(key),
  subscriptionId: key.subscriptionId ?? undefined,
})
