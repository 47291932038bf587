import { CatalogServiceService } from '../../proto/gen/ts-proto/tollgate/plans/v1/catalog.ts'
import { DiscoveryServiceService } from '../../proto/gen/ts-proto/tollgate/plans/v1/discovery.ts'
import { PlanServiceService } from '../../proto/gen/ts-proto/tollgate/plans/v1/plans.ts'
import { SubscriptionServiceService } from '../../proto/gen/ts-proto/tollgate/plans/v1/subscriptions.ts'
import type { EmitSubscribers } from '../metering/backend/emit.ts'
import type { PlanCatalog } from '../metering/backend/plans.ts'
import { DomainError } from '../../proto/errors.ts'
import type { Pool } from '../lib/sql.ts'
import type { AppId } from '../shared/ids.ts'
import type { Shared } from '../shared/shared.ts'
import { grpcService } from '../rpc/serve.ts'
import { createCatalog } from './catalog/catalog.ts'
import { createDiscovery } from './catalog/discovery.ts'
import { createDiscoveryRpc } from './catalog/discovery-rpc.ts'
import { createFeatures } from './catalog/features.ts'
import { createCatalogRpc } from './catalog/rpc.ts'
import { createCatalogReader } from './catalog/reader.ts'
import type { PlansConfig } from './config.ts'
import { planReads } from './offers/reads.ts'
import { createOffersRpc } from './offers-rpc.ts'
import { type Selling, createOffers } from './offers/service.ts'
import { findAppId } from './offers/store.ts'
import { priceReads } from './prices/chain.ts'
import { type OpenAccounts, createPlans } from './service.ts'
import { createChoices } from './subscriptions/choices.ts'
import { followDue } from './subscriptions/follow.ts'
import { createMoves } from './subscriptions/moves.ts'
import { createOrderedMoves } from './subscriptions/orders.ts'
import { createPastDue } from './subscriptions/past-due.ts'
import type {
  LockedAccount,
  PlanPayments,
  Resubscribe,
  SendSubscribers,
  SubscriptionLedger,
} from './subscriptions/ports.ts'
import { createRaises } from './subscriptions/raises.ts'
import { createSubscriptionsRpc } from './subscriptions/rpc.ts'
import { countSubscribers } from './subscriptions/store.ts'
import { type SubscriptionsDeps, createSubscriptions } from './subscriptions/subscriptions.ts'
import { createSubscriptionViews } from './subscriptions/views.ts'
import { createPlanSync } from './sync/service.ts'
import { createFindSubscriber } from './sync/subscribers.ts'

export interface PlansOthers<Account extends LockedAccount> {
  readonly config: PlansConfig
  readonly ledger: SubscriptionLedger<Account> & { readonly open: OpenAccounts }
  readonly resubscribe: Resubscribe
  readonly selling: Selling
  readonly payments: PlanPayments
  readonly backend: {
    /** Null for a metering backend without plans. */
    readonly plans: PlanCatalog | null
    /** Absent when nothing is sent to the backend. */
    readonly emitter?: { readonly emitSubscribers: EmitSubscribers } | undefined
  }
}

/** The catalogue, the plans of apps, and the subscriptions of users. */
export function createPlansModule<Account extends LockedAccount>(
  shared: Shared,
  { config, ledger, resubscribe, selling, backend, payments }: PlansOthers<Account>,
) {
  const { pool, log, now, clocks } = shared
  const { pipelines, catalogUrl: url } = config
  const discovery = createDiscovery({ pipelines, url, now })
  const reader = createCatalogReader({ pool, log, url, now })
  const { raiseStarters, raiseFirst: onStarterChange } = createRaises({ ...shared, ledger })
  const others = { discovery, selling, countSubscribers, onStarterChange }
  const offers = createOffers({ ...shared, ...others })
  const sync = createPlanSync({ ...shared, catalog: backend.plans })

  const send: SendSubscribers = async (db, users) =>
    backend.emitter?.emitSubscribers(db, users, now())
  const follow = () => followDue(pool, now(), { send })
  const appOf = (clientId: string) => requireApp(pool, clientId)

  const { catalogService } = createCatalogRpc({ catalog: createCatalog({ pool, now }) })
  const { planService } = createOffersRpc({ offers, sync })
  const subscribing = { ...shared, ledger, resubscribe, selling, sync, payments, send }
  const { ports, subscriptionService } = createSubscriptionParts(subscribing)
  const discoveryRpc = createDiscoveryRpc({ pool, now, pipelines, url, reader, appOf })

  /**
   * Does what is due in a test app by its clock: activates successors of subscriptions, and grants
   * raised Starter usage.
   */
  async function settleClock(app: AppId): Promise<void> {
    await followDue(pool, await clocks.timeOf(pool, app, now()), { app, send })
    await raiseStarters(app)
  }

  return {
    api: {
      ...createPlans({ ledger, syncStarter: sync.syncStarter, send, clocks }),
      findSubscriber: createFindSubscriber({ pool, sync }),
      ...createFeatures({ pool, discovery }),
      ...planReads,
      prices: priceReads,
      drafts: offers.drafts,
      settleClock,
      ...ports,
    },
    services: [
      grpcService(CatalogServiceService, catalogService),
      grpcService(PlanServiceService, planService),
      grpcService(SubscriptionServiceService, subscriptionService),
      grpcService(DiscoveryServiceService, discoveryRpc.discoveryService),
    ],
    lifecycle: { start: reader.start },
    upkeep: [follow, () => raiseStarters(), reader.upkeep, sync.retry],
  }
}

function createSubscriptionParts<Account extends LockedAccount>(deps: SubscriptionsDeps<Account>) {
  const [subscriptions, views] = [createSubscriptions(deps), createSubscriptionViews(deps)]
  const moves = { ...deps, ...createMoves(deps) }
  const { quote: quoteMove, book: bookMove } = createOrderedMoves(moves)
  const { change: changePlan, checkout: openPlanCheckout } = subscriptions
  const past = createPastDue(moves)
  const choices = createChoices(deps)
  const ports = { changePlan, openPlanCheckout, quoteMove, bookMove, ...past, ...choices }
  return { ports, ...createSubscriptionsRpc({ subscriptions, views }) }
}

async function requireApp(pool: Pool, clientId: string): Promise<AppId> {
  const app = await findAppId(pool, clientId)
  if (app) return app
  throw new DomainError(
    'NOT_FOUND',
    'no app has this client id; it begins with app_, and ./tollgate app list shows it',
  )
}

export { chainPrice, cutItem } from './prices/chain.ts'
export type PlansApi = ReturnType<typeof createPlansModule>['api']
