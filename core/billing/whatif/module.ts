import { WhatIfServiceService } from '../../../proto/gen/ts-proto/tollgate/billing/v1/whatif.ts'
import { grpcService } from '../../rpc/serve.ts'
import { createWhatIfRpc } from './rpc.ts'
import { type WhatIfDeps, createWhatIf } from './whatif.ts'

/** The service that replays usage against drafts of plans. */
export function whatIfServices(deps: WhatIfDeps) {
  const { whatIfService } = createWhatIfRpc({ whatIf: createWhatIf(deps) })
  return [grpcService(WhatIfServiceService, whatIfService)]
}
