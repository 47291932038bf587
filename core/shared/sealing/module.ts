import { SealingServiceService } from '../../../proto/gen/ts-proto/tollgate/shared/v1/sealing.ts'
import { grpcService } from '../../rpc/serve.ts'
import type { Shared } from '../shared.ts'
import { type SealedTable, createRewrap } from './rewrap.ts'
import { createSealingRpc } from './rpc.ts'

/** RPCs for operators on values sealed at rest. */
export function createSealingModule(
  { pool, sealing, now }: Shared,
  tables: readonly SealedTable[],
) {
  const rewrap = createRewrap({ pool, sealing, tables, now })
  return {
    api: {},
    services: [grpcService(SealingServiceService, createSealingRpc(rewrap).sealingService)],
  }
}
