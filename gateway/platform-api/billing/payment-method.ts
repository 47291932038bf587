import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { post } from '../../http/endpoint.ts'
import { IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, WebAddress } from '../schemas.ts'
import { payerFields } from './payer.ts'
import { processorReasons, returnUrls } from './processor-page.ts'

const CardSetup = named(
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
  refuses: processorReasons,
  operationId: 'createCardSetup',
  summary: 'Open the page for a card on file',
  description:
    "Opens the payment processor's page on which the payer leaves a card: the named user in billing mode merchant, otherwise the app's owner, whom payer=owner names in any mode. Nothing is charged.",
  tags: ['billing'],
  params: AppParams,
  headers: IdempotencyHeader,
  body: Type.Object({ ...payerFields, ...returnUrls }, { additionalProperties: false }),
  response: { 200: ref(CardSetup) },
  self: {
    operationId: 'createCardSetupOfMe',
    summary: 'Open the page for a card on file',
    description:
      "Opens the payment processor's page on which you leave a card. Nothing is charged at once.",
    params: AppParams,
    body: Type.Object(returnUrls, { additionalProperties: false }),
  },
  handler: async ({ params, headers, body, core }) =>
    core.payments.createCardSetup({
      ...params,
      ...body,
      idempotencyKey: headers['idempotency-key'],
    }),
})
