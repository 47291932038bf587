import { type TSchema, Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, Micros, Wei, nullable } from '../schemas.ts'
import { Percent } from './processor.ts'

const day = 'YYYY-MM-DD in UTC.'

/** A nullable object in OpenAPI 3.0. */
export const orNull = (properties: Record<string, TSchema>, description: string) => {
  const schema = Type.Object(properties)
  return Type.Unsafe<object | null>({ ...schema, nullable: true, description })
}

export const BilledPlan = orNull(
  {
    id: Type.String(),
    type: Type.String({ description: 'free, subscription or usage' }),
    name: Type.String(),
    priceAmount: Type.String({ description: 'As the owner entered it.' }),
    priceCurrency: Type.String(),
    includedUnits: nullable({ description: 'Null without a quota.' }),
    includedUsdMicros: nullable({ description: 'Null if nothing is included.' }),
    overageRateWei: nullable({ description: 'Price of each unit beyond the quota.' }),
    billingCycle: Type.String(),
    status: Type.String(),
  },
  "The owner's plan, or the app's newest plan; null when none is configured.",
)
export const BilledSubscription = orNull(
  {
    id: Type.String(),
    status: Type.String(),
    currentPeriodStart: Instant('Included.'),
    currentPeriodEnd: Instant('Included: the last millisecond.'),
  },
  "The owner's subscription; null without one.",
)
export const usageFields = {
  requestCount: Type.Integer({ description: 'Tickets of the period.' }),
  unpricedCount: Type.Integer({
    description: 'Tickets among these that wait for a rate; no USD figure includes them.',
  }),
  totalFeeWei: Wei('The network fees.'),
  totalFeeEth: Type.String({ description: 'The same as an exact decimal.' }),
  networkFeeUsdMicros: Micros('Priced at signing time, rounded up once.'),
  ownerChargeWei: Wei("Network fees and the platform's cut."),
  ownerChargeUsdMicros: Micros('The same, at the prices of signing time, rounded up once.'),
  platformFeeWei: Wei("The platform's cut."),
  totalUnits: Type.String({ description: 'Pixels of the tickets.' }),
}
export const Overage = Type.Object({
  overageUnits: Type.String({ description: 'Units beyond the quota of the plan.' }),
  overageWei: Wei("Their cost at the plan's rate."),
})
const BillingSummary = named(
  Type.Object({
    clientId: Type.String(),
    plan: BilledPlan,
    subscription: BilledSubscription,
    cycle: Type.Object({
      periodStart: Instant('Included.'),
      periodEnd: Instant('Included: the last millisecond.'),
      usage: Type.Object(usageFields),
      timeline: Type.Array(
        Type.Object({
          date: Type.String({ description: day }),
          requestCount: Type.Integer(),
          feeWei: Wei('Network fees of that day.'),
        }),
        { description: 'Every UTC day of the period, in order; at most 366.' },
      ),
      overage: Overage,
    }),
    platformCutPercent: Percent("The platform's cut now; null when none is configured."),
  }),
  'BillingSummary',
)

/** The billing summary of an app. */
export function billingRoutes(app: App): void {
  addSchemas(app, [BillingSummary])
  get({
    url: '/api/v1/apps/:clientId/billing',
    guard: { kind: 'hidden_m2m_or_member' },
    metered: true,
    operationId: 'getBilling',
    summary: 'The billing summary of the running period',
    description:
      "Returns usage, the platform's cut and overage of the owner's period, or of the UTC month if the owner has no period. A caller without permission gets 404, also for a wrong secret.",
    tags: ['billing'],
    params: AppParams,
    response: { 200: ref(BillingSummary) },
    handler: async ({ params: { clientId }, core }) => {
      const answer = await core.billing.getBilling({ clientId })
      return { ...answer, clientId, cycle: { ...answer, overage: answer } }
    },
  })(app)
}
