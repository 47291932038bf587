import type { Plan } from '../../../../proto/gen/ts-proto/tollgate/plans/v1/plans.ts'
import { action, createCommand } from '../../command.ts'
import { readJsonFile } from '../../read-file.ts'
import { dollars, percentOfRate, rateOfPercent, usd } from '../../money.ts'
import {
  type Option,
  type Values,
  app,
  argument,
  list as repeated,
  parsed,
  required,
  text,
} from '../../options.ts'
import { properties, table } from '../../output.ts'
import { nameOffer, parseOffer } from './catalog.ts'

const capabilities: Option<object[]> = {
  ...repeated('PIPELINE[:MODEL][=RATE]', {
    flag: 'capability',
    meaning:
      "A pipeline with every model, or one of its models, optionally with its own rate: a decimal as above, or a markup such as 50%. May be repeated; the list replaces the plan's capabilities.",
  }),
  convert: (texts, name) => texts.map((each) => parseCapability(each, name)),
}

function parseCapability(word: string, name: string): object {
  const equals = word.lastIndexOf('=')
  if (equals < 0) return parseOffer(word)
  const rate = word.slice(equals + 1)
  const retailRateUsd = rate.endsWith('%') ? rateOfPercent(rate.slice(0, -1), name) : rate
  return { ...parseOffer(word.slice(0, equals)), retailRateUsd }
}

/** The members of POST …/plans that have an option of their own. */
const members = {
  type: text('free|subscription|usage'),
  priceAmount: text('USD'),
  priceCurrency: text('USD'),
  status: text('active|inactive'),
  includedUsdMicros: text('N'),
  includedUnits: text('N'),
  overageRateWei: text('N'),
  overageRateUsd: text('DECIMAL', {
    meaning: 'USD for one USD-micro of network cost: 0.0000015 is 50 % above network price.',
  }),
  billingCycle: text('daily|weekly|monthly'),
  chargeThresholdUsd: text('DECIMAL'),
}

const terms = {
  ...members,
  markup: parsed(
    text('N', {
      flag: 'markup-percent',
      meaning:
        'The same rate as a markup in percent: 50 is 50 % above network price, 0 is network price.',
    }),
    rateOfPercent,
  ),
  capabilities,
  file: text('FILE', {
    meaning:
      'A JSON object with members of POST …/plans, for values without an option; options take precedence.',
  }),
}
const atMostOne = [['overageRateUsd', 'markup']] as const

/** Renders the given options as members of the API's request. */
async function renderPlan({ file, markup, capabilities, ...values }: Values<typeof terms>) {
  const named = Object.entries({
    ...values,
    overageRateUsd: markup ?? values.overageRateUsd,
  }).filter(
    ([key, value]) => value !== undefined && (key === 'name' || Object.hasOwn(members, key)),
  )
  return JSON.stringify({
    ...(file === undefined ? {} : await readJsonFile(file)),
    ...Object.fromEntries(named.map(([key, value]) => [key, value === 'none' ? null : value])),
    ...(capabilities.length > 0 ? { capabilities } : {}),
  })
}

/** Formats a price for one USD-micro of network cost as a markup; empty without a price. */
const markupOf = (rate: string | undefined): string => (rate && percentOfRate(rate)) ?? ''

/** The price in USD; an old plan may have another currency. */
const priceOf = ({ priceAmount, priceCurrency }: Plan): string =>
  `${dollars({ exact: priceAmount })} ${priceCurrency}`

const withMarkup = (rate: string | undefined): string | undefined =>
  rate === undefined ? undefined : `${rate} USD for a USD-micro (${markupOf(rate)})`

const linesOf = (plan: Plan | undefined): string[] =>
  plan === undefined
    ? []
    : properties([
        ['id', plan.id],
        ['name', plan.name],
        ['type', plan.type],
        ['status', plan.status],
        ['price', `${priceOf(plan)} ${plan.billingCycle}`],
        ['included', plan.includedUsdMicros && usd({ micros: plan.includedUsdMicros })],
        ['included units', plan.includedUnits],
        ['overage rate, wei', plan.overageRateWei],
        ['overage rate', withMarkup(plan.overageRateUsd)],
        [
          'charges at',
          plan.chargeThresholdUsdMicros && usd({ micros: plan.chargeThresholdUsdMicros }),
        ],
        ['version', plan.version],
        ['metering backend', plan.openmeterPlanId],
        ['last synced', plan.lastSyncedAt],
        ['sync error', plan.syncError],
        ...plan.capabilities.map(
          (each) => [`  ${nameOffer(each)}`, withMarkup(each.effectiveRetailRateUsd)] as const,
        ),
      ])

const subject = { planId: argument('PLAN_ID'), clientId: app }

const list = action({
  text: 'Prints the plans of an app: Starter, Network Price, and those that its owner sells.',
  options: { clientId: app },
  read: async (core, request) => (await core.plans.listPlans(request)).plans,
  lines: (plans) =>
    table(
      plans,
      [
        'id',
        'name',
        'type',
        'status',
        ['price', priceOf],
        ['markup', ({ overageRateUsd }) => markupOf(overageRateUsd)],
        'version',
      ],
      'no plans',
    ),
})

const show = action({
  text: 'Prints one plan with its capabilities and their prices.',
  options: subject,
  read: async (core, { planId, clientId }) => {
    const { plans } = await core.plans.listPlans({ clientId })
    const match = plans.find(({ id }) => id === planId)
    if (!match) throw new Error('the app has no plan with this id')
    return match
  },
  lines: linesOf,
})

const create = action({
  text: 'Adds a plan to an app, with the rules of POST …/plans.',
  options: { clientId: app, name: required('NAME'), ...terms },
  atMostOne,
  change: async (core, { clientId, ...plan }) =>
    (await core.plans.createPlan({ clientId, planJson: await renderPlan(plan) })).plan,
  lines: linesOf,
})

const update = action({
  text: 'Changes the given values and keeps the others; "none" clears a value. A change of terms makes a new version. The Starter plan accepts only --included-usd-micros.',
  options: { ...subject, name: text('NAME'), ...terms },
  atMostOne,
  change: async (core, { planId, clientId, ...plan }) =>
    (await core.plans.updatePlan({ clientId, planId, planJson: await renderPlan(plan) })).plan,
  lines: linesOf,
})

const remove = action({
  text: 'Deletes a plan without users.',
  options: subject,
  change: async (core, { planId, clientId }) => {
    await core.plans.deletePlan({ clientId, planId })
    return { planId, deleted: true }
  },
  lines: ({ planId }) => [`plan ${planId} is deleted`],
})

const sync = action({
  text: 'Writes the plan to the metering backend. Changes are synced automatically, and failed syncs are repeated.',
  options: subject,
  change: (core, request) => core.plans.syncPlan(request),
  lines: ({ openmeterPlanId = 'not needed, because it is free' }, { planId }) => [
    `plan ${planId} is synced: ${openmeterPlanId}`,
  ],
})

export const plan = createCommand('plan', {
  summary: 'lists, shows, creates, changes, deletes and syncs the plans of an app',
  examples: [
    './tollgate plan list --app app_0123456789abcdef01234567',
    './tollgate plan create --app app_0123456789abcdef01234567 --name Pro --type usage --markup-percent 20 --capability llm=100%',
  ],
  actions: { list, show, create, update, delete: remove, sync },
})
