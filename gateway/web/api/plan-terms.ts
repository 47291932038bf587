import type { components } from './schema.d.ts'

export type Plan = components['schemas']['Plan']

/** A plan as the form sends it. */
export interface PlanTerms {
  readonly name: string
  readonly type: Plan['type']
  readonly priceAmount: string
  readonly status: Plan['status']
  readonly includedUnits: string | null
  readonly includedUsdMicros: string | null
  readonly overageRateWei: string | null
  readonly overageRateUsd: string | null
  readonly billingCycle: Plan['billingCycle']
  readonly chargeThresholdUsd: string | null
  readonly capabilities: {
    readonly pipeline: string
    readonly modelId: string
    readonly retailRateUsd: string | null
    readonly slaTargetScore: number | null
    readonly slaTargetP95Ms: number | null
    readonly maxPricePerUnit: string | null
  }[]
}
