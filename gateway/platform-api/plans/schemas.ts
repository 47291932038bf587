import { Type } from 'typebox'
import { CorrelationId, named, ref } from '../../http/schemas.ts'
import { Instant, Micros, nullable, oneOf } from '../schemas.ts'

/** Schemas of the plan routes. */

const nullableNumber = (type: 'number' | 'integer', description: string) =>
  Type.Unsafe<number | null>({ type, nullable: true, description })
const Rate = (description: string) => Type.String({ pattern: '^[0-9]+(\\.[0-9]+)?$', description })
const nullableRate = (description: string) =>
  nullable({ pattern: '^[0-9]+(\\.[0-9]+)?$', description })
const nullableMicros = (description: string) => nullable({ pattern: '^[0-9]+$', description })

const retailRate =
  'USD for one USD-micro of network cost: 0.000001 is network price, 0.0000015 is 50 % more, 0 is free.'
const pipelineFields = {
  pipeline: Type.String(),
  modelId: Type.String({ description: '* is every model of the pipeline.' }),
}
const ceilings = {
  slaTargetScore: nullableNumber('number', 'A target for the score of orchestrators.'),
  slaTargetP95Ms: nullableNumber('integer', 'A target for the 95th percentile of latency.'),
  maxPricePerUnit: nullableMicros('Wei for one unit: the highest price.'),
}

const PlanCapability = named(
  Type.Object({
    id: Type.String({ description: 'Stays the same while the plan has this pipeline and model.' }),
    ...pipelineFields,
    ...ceilings,
    retailRateUsd: nullableRate(`${retailRate} null: no price of its own.`),
  }),
  'PlanCapability',
)

const types = ['free', 'subscription', 'usage'] as const
const statuses = ['active', 'inactive'] as const
const cycles = ['daily', 'weekly', 'monthly'] as const

const syncFields = {
  openmeterPlanId: nullable({
    description: "The metering backend's plan; null until the first sync.",
  }),
  lastSyncedAt: nullable({ format: 'date-time', description: 'The last sync that succeeded.' }),
  syncError: nullable({ description: 'The error of the last sync.' }),
}

const terms = {
  includedUsdMicros: nullableMicros('Usage that the plan includes in each period.'),
  overageRateUsd: nullableRate(`${retailRate} null is network price.`),
}

export const Plan = named(
  Type.Object({
    id: Type.String({ format: 'uuid' }),
    clientId: Type.String(),
    name: Type.String(),
    type: oneOf(
      types,
      'usage: users pay for their usage; subscription: users pay for each period.',
    ),
    priceAmount: Type.String({ description: 'Price of one period, as it was entered.' }),
    priceCurrency: Type.String(),
    status: oneOf(statuses, 'An inactive plan accepts no new users; its users stay.'),
    isNetworkDefault: Type.Boolean(),
    isStarterDefault: Type.Boolean({ description: 'The plan of new users.' }),
    includedUnits: nullableMicros('Units in each period; null without such a limit.'),
    ...terms,
    overageRateWei: nullable({
      pattern: '^[0-9]+$',
      description: 'Price of each unit beyond the included ones.',
    }),
    billingCycle: oneOf(cycles, 'Length of a period.'),
    chargeThresholdUsd: nullable({
      description:
        'Dollars of usage after which a usage plan charges; null: it charges at the end of the period.',
    }),
    chargeThresholdUsdMicros: nullableMicros('The same in micros.'),
    ...syncFields,
    version: Type.Integer({
      description: 'A change of terms makes a new version; earlier purchases keep their terms.',
    }),
    createdAt: Instant('When it was created.'),
    updatedAt: Instant('When it last changed.'),
    capabilities: Type.Array(ref(PlanCapability)),
  }),
  'Plan',
)

const Sync = Type.Object({
  status: oneOf(
    ['not_applicable', 'pending', 'synced', 'error'],
    'not_applicable: free plans and Network Price are not synced; without OpenMeter no plan is.',
  ),
  syncedAt: nullable({ format: 'date-time', description: 'The last sync that succeeded.' }),
  openmeterPlanId: syncFields.openmeterPlanId,
  errorCode: nullable({ description: 'sync_failed, or null.' }),
  errorMessage: nullable({ description: 'As syncError.' }),
})

