import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { microsDown } from '../../lib/money.ts'
import type { BilledPlan, OwnerPeriod } from './store.ts'

export const lastMs = (end: Date): string => new Date(end.getTime() - 1).toISOString()

export const toPlan = (plan: BilledPlan): pb.BilledPlan => ({
  id: plan.id,
  type: plan.type,
  name: plan.name,
  priceAmount: plan.priceAmount,
  priceCurrency: plan.priceCurrency,
  includedUnits: plan.includedUnits?.toString(),
  includedUsdMicros: plan.included === null ? undefined : String(microsDown(plan.included)),
  overageRateWei: plan.overageRateWei?.toString(),
  billingCycle: plan.billingCycle,
  status: plan.status,
})

export const toSubscription = (period: OwnerPeriod): pb.BilledSubscription => ({
  id: period.subscriptionId,
  status: period.status,
  currentPeriodStart: period.start.toISOString(),
  currentPeriodEnd: lastMs(period.end),
})
