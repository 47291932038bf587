import { formatDecimal18 } from '../../../core/lib/money.ts'
import type {
  PlanCapability as CapabilityMessage,
  Plan as PlanMessage,
} from '../../../proto/gen/es/tollgate/plans/v1/plans_pb.ts'

/** Renders core's plans for both forms of the list. */

const types = ['free', 'subscription', 'usage'] as const
const statuses = ['active', 'inactive'] as const
const cycles = ['daily', 'weekly', 'monthly'] as const

function wordOf<T extends string>(known: readonly T[], text: string): T {
  const word = known.find((one) => one === text)
  if (word === undefined) throw new Error(`core returned the unknown value ${text}`)
  return word
}

const toSyncFields = ({ openmeterPlanId, lastSyncedAt, syncError }: PlanMessage) => ({
  openmeterPlanId: openmeterPlanId ?? null,
  lastSyncedAt: lastSyncedAt ?? null,
  syncError: syncError ?? null,
})

const attosPerMicro = 1_000_000_000_000n
const dollarsOf = (micros: string): string => formatDecimal18(BigInt(micros) * attosPerMicro)

/** The form without `apiVersion`. */
export const toPlan = (plan: PlanMessage) => ({
  id: plan.id,
  clientId: plan.clientId,
  name: plan.name,
  type: wordOf(types, plan.type),
  priceAmount: plan.priceAmount,
  priceCurrency: plan.priceCurrency,
  status: wordOf(statuses, plan.status),
  isNetworkDefault: plan.isNetworkDefault,
  isStarterDefault: plan.isStarterDefault,
  includedUnits: plan.includedUnits ?? null,
  includedUsdMicros: plan.includedUsdMicros ?? null,
  overageRateWei: plan.overageRateWei ?? null,
  overageRateUsd: plan.overageRateUsd ?? null,
  billingCycle: wordOf(cycles, plan.billingCycle),
  chargeThresholdUsd:
    plan.chargeThresholdUsdMicros === undefined ? null : dollarsOf(plan.chargeThresholdUsdMicros),
  chargeThresholdUsdMicros: plan.chargeThresholdUsdMicros ?? null,
  ...toSyncFields(plan),
  version: plan.version,
  createdAt: plan.createdAt,
  updatedAt: plan.updatedAt,
  capabilities: plan.capabilities.map(toCapability),
})

const toCapability = (capability: CapabilityMessage) => ({
  id: capability.id,
  pipeline: capability.pipeline,
  modelId: capability.modelId,
  slaTargetScore: capability.slaTargetScore ?? null,
  slaTargetP95Ms: capability.slaTargetP95Ms ?? null,
  maxPricePerUnit: capability.maxPricePerUnit ?? null,
  retailRateUsd: capability.retailRateUsd ?? null,
})

const networkRateUsd = '0.000001'

/** The form with `apiVersion=2`. */
export function toProduct(message: PlanMessage) {
  const { id, name, type, status, includedUsdMicros, overageRateUsd, billingCycle } =
    toPlan(message)
  const fields = toSyncFields(message)
  return {
    id,
    name,
    type,
    status,
    includedUsdMicros,
    overageRateUsd,
    billingCycle,
    ...fields,
    sync: {
      status: syncStatus(message),
      syncedAt: fields.lastSyncedAt,
      openmeterPlanId: fields.openmeterPlanId,
      errorCode: fields.syncError === null ? null : 'sync_failed',
      errorMessage: fields.syncError,
    },
    allowance: { includedUsdMicros, billingCycle },
    defaultRetailRateUsd: overageRateUsd ?? networkRateUsd,
    capabilities: message.capabilities.map((capability) => ({
      pipeline: capability.pipeline,
      modelId: capability.modelId,
      effectiveRetailRateUsd: capability.effectiveRetailRateUsd,
      retailRateUsd: capability.retailRateUsd ?? null,
      featureKey:
        capability.modelId === '*'
          ? capability.pipeline
          : `${capability.pipeline}:${capability.modelId}`,
    })),
  }
}

function syncStatus({ type, isNetworkDefault, syncTarget, ...state }: PlanMessage) {
  if (syncTarget === undefined || type === 'free' || isNetworkDefault)
    return 'not_applicable' as const
  if (state.syncError !== undefined) return 'error' as const
  const isSynced = state.openmeterPlanId !== undefined && state.lastSyncedAt !== undefined
  return isSynced ? ('synced' as const) : ('pending' as const)
}