const Product = named(
  Type.Object({
    id: Type.String({ format: 'uuid' }),
    name: Type.String(),
    type: oneOf(
      types,
      'usage: users pay for their usage; subscription: users pay for each period.',
    ),
    status: oneOf(statuses, 'An inactive plan accepts no new users.'),
    ...terms,
    billingCycle: oneOf(cycles, 'Length of a period.'),
    ...syncFields,
    sync: Sync,
    allowance: Type.Object({
      includedUsdMicros: terms.includedUsdMicros,
      billingCycle: oneOf(cycles, 'Length of a period.'),
    }),
    defaultRetailRateUsd: Rate("Price of usage without a capability's own price."),
    capabilities: Type.Array(
      Type.Object({
        ...pipelineFields,
        effectiveRetailRateUsd: Rate(
          'The rate of the capability, else of its pipeline, else of the plan, else network price: 0.000001.',
        ),
        retailRateUsd: nullableRate('Its own price.'),
        featureKey: Type.String({
          description: 'The feature key of credit for this capability only.',
        }),
      }),
    ),
  }),
  'BillingProduct',
)
export const Products = named(
  Type.Object({ apiVersion: Type.Integer(), products: Type.Array(ref(Product)) }),
  'BillingProducts',
)

const amount = Type.Optional(
  nullable({ description: 'Dollars with at most 2 decimals, at most 1000000; 0 when absent.' }),
)
const CapabilityInput = Type.Object({
  ...pipelineFields,
  slaTargetScore: Type.Optional(ceilings.slaTargetScore),
  slaTargetP95Ms: Type.Optional(ceilings.slaTargetP95Ms),
  maxPricePerUnit: Type.Optional(ceilings.maxPricePerUnit),
  retailRateUsd: Type.Optional(nullableRate(retailRate)),
})
const changeable = {
  type: Type.Optional(oneOf(types, 'free when absent.')),
  priceAmount: amount,
  priceCurrency: Type.Optional(nullable({ description: 'Must be USD.' })),
  status: Type.Optional(oneOf(statuses, 'active when absent.')),
  includedUnits: Type.Optional(nullableMicros('A subscription plan needs it.')),
  includedUsdMicros: Type.Optional(terms.includedUsdMicros),
  overageRateWei: Type.Optional(
    nullable({ pattern: '^[0-9]+$', description: 'A subscription plan needs it.' }),
  ),
  overageRateUsd: Type.Optional(terms.overageRateUsd),
  billingCycle: Type.Optional(oneOf(cycles, 'monthly when absent.')),
  chargeThresholdUsd: Type.Optional(
    nullable({ description: 'For usage plans: dollars with at most 2 decimals, up to 1000000.' }),
  ),
  capabilities: Type.Optional(
    Type.Array(CapabilityInput, {
      maxItems: 200,
      description: 'Each must be in the catalogue. The list replaces all capabilities of the plan.',
    }),
  ),
}
const nameRule =
  '1 to 64 letters, digits, blanks and _ . - with a letter or digit at both ends; unique in the app whatever its case and blanks.'

export const CreateBody = Type.Object({
  name: Type.String({ minLength: 1, maxLength: 64, description: nameRule }),
  ...changeable,
})
export const UpdateBody = Type.Object({
  id: Type.String({ description: "The plan's id." }),
  name: Type.Optional(Type.String({ minLength: 1, maxLength: 64, description: nameRule })),
  ...changeable,
})
export const StarterBody = Type.Object({
  includedUsdMicros: Micros('Usage that the plan includes in each period, from 0.'),
})

const changeSyncError =
  'Why the metering backend lacks the present state of the plan; absent if it has it. The sync is repeated.'

export const CreatedPlan = named(
  Type.Object({
    id: Type.String({ format: 'uuid' }),
    syncError: Type.Optional(Type.String({ description: changeSyncError })),
  }),
  'CreatedPlan',
)
export const ChangedPlan = named(
  Type.Object({
    success: Type.Boolean(),
    id: Type.String({ format: 'uuid' }),
    syncError: Type.Optional(Type.String({ description: changeSyncError })),
    correlation_id: CorrelationId,
  }),
  'ChangedPlan',
)
export const SyncedPlan = named(
  Type.Object({
    success: Type.Boolean(),
    openmeterPlanId: nullable({
      description: "The metering backend's plan; null for a plan that is not synced.",
    }),
    syncedAt: Instant('When the plan was last synced to the metering backend.'),
    correlation_id: CorrelationId,
  }),
  'SyncedPlan',
)
export const StarterPlan = named(
  Type.Object({
    success: Type.Boolean(),
    plan: ref(Plan),
    includedUsdMicros: terms.includedUsdMicros,
    openmeterPlanId: syncFields.openmeterPlanId,
    syncError: syncFields.syncError,
  }),
  'StarterPlan',
)

export const PlanVersions = named(
  Type.Object({ versions: Type.Array(ref(Plan), { description: 'The newest first.' }) }),
  'PlanVersions',
)

export const planSchemas = [
  PlanCapability,
  Plan,
  Product,
  Products,
  CreatedPlan,
  ChangedPlan,
  SyncedPlan,
  StarterPlan,
  PlanVersions,
]
