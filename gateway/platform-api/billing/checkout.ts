import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { post } from '../../http/endpoint.ts'
import { IdempotencyHeader, addSchemas, asDocumented, named, ref } from '../../http/schemas.ts'
import { AppParams, WebAddress, text } from '../schemas.ts'
import { returnUrls } from './processor-page.ts'

const PlanCheckout = named(
  Type.Object({
    checkoutUrl: WebAddress('The page on which the user pays, or leaves a card.'),
    subscriptionId: Type.String({ description: "The user's subscription, which is unchanged." }),
  }),
  'PlanCheckout',
)

/** The pay page for a plan. */
export function planCheckoutRoutes(app: App): void {
  addSchemas(app, [PlanCheckout])
  createPlanCheckout(app)
}

const Body = Type.Object(
  {
    planId: Type.Optional(text('An active plan of the app that needs a card.')),
    externalUserId: Type.Optional(text('The user who takes the plan and pays.')),
    ...returnUrls,
  },
  { additionalProperties: false },
)

const createPlanCheckout = post({
  url: '/api/v1/apps/:clientId/billing/checkout',
  guard: { kind: 'member_edit' },
  refuses: [
    'STRIPE_CONNECT_REQUIRED',
    'STRIPE_CONNECT_PENDING',
    'OWNER_WALLET_NOT_APP_USER',
    'NO_SUBSCRIPTION',
    'CONFLICT',
    'PROCESSOR_NOT_CONNECTED',
    'PROCESSOR_UNREACHABLE',
    'PROCESSOR_REFUSED',
  ],
  operationId: 'createPlanCheckout',
  summary: 'Open the pay page for a plan',
  description:
    "Opens the payment processor's page on which a user pays the first period of a plan, or leaves a card for a plan without a price. The user moves to the plan when the processor reports the payment; a user who leaves the page keeps the plan. Send an Idempotency-Key, so that a repeated request gets the same page.",
  tags: ['billing'],
  params: AppParams,
  headers: IdempotencyHeader,
  // Core requires both ids, in one message.
  body: Body,
  documentedBody: asDocumented(Body, { required: ['planId', 'externalUserId'] }),
  response: { 200: ref(PlanCheckout) },
  handler: async ({ params, headers, body, core }) =>
    core.payments.createPlanCheckout({
      ...params,
      ...body,
      planId: body.planId ?? '',
      externalUserId: body.externalUserId ?? '',
      idempotencyKey: headers['idempotency-key'],
    }),
})
