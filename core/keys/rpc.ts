import type * as pb from '../../proto/gen/ts-proto/tollgate/keys/v1/keys.ts'
import { m2m } from '../callers.ts'
import { parseCursor, parseLimit } from '../cursor.ts'
import { parseIdempotencyKey } from '../idempotency.ts'
import { actor } from '../identity/rpc.ts'
import { addSeconds } from '../lib/time.ts'
import { type Handlers, rpc } from '../serve.ts'
import type { Keys } from './service.ts'
import type { Key } from './types.ts'

export function createKeysRpc({ keys, revocationBoundSeconds }: { keys: Keys; revocationBoundSeconds: number }) {
  const keyService: Handlers<pb.KeyServiceServer> = {
    createKey: rpc(m2m('users:write'), async (request: pb.CreateKeyRequest, caller, context) =>
      keys.create(caller, {
        externalUserId: request.externalUserId, label: request.label ?? null,
        idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
      }, actor(caller, context))),
    listKeys: rpc(m2m('users:write'), async (request: pb.ListKeysRequest, caller) => {
      const { items, nextCursor } = await keys.list(caller, {
        externalUserId: request.externalUserId, after: parseCursor(request.cursor), limit: parseLimit(request.limit),
      })
      return { keys: items.map(render), nextCursor }
    }),
    revokeKey: rpc(m2m('users:write'), async (request: pb.RevokeKeyRequest, caller, context) => {
      const revokedAt = await keys.revoke(caller, request, actor(caller, context))
      return { revokedAt: revokedAt.toISOString(), effectiveBy: addSeconds(revokedAt, revocationBoundSeconds).toISOString() }
    }),
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
