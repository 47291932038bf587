import { CatalogServiceService } from '../../proto/gen/ts-proto/tollgate/plans/v1/catalog.ts'
import {
  OperatorPlanServiceService,
  PlanServiceService,
} from '../../proto/gen/ts-proto/tollgate/plans/v1/plans.ts'
import type { Platform } from '../platform/platform.ts'
import { grpcService } from '../rpc/serve.ts'
import { createCatalog } from './catalog/catalog.ts'
import { createDiscovery } from './catalog/discovery.ts'
import { createFeatures } from './catalog/features.ts'
import { createCatalogRpc } from './catalog/rpc.ts'
import type { PlansConfig } from './config.ts'
import { planReads } from './offers/reads.ts'
import { createOffersRpc, createOperatorOffersRpc, noSuchApp } from './offers/rpc.ts'
import { type Selling, createOffers } from './offers/service.ts'
import { findAppId } from './offers/store.ts'
import { type OpenAccounts, createPlans } from './service.ts'
import { countSubscribers } from './store.ts'

export interface PlansOthers {
  readonly config: PlansConfig
  readonly ledger: { readonly open: OpenAccounts }
  readonly selling: Selling
}

/** What may be bought: the catalogue, the plans of an app, and which plan a user is on. */
export function createPlansModule(
  { pool, now }: Platform,
  { config, ledger, selling }: PlansOthers,
) {
  const discovery = createDiscovery({ pipelines: config.pipelines, url: null, now })
  const catalog = createCatalog({ pool, now })
  const offers = createOffers({ pool, discovery, selling, countSubscribers, now })

  async function appOf(clientId: string) {
    const app = await findAppId(pool, clientId)
    if (app) return app
    throw noSuchApp()
  }

  const { planService } = createOffersRpc({ offers })
  const { operatorPlanService } = createOperatorOffersRpc({ offers, appOf })
  return {
    api: {
      ...createPlans({ ledger }),
      ...createFeatures({ pool, discovery }),
      ...planReads,
    },
    services: [
      grpcService(CatalogServiceService, createCatalogRpc({ catalog }).catalogService),
      grpcService(PlanServiceService, planService),
      grpcService(OperatorPlanServiceService, operatorPlanService),
    ],
  }
}

export type PlansApi = ReturnType<typeof createPlansModule>['api']
