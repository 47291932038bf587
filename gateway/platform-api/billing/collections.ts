import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { post } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, oneOf, text } from '../schemas.ts'
import { payerFields } from './payer.ts'

const Collected = named(
  Type.Object({
    outcome: oneOf(
      ['queued', 'skipped', 'rate_limited'],
      'queued: collected within seconds. skipped: less than the smallest charge is owed. rate_limited: another request was queued in the last 60 seconds.',
    ),
    invoiceIds: Type.Array(Type.String(), {
      description: 'Issued invoices that are charged again.',
    }),
    reason: Type.Optional(text('Why nothing was queued; absent if something was.')),
  }),
  'Collected',
)

const CollectBody = Type.Object(payerFields, { additionalProperties: false })

/** Collects what a payer owes when somebody asks for it (docs/collection.md). */
export function collectionRoutes(app: App): void {
  addSchemas(app, [Collected])
  collectNow(app)
}

const collectNow = post({
  url: '/api/v1/apps/:clientId/billing/collect',
  guard: { kind: 'm2m_or_editor' },
  refuses: ['PROCESSOR_NOT_CONFIGURED', 'PROCESSOR_NOT_CONNECTED', 'CONFLICT'],
  operationId: 'collectDebt',
  summary: 'Collect what a payer owes now',
  description:
    "Invoices the payer's debt and charges the card on file, and tries unpaid invoices again. The payer is the named user in billing mode merchant, otherwise the app's owner, whom payer=owner names in any mode. Returns 503 with outcome unavailable if nothing can be charged.",
  tags: ['billing'],
  params: AppParams,
  body: CollectBody,
  response: { 200: ref(Collected) },
  handler: async ({ params, body, core }) => core.collections.collectDebt({ ...params, ...body }),
})
