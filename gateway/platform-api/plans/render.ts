import { formatDecimal18 } from '../../../core/lib/money.ts'
import type { Plan as PlanMessage } from '../../../proto/gen/es/tollgate/plans/v1/plans_pb.ts'

const attosPerMicro = 1_000_000_000_000n
const dollarsOf = (micros: string): string => formatDecimal18(BigInt(micros) * attosPerMicro)

/** The form without `apiVersion`. */
export const toPlan = (plan: PlanMessage) => ({
  ...plan,
  chargeThresholdUsd:
    plan.chargeThresholdUsdMicros === undefined ? null : dollarsOf(plan.chargeThresholdUsdMicros),
})

const networkRateUsd = '0.000001'

/** The form with `apiVersion=2`. */
export const toProduct = (plan: PlanMessage) => ({
  ...plan,
  sync: {
    status: syncStatus(plan),
    syncedAt: plan.lastSyncedAt,
    openmeterPlanId: plan.openmeterPlanId,
    errorCode: plan.syncError === undefined ? null : 'sync_failed',
    errorMessage: plan.syncError,
  },
  allowance: plan,
  defaultRetailRateUsd: plan.overageRateUsd ?? networkRateUsd,
  capabilities: plan.capabilities.map((capability) => ({
    ...capability,
    featureKey:
      capability.modelId === '*'
        ? capability.pipeline
        : `${capability.pipeline}:${capability.modelId}`,
  })),
})

function syncStatus({ type, isNetworkDefault, syncTarget, ...state }: PlanMessage): string {
  if (syncTarget === undefined || type === 'free' || isNetworkDefault) return 'not_applicable'
  if (state.syncError !== undefined) return 'error'
  const isSynced = state.openmeterPlanId !== undefined && state.lastSyncedAt !== undefined
  return isSynced ? 'synced' : 'pending'
}
