import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, oneOf } from '../schemas.ts'
import { ownRules, ownUrl } from './rules.ts'

const OwnPaying = named(
  Type.Object({
    billingMode: oneOf(
      ['owner_rollup', 'merchant'],
      'merchant: you pay for your use. owner_rollup: the owner of the app pays.',
    ),
    chargesEnabled: Type.Boolean({ description: 'Whether the app can take payments now.' }),
  }),
  'OwnPaying',
)

/**
 * Whether a person pays for its use of an app (docs/payments.md). Wallet, transactions, top-ups,
 * cards and invoices are declared with the app's routes.
 */
export function ownPayingRoutes(app: App): void {
  addSchemas(app, [OwnPaying])
  readPaying(app)
}

const readPaying = get({
  ...ownRules,
  url: `${ownUrl}/billing`,
  operationId: 'getPayingOfMe',
  summary: 'Whether you pay for your use',
  description: 'Returns who pays for your use of the app, and whether the app can take payments.',
  params: AppParams,
  response: { 200: ref(OwnPaying) },
  handler: async ({ params, core }) => {
    const { settings, chargesEnabled } = await core.billing.getProcessor(params)
    return { billingMode: requireField(settings, 'settings').billingMode, chargesEnabled }
  },
})
