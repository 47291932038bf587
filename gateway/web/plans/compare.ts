import type { Plan } from '../api/plan-terms.ts'
import { formatDollars, formatExactMicros } from '../ui/amounts.ts'
import { percentOfRate } from '../ui/rates.ts'

/** One term of a plan in two versions. */
export interface ComparedTerm {
  readonly name: string
  readonly before: string
  readonly after: string
  readonly isChanged: boolean
}

/** Compares all terms of two versions, also the prices of models that only one of them names. */
export function compareVersions(left: Plan, right: Plan): ComparedTerm[] {
  const [before, after] = [readTerms(left), readTerms(right)]
  const names = [...new Set([...before.keys(), ...after.keys()])]
  return names.map((name) => {
    const [was, is] = [before.get(name) ?? notNamed, after.get(name) ?? notNamed]
    return { name, before: was, after: is, isChanged: was !== is }
  })
}

const notNamed = 'not named'

const percent = (rate: string | null, otherwise: string): string =>
  rate === null ? otherwise : `${percentOfRate(rate)} % of the network price`

function readTerms(plan: Plan): Map<string, string> {
  const { includedUsdMicros, chargeThresholdUsd } = plan
  return new Map([
    ['Kind', plan.type],
    ['Price of a period', `${formatDollars(plan.priceAmount)} ${plan.priceCurrency}`],
    ['Period', plan.billingCycle],
    ['Included usage', includedUsdMicros === null ? 'none' : formatExactMicros(includedUsdMicros)],
    ['Included units', plan.includedUnits ?? 'none'],
    ['Wei for each further unit', plan.overageRateWei ?? 'none'],
    ['Usage costs', percent(plan.overageRateUsd, 'the network price')],
    [
      'Charged before the end at',
      chargeThresholdUsd === null ? 'no amount' : formatDollars(chargeThresholdUsd),
    ],
    ...plan.capabilities.map((model): [string, string] => [
      `${model.pipeline}, ${model.modelId}`,
      describeModel(model),
    ]),
  ])
}

function describeModel(model: Plan['capabilities'][number]): string {
  const { retailRateUsd, maxPricePerUnit, slaTargetScore, slaTargetP95Ms } = model
  return [
    percent(retailRateUsd, 'as its pipeline, else the plan'),
    maxPricePerUnit !== null && `at most ${maxPricePerUnit} wei for a unit`,
    slaTargetScore !== null && `score ${slaTargetScore}`,
    slaTargetP95Ms !== null && `${slaTargetP95Ms} ms`,
  ]
    .filter((part) => part !== false)
    .join(', ')
}
