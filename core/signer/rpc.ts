import { once } from 'node:events'
import type * as pb from '../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { serviceCaller } from '../rpc/guards.ts'
import type { Invalidations } from '../shared/invalidations.ts'
import { type Handlers, rpc, streamRpc } from '../rpc/serve.ts'
import type { Signer } from './service.ts'

export interface SignerRpcDeps {
  readonly signer: Signer
  readonly invalidations: Invalidations
  /** Aborts when core drains, so that watchers reconnect to another core. */
  readonly stopping: AbortSignal
}

export function createSignerRpc({ signer, invalidations, stopping }: SignerRpcDeps) {
  const signerService: Handlers<pb.SignerServiceServer> = {
    verifyApiKey: rpc(serviceCaller('sidecar'), async (request: pb.VerifyApiKeyRequest) =>
      signer.verifyApiKey(request.apiKey),
    ),
    verifyApiKeys: rpc(serviceCaller('sidecar'), async ({ apiKeys }: pb.VerifyApiKeysRequest) => ({
      answers: await signer.verifyApiKeys(apiKeys),
    })),
    verifySignerSession: rpc(
      serviceCaller('sidecar'),
      async (request: pb.VerifySignerSessionRequest) => signer.verifySession(request.token),
    ),
    verifyForeignToken: rpc(
      serviceCaller('sidecar'),
      async ({ token }: pb.VerifyForeignTokenRequest) => signer.verifyForeign(token),
    ),
    getAccess: rpc(serviceCaller('sidecar'), async (request: pb.GetAccessRequest) => ({
      access: await signer.access(request.clientId, request.externalUserId),
    })),
    checkToken: rpc(serviceCaller('sidecar'), async (request: pb.CheckTokenRequest) => ({
      revoked: await signer.isRevoked(request),
    })),
    watchInvalidations: streamRpc(
      serviceCaller('sidecar'),
      async (
        _request: pb.WatchInvalidationsRequest,
        emit: (message: pb.WatchInvalidationsResponse) => void,
        context,
      ) => {
        const unwatch = invalidations.watch(({ endsBefore = 0, ...invalidation }) =>
          emit({ ...invalidation, endsBefore: BigInt(endsBefore) }),
        )
        const ended = AbortSignal.any([context.signal, stopping])
        if (!ended.aborted) await once(ended, 'abort')
        unwatch()
      },
    ),
  }
  return { signerService }
}
