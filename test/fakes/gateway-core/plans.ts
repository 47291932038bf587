import type { ServiceDefinition } from '@grpc/grpc-js'
import * as catalog from '../../../proto/gen/ts-proto/tollgate/plans/v1/catalog.ts'
import * as plans from '../../../proto/gen/ts-proto/tollgate/plans/v1/plans.ts'
import * as subscriptions from '../../../proto/gen/ts-proto/tollgate/plans/v1/subscriptions.ts'

const change: subscriptions.SubscriptionChange = {
  subscriptionId: 's-1',
  planId: 'p-1',
  timing: 'immediate',
  effectiveAt: '2026-03-10T12:00:00.000Z',
}

export const answers = {
  getSubscription: {
    state: { externalUserId: 'ada', source: 'ledger' },
  } satisfies subscriptions.GetSubscriptionResponse,
  listSubscriptions: {
    externalUserId: 'ada',
    items: [],
  } satisfies subscriptions.ListSubscriptionsResponse,
  updateSubscription: { change } satisfies subscriptions.UpdateSubscriptionResponse,
  cancelSubscription: { change } satisfies subscriptions.CancelSubscriptionResponse,
  resumeSubscription: { change } satisfies subscriptions.ResumeSubscriptionResponse,
}

export const services: ServiceDefinition[] = [
  catalog.CatalogServiceService,
  plans.PlanServiceService,
  subscriptions.SubscriptionServiceService,
]
