import { parseDecimal18 } from '../lib/money.ts'

/**
 * Retail prices of a plan version. Retail rates are USD per USD-micro of network cost, as in the
 * API ("0.0000015"). The rate of a rule is the ratio of retail to network price, scaled by 10^18,
 * so that both are exact.
 */

/**
 * The rule that decided: the model's bundle, its pipeline's bundle, the plan's rate, or network
 * price.
 */
export type PriceRule = 'bundle' | 'pipeline' | 'plan' | 'pass_through'

export interface RetailRule {
  /** Ratio to the network's price, scaled by 10^18; 10^18 is network price. */
  readonly rate: bigint
  readonly rule: PriceRule
  readonly bundleId: string | null
}

/** Rules of one version, prepared for a lookup per ticket. */
export interface RetailRules {
  readonly pipelines: ReadonlyMap<string, PipelineRules>
  /** For pipelines that no bundle names. */
  readonly other: RetailRule
}

interface PipelineRules {
  readonly models: ReadonlyMap<string, RetailRule>
  /** For models that no bundle names. */
  readonly other: RetailRule
}

export interface RetailTerms {
  /** Id of the version, as stored with a ticket. */
  readonly termsId: bigint
  readonly planId: string
  readonly version: number
  readonly rules: RetailRules
}

/** A bundle with its price: USD per USD-micro, scaled by 10^18; null without a price of its own. */
export interface PricedBundle {
  readonly id: string
  readonly pipeline: string
  /** `*` means every model. */
  readonly modelId: string
  readonly retailRate: bigint | null
}

export const everyModel = '*'

const microsPerUsd = 1_000_000n
/** The ratio that sells at network price. */
export const networkRate = 10n ** 18n
const passThrough: RetailRule = { rate: networkRate, rule: 'pass_through', bundleId: null }

/** Builds the rules of a version from its rates. Ignores bundles without a rate. */
export function retailRules({
  retailRate,
  bundles,
}: {
  readonly retailRate: bigint | null
  readonly bundles: readonly PricedBundle[]
}): RetailRules {
  const other: RetailRule =
    retailRate === null ? passThrough : { rate: ratioOf(retailRate), rule: 'plan', bundleId: null }
  const groups = Map.groupBy(bundles.filter(isPriced), ({ pipeline }) => pipeline)
  return {
    other,
    pipelines: new Map(
      [...groups].map(([pipeline, priced]) => [pipeline, pipelineRules(priced, other)]),
    ),
  }
}

type Priced = PricedBundle & { readonly retailRate: bigint }
const isPriced = (bundle: PricedBundle): bundle is Priced => bundle.retailRate !== null

function pipelineRules(bundles: readonly Priced[], other: RetailRule): PipelineRules {
  const rules = bundles.map(({ id, modelId, retailRate }): [string, RetailRule] => {
    const rule = modelId === everyModel ? 'pipeline' : 'bundle'
    return [modelId, { rate: ratioOf(retailRate), rule, bundleId: id }]
  })
  const models = new Map(rules)
  const wildcard = models.get(everyModel)
  models.delete(everyModel)
  return { models, other: wildcard ?? other }
}

const ratioOf = (retailRate: bigint): bigint => retailRate * microsPerUsd

/**
 * Returns the rule for a ticket: the bundle of its pipeline and model, else of its pipeline, else
 * the plan's rate, else network price. Zero is a valid rate. Allocates nothing, because ingest
 * calls it for each ticket.
 */
export function toRetailRate(
  { rules }: Pick<RetailTerms, 'rules'>,
  { pipeline, modelId }: { readonly pipeline: string; readonly modelId: string },
): RetailRule {
  const named = rules.pipelines.get(pipeline)
  return named === undefined ? rules.other : (named.models.get(modelId) ?? named.other)
}

/** Returns the highest rate of a version for any feature. */
export function highestRate({ rules }: Pick<RetailTerms, 'rules'>): bigint {
  let highest = rules.other.rate
  for (const { models, other } of rules.pipelines.values())
    for (const { rate } of [other, ...models.values()]) if (rate > highest) highest = rate
  return highest
}

const decimalMax = 64
/** The highest rate: a million times the network's price. */
const rateMax = 10n ** 18n

/**
 * Parses a retail rate of the API, scaled by 10^18. Accepts trailing zeros. Returns null for text
 * that is not a plain non-negative decimal, for more than 18 places, and for more than 1, a million
 * times the network's price.
 */
export function parseRetailRate(text: string): bigint | null {
  if (text.length > decimalMax) return null
  const match = /^([0-9]+)(?:\.([0-9]+))?$/.exec(text)
  if (!match) return null
  const fraction = (match[2] ?? '').replace(/0+$/, '')
  const rate = parseDecimal18(fraction === '' ? (match[1] ?? '') : `${match[1]}.${fraction}`)
  return rate === null || rate > rateMax ? null : rate
}
