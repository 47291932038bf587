import type { Plan, PlanTerms } from '../api/plan-terms.ts'
import { parseDollars, toDollarText } from '../ui/amounts.ts'
import { percentOfRate, rateOfPercent } from '../ui/rates.ts'

/** What a person has typed, before it is known to be a plan. */
export interface Draft {
  readonly name: string
  readonly type: Plan['type']
  readonly status: Plan['status']
  readonly billingCycle: Plan['billingCycle']
  /** Dollars for a period. */
  readonly price: string
  /** Dollars of usage in each period; empty without any. */
  readonly included: string
  readonly includedUnits: string
  /** Per cent of the network price; empty is 100. */
  readonly percent: string
  readonly overageWei: string
  /** Dollars; empty charges at the end of the period. */
  readonly threshold: string
  readonly models: readonly ModelPrice[]
}

/** The price of a pipeline and model of its own. */
export interface ModelPrice {
  readonly key: string
  readonly pipeline: string
  readonly modelId: string
  readonly percent: string
  /** Bounds that the form does not show. It sends them back as they are. */
  readonly bounds: ModelBounds
}

type ModelBounds = Pick<
  PlanTerms['capabilities'][number],
  'slaTargetScore' | 'slaTargetP95Ms' | 'maxPricePerUnit'
>

export const noBounds: ModelBounds = {
  slaTargetScore: null,
  slaTargetP95Ms: null,
  maxPricePerUnit: null,
}

export const emptyDraft: Draft = {
  name: '',
  type: 'usage',
  status: 'active',
  billingCycle: 'monthly',
  price: '0',
  included: '',
  includedUnits: '',
  percent: '',
  overageWei: '',
  threshold: '',
  models: [],
}

/** Returns a plan as the form shows it. */
export const toDraft = (plan: Plan): Draft => ({
  name: plan.name,
  type: plan.type,
  status: plan.status,
  billingCycle: plan.billingCycle,
  price: plan.priceAmount,
  included: plan.includedUsdMicros === null ? '' : toDollarText(plan.includedUsdMicros),
  includedUnits: plan.includedUnits ?? '',
  percent: plan.overageRateUsd === null ? '' : percentOfRate(plan.overageRateUsd),
  overageWei: plan.overageRateWei ?? '',
  threshold: plan.chargeThresholdUsd ?? '',
  models: plan.capabilities.map(({ id, pipeline, modelId, retailRateUsd, ...capability }) => ({
    key: id,
    pipeline,
    modelId,
    percent: retailRateUsd === null ? '' : percentOfRate(retailRateUsd),
    bounds: {
      slaTargetScore: capability.slaTargetScore,
      slaTargetP95Ms: capability.slaTargetP95Ms,
      maxPricePerUnit: capability.maxPricePerUnit,
    },
  })),
})

export type Checked =
  | { readonly terms: PlanTerms; readonly problem: undefined }
  | { readonly terms: undefined; readonly problem: string }

const refused = (problem: string): Checked => ({ terms: undefined, problem })

/** Returns the terms of a draft, or the first thing to correct. The service checks all of them. */
export function check(draft: Draft): Checked {
  const included = draft.included.trim() === '' ? null : parseDollars(draft.included, 0n)
  if (included === null && draft.included.trim() !== '')
    return refused('Included usage must be dollars with at most 6 decimals, such as 5 or 0.50.')
  const rate = rateOf(draft.percent)
  if (rate === undefined) return refused('The price must be per cent of the network price.')
  const capabilities: PlanTerms['capabilities'] = []
  for (const { pipeline, modelId, percent, bounds } of draft.models) {
    const own = rateOf(percent)
    if (own === undefined)
      return refused(`The price of ${pipeline} must be per cent of the network price.`)
    capabilities.push({
      ...bounds,
      pipeline: pipeline.trim(),
      modelId: modelId.trim(),
      retailRateUsd: own,
    })
  }
  const isSubscription = draft.type === 'subscription'
  const terms: PlanTerms = {
    name: draft.name.trim(),
    type: draft.type,
    status: draft.status,
    billingCycle: draft.billingCycle,
    priceAmount: draft.type === 'free' ? '0' : draft.price.trim(),
    includedUsdMicros: included,
    includedUnits: isSubscription ? textOrNull(draft.includedUnits) : null,
    overageRateWei: isSubscription ? textOrNull(draft.overageWei) : null,
    overageRateUsd: rate,
    chargeThresholdUsd: draft.type === 'usage' ? textOrNull(draft.threshold) : null,
    capabilities,
  }
  return { terms, problem: undefined }
}

const textOrNull = (text: string): string | null => (text.trim() === '' ? null : text.trim())

/** Null is the network price, undefined is no number. */
function rateOf(percent: string): string | null | undefined {
  if (percent.trim() === '') return null
  return rateOfPercent(percent) ?? undefined
}
