import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, put } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Micros, nullable } from '../schemas.ts'

const tags = ['billing']
const url = '/api/v1/apps/:clientId/billing/overage'

const Overage = named(
  Type.Object({
    clientId: Type.String(),
    ceilingUsdMicros: Micros(
      'The unpaid usage that a user of a paid plan with a chargeable card may run up.',
    ),
    isDefault: Type.Boolean({ description: 'Whether no ceiling was set.' }),
    minimumCeilingUsdMicros: Micros(
      'The lowest ceiling that can be set: 2 USD, or the highest chargeThresholdUsd of a plan plus the smallest charge.',
    ),
    minimumChargeUsdMicros: Micros('Smaller amounts are not collected, but carried.'),
  }),
  'Overage',
)

const OverageBody = Type.Object(
  { ceilingUsdMicros: nullable({ description: 'The new ceiling; null for the default.' }) },
  { additionalProperties: false },
)

/** The ceiling of users' unpaid usage. */
export function overageRoutes(app: App): void {
  addSchemas(app, [Overage])
  get({
    url,
    guard: { kind: 'm2m_or_member' },
    operationId: 'getOverage',
    summary: "The ceiling of users' unpaid usage",
    description: 'Returns how much unpaid usage a user of the app may run up.',
    tags,
    params: AppParams,
    response: { 200: ref(Overage) },
    handler: async ({ params, core }) =>
      requireField((await core.overage.getOverage(params)).overage, 'overage'),
  })(app)
  put({
    url,
    guard: { kind: 'm2m_or_editor' },
    operationId: 'updateOverage',
    summary: "Set the ceiling of users' unpaid usage",
    description:
      'Sets the ceiling, or restores the default with null. A ceiling below the minimum is 409. A lower ceiling applies at once, also to users who owe more.',
    tags,
    params: AppParams,
    body: OverageBody,
    refuses: ['AMOUNT_INVALID', 'CONFLICT'],
    response: { 200: ref(Overage) },
    handler: async ({ params, body, core }) => {
      const { overage } = await core.overage.updateOverage({
        ...params,
        ceilingUsdMicros: body.ceilingUsdMicros ?? undefined,
      })
      return requireField(overage, 'overage')
    },
  })(app)
}
