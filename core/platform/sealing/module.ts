import { SealingServiceService } from '../../../proto/gen/ts-proto/tollgate/platform/v1/sealing.ts'
import { grpcService } from '../../rpc/serve.ts'
import { sealedReplies } from '../idempotency.ts'
import type { Platform } from '../platform.ts'
import { type SealedTable, createRewrap } from './rewrap.ts'
import { createSealingRpc } from './rpc.ts'

/** RPCs for operators on values sealed at rest: the issuer's signing keys, and stored replies. */
export function createSealingModule(
  { pool, sealing, now }: Platform,
  { sealedSigningKeys }: { readonly sealedSigningKeys: SealedTable },
) {
  const tables = [sealedSigningKeys, sealedReplies]
  const rewrap = createRewrap({ pool, sealing, tables, now })
  return {
    api: {},
    services: [grpcService(SealingServiceService, createSealingRpc(rewrap).sealingService)],
  }
}
