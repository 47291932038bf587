import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Micros, required, text } from '../schemas.ts'
import { SubscriptionChange, Timing, toChange } from '../users/subscriptions.ts'
import { BilledPlan, BilledSubscription } from './billing.ts'

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
  }),
  'OwnerAccount',
)

/** The owner plan: the plan of the account that pays for an app as its owner. */
export function ownerPlanRoutes(app: App): void {
  addSchemas(app, [OwnerAccount])
  readOwnerAccount(app)
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
