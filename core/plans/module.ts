import { CatalogServiceService } from '../../proto/gen/ts-proto/tollgate/plans/v1/catalog.ts'
import type { Platform } from '../platform/platform.ts'
import { grpcService } from '../rpc/serve.ts'
import { createCatalog } from './catalog/catalog.ts'
import { createFeatures } from './catalog/features.ts'
import { createCatalogRpc } from './catalog/rpc.ts'
import type { PlansConfig } from './config.ts'
import { planReads } from './offers/reads.ts'
import { type OpenAccounts, createPlans } from './service.ts'

/** What may be bought: the catalog of an app, and which plan a user is on. */
export function createPlansModule(
  { pool, now }: Platform,
  {
    config,
    ledger,
  }: { readonly config: PlansConfig; readonly ledger: { readonly open: OpenAccounts } },
) {
  const catalog = createCatalog({ pool, now })
  return {
    api: {
      ...createPlans({ ledger }),
      ...createFeatures({ pool, pipelines: config.pipelines }),
      ...planReads,
    },
    services: [grpcService(CatalogServiceService, createCatalogRpc({ catalog }).catalogService)],
  }
}

export type PlansApi = ReturnType<typeof createPlansModule>['api']
