import { DomainError } from '../../../proto/errors.ts'
import {
  OperatorWhatIfServiceService,
  WhatIfServiceService,
} from '../../../proto/gen/ts-proto/tollgate/billing/v1/whatif.ts'
import type { Pool } from '../../lib/sql.ts'
import { grpcService } from '../../rpc/serve.ts'
import { findApp } from '../store.ts'
import { createWhatIfRpc } from './rpc.ts'
import { type WhatIfDeps, createWhatIf } from './whatif.ts'

/** Services that replay usage against drafts of plans. */
export function whatIfServices(deps: WhatIfDeps) {
  const { whatIfService, operatorWhatIfService } = createWhatIfRpc({
    whatIf: createWhatIf(deps),
    findApp: (clientId) => requireApp(deps.pool, clientId),
  })
  return [
    grpcService(WhatIfServiceService, whatIfService),
    grpcService(OperatorWhatIfServiceService, operatorWhatIfService),
  ]
}

async function requireApp(pool: Pool, clientId: string) {
  const app = await findApp(pool, clientId)
  if (app) return app
  throw new DomainError(
    'NOT_FOUND',
    'no app has this client id; it begins with app_, and ./tollgate app list shows it',
  )
}
