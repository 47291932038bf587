import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { post } from '../../http/endpoint.ts'
import { IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, WebAddress, text } from '../schemas.ts'
import { payerFields } from './payer.ts'

export const CardSetup = named(
  Type.Object({
    checkoutUrl: WebAddress('The page on which the payer leaves a card.'),
    sessionId: Type.String({ description: 'Our id of the checkout.' }),
  }),
  'CardSetup',
)

/** A card on file for the payer of an app. */
export function paymentMethodRoutes(app: App): void {
  addSchemas(app, [CardSetup])
  createCardSetup(app)
}

const createCardSetup = post({
  url: '/api/v1/apps/:clientId/billing/payment-method',
  guard: { kind: 'm2m_or_editor' },
  refuses: [
    'PROCESSOR_NOT_CONFIGURED',
    'PROCESSOR_UNREACHABLE',
    'PROCESSOR_REFUSED',
    'STRIPE_CONNECT_REQUIRED',
    'STRIPE_CONNECT_PENDING',
    'CONFLICT',
  ],
  operationId: 'createCardSetup',
  summary: 'Open the page for a card on file',
  description:
    "Opens the payment processor's page on which the payer leaves a card: the named user in billing mode merchant, otherwise the app's owner, whom payer=owner names in any mode. Nothing is charged.",
  tags: ['billing'],
  params: AppParams,
  headers: IdempotencyHeader,
  body: Type.Object(
    {
      ...payerFields,
      successUrl: Type.Optional(
        text('Where the page leads afterwards: https, or http on this machine.'),
      ),
      cancelUrl: Type.Optional(text('Where the page leads when the payer leaves it.')),
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(CardSetup) },
  handler: async ({ params, headers, body, core }) =>
    core.payments.createCardSetup({
      ...params,
      ...body,
      idempotencyKey: headers['idempotency-key'],
    }),
})
