import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, Micros, nullable, oneOf, required, text } from '../schemas.ts'
import { SubscriptionChange, Timing, toChange } from '../users/subscriptions.ts'
import { BilledPlan, BilledSubscription, orNull } from './billing.ts'

const url = '/api/v1/apps/:clientId/billing/owner-plan'
const tags = ['billing']

const OwnerAccount = named(
  Type.Object({
    email: Type.String({ description: 'Address of the account that pays for the app.' }),
    externalUserId: Type.String({
      description: 'Id of the account as an end user of the platform app.',
    }),
    platformClientId: Type.String({ description: 'Client id of the platform app.' }),
    balanceUsdMicros: Micros('What the owner may still use before paying.'),
    overageUsdMicros: Micros('What was used beyond included usage and credit.'),
    plan: BilledPlan,
    subscription: BilledSubscription,
    charges: Type.Array(
      Type.Object({
        clientId: Type.String(),
        name: Type.String(),
        ticketCount: Type.Integer(),
        ownerChargeUsdMicros: Micros('Network fees and platform fees of the tickets.'),
      }),
      { description: 'Owner charges of the running period, by app, the highest first.' },
    ),
    scheduledPlan: orNull(
      {
        planId: Type.String(),
        name: Type.String(),
        effectiveAt: Instant('The end of the running period.'),
      },
      'The plan that follows the running period; null without a scheduled change.',
    ),
  }),
  'OwnerAccount',
)

const OwnerPlan = named(
  Type.Object({
    id: Type.String({ description: 'planId of a change.' }),
    name: Type.String(),
    type: oneOf(['free', 'subscription', 'usage'], 'usage: paid by use; subscription: by period.'),
    priceAmount: Type.String({ description: 'Price of one period, as it was entered.' }),
    priceCurrency: Type.String(),
    billingCycle: oneOf(['daily', 'weekly', 'monthly'], 'Length of a period.'),
    includedUsdMicros: nullable({ description: 'Null if nothing is included.' }),
    includedUnits: nullable({ description: 'Null without a quota.' }),
    chargeThresholdUsdMicros: nullable({
      description: 'Usage after which the card is charged; null: when the period ends.',
    }),
    isStarter: Type.Boolean({ description: 'Starter is no owner plan; moving to it ends one.' }),
    needsCard: Type.Boolean({ description: 'Whether a card or a payment comes first.' }),
  }),
  'OwnerPlan',
)

const OwnerPlans = named(
  Type.Object({
    plans: Type.Array(ref(OwnerPlan), { description: 'Starter, then the oldest first.' }),
  }),
  'OwnerPlans',
)

/** The owner plan: the plan of the account that pays for an app as its owner. */
export function ownerPlanRoutes(app: App): void {
  addSchemas(app, [OwnerAccount, OwnerPlan, OwnerPlans])
  readOwnerAccount(app)
  listOwnerPlans(app)
  updateOwnerPlan(app)
}

const readOwnerAccount = get({
  url,
  guard: { kind: 'member_own' },
  refuses: ['CONFLICT'],
  operationId: 'getOwnerAccount',
  summary: 'What the owner pays, and the owner plan',
  description:
    'Returns the plan, balance and charges of the account that pays for the app. One account pays for all apps that it owns. For that account only. Returns 409 for a platform-owned app, which no owner pays for.',
  tags,
  params: AppParams,
  response: { 200: ref(OwnerAccount) },
  handler: async ({ params, core }) => {
    const { account } = await core.ownerAccounts.getOwnerAccount(params)
    return requireField(account, 'account')
  },
})

const listOwnerPlans = get({
  url: `${url}s`,
  guard: { kind: 'member_own' },
  refuses: ['CONFLICT'],
  operationId: 'listOwnerPlans',
  summary: 'The owner plans to choose from',
  description:
    'Lists the plans of the platform app that the account that pays for the app can move to. For that account only. Returns 409 for a platform-owned app.',
  tags,
  params: AppParams,
  response: { 200: ref(OwnerPlans) },
  handler: async ({ params, core }) => core.ownerAccounts.listOwnerPlans(params),
})

const updateOwnerPlan = post({
  url,
  guard: { kind: 'member_own' },
  refuses: [
    'CONFLICT',
    'NO_SUBSCRIPTION',
    'CARD_DECLINED',
    'PROCESSOR_NOT_CONNECTED',
    'PROCESSOR_UNREACHABLE',
    'PROCESSOR_REFUSED',
  ],
  operationId: 'updateOwnerPlan',
  summary: 'Take an owner plan',
  description:
    'Moves the account that pays for the app to a plan of the platform app: at once for a more expensive plan, otherwise when the running period ends, unless timing is set. If the plan needs a card and the account has none, the plan stays unchanged and the answer has the checkoutUrl. Send an Idempotency-Key, so that a repeated request changes once.',
  tags,
  params: AppParams,
  headers: IdempotencyHeader,
  body: Type.Object({
    planId: required('An active plan of the platform app.'),
    timing: Timing,
    successUrl: Type.Optional(text('Address after a completed checkout.')),
    cancelUrl: Type.Optional(text('Address after an abandoned checkout.')),
  }),
  response: { 200: ref(SubscriptionChange) },
  handler: async ({ params, headers, body, core }) => {
    const { change } = await core.ownerAccounts.updateOwnerPlan({
      ...params,
      ...body,
      idempotencyKey: headers['idempotency-key'],
    })
    return toChange(requireField(change, 'change'))
  },
})
