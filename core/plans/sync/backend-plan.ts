import { createHash } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { formatDecimal18, microsDown } from '../../lib/money.ts'
import type { BillingCycle } from '../../lib/time.ts'
import type { BackendPlan, UsageFeature } from '../../metering/backend/plans.ts'
import { networkSpend } from '../catalog/features.ts'
import type { Bundle, Plan } from '../offers/plan.ts'
import { everyModel, toRetailRate, retailRules } from '../terms.ts'

const cadences: Readonly<Record<BillingCycle, BackendPlan['cadence']>> = {
  daily: 'P1D',
  weekly: 'P1W',
  monthly: 'P1M',
}

/**
 * Converts a plan for the metering backend. Splits its usage into parts that do not overlap and
 * cover everything, each with the rate used by rating and the included amount. Throws
 * PLAN_UNSYNCABLE for terms that the backend does not support.
 */
export function toBackendPlan(plan: Plan, clientId: string): BackendPlan {
  const { newest } = plan
  const rules = retailRules(newest)
  // At most 10^15, which a float holds exactly.
  const included = Number(newest.included === null ? 0n : microsDown(newest.included))
  if (newest.priceCurrency !== 'USD')
    throw unsyncable(`its price is in ${newest.priceCurrency}, and usage is priced in USD`)
  return {
    key: toBackendKey(plan, clientId),
    name: plan.name,
    currency: newest.priceCurrency,
    cadence: cadences[newest.billingCycle],
    flatFee: /[1-9]/.test(newest.priceAmount) ? newest.priceAmount : null,
    usage: partsOf(newest.bundles).map(({ feature, model }) => ({
      feature,
      unitPrice: formatDecimal18(toRetailRate({ rules }, model).rate / microsPerUsd),
      included,
    })),
  }
}

const microsPerUsd = 1_000_000n

const keySyntax = /^[a-z0-9]+(?:_[a-z0-9]+)*$/
const keyMax = 64

/** Key of a plan in the backend: derived from app and plan, in the backend's syntax. */
export function toBackendKey({ appId, id }: Pick<Plan, 'appId' | 'id'>, clientId: string): string {
  const key = `${clientId}_${id.replaceAll('-', '')}`
  return key.length <= keyMax && keySyntax.test(key) ? key : `plan_${digestOf([appId, id])}`
}

/** A part of the usage, and a pipeline and model in it. */
interface Part {
  readonly feature: UsageFeature
  readonly model: { readonly pipeline: string; readonly modelId: string }
}

/** Each bundle, the other models of its pipeline, and the other pipelines. */
function partsOf(bundles: readonly Bundle[]): Part[] {
  if (bundles.length === 0) return [{ feature: allSpend, model: { pipeline: '', modelId: '' } }]
  const pipelines = [...Map.groupBy(bundles, ({ pipeline }) => pipeline)]
  const named = pipelines.flatMap(([pipeline, group]) => {
    const models = group.map(({ modelId }) => modelId).filter((modelId) => modelId !== everyModel)
    return [
      ...models.map((modelId) => modelPart(pipeline, modelId)),
      pipelinePart(pipeline, models),
    ]
  })
  return [...named, otherPipelines(pipelines.map(([pipeline]) => pipeline))]
}

const allSpend: UsageFeature = { key: networkSpend, name: 'Network spend', filters: null }

const modelPart = (pipeline: string, modelId: string): Part => ({
  model: { pipeline, modelId },
  feature: featureOf(`${pipeline} ${modelId}`, {
    pipeline: { only: pipeline },
    model_id: { only: modelId },
  }),
})

const pipelinePart = (pipeline: string, models: readonly string[]): Part => ({
  model: { pipeline, modelId: everyModel },
  feature:
    models.length === 0
      ? featureOf(pipeline, { pipeline: { only: pipeline } })
      : featureOf(`${pipeline}, other models`, {
          pipeline: { only: pipeline },
          model_id: { except: models.toSorted() },
        }),
})

const otherPipelines = (pipelines: readonly string[]): Part => ({
  model: { pipeline: '', modelId: '' },
  feature: featureOf('Other pipelines', { pipeline: { except: pipelines.toSorted() } }),
})

/** Features never change in the backend, so the key is derived from the filters. */
const featureOf = (name: string, filters: NonNullable<UsageFeature['filters']>): UsageFeature => ({
  key: `usage_${digestOf(filters)}`,
  name,
  filters,
})

const digestOf = (value: unknown): string =>
  createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 40)

const unsyncable = (why: string): DomainError =>
  new DomainError('PLAN_UNSYNCABLE', `the plan cannot be synced: ${why}`)
