import { readFile } from 'node:fs/promises'
import type { Plan } from '../../../../proto/gen/ts-proto/tollgate/plans/v1/plans.ts'
import {
  type Command,
  UsageError,
  changeCore,
  need,
  parse,
  parseOptions,
  runAction,
  withCore,
} from '../../command.ts'
import { dollars, percentOfRate, rateOfPercent, usd } from '../../money.ts'
import { printJson, printLines, properties, report, table } from '../../output.ts'

const termOptions = {
  name: { type: 'string' },
  type: { type: 'string' },
  'price-amount': { type: 'string' },
  'price-currency': { type: 'string' },
  status: { type: 'string' },
  'included-usd-micros': { type: 'string' },
  'included-units': { type: 'string' },
  'overage-rate-wei': { type: 'string' },
  'overage-rate-usd': { type: 'string' },
  'markup-percent': { type: 'string' },
  'billing-cycle': { type: 'string' },
  'charge-threshold-usd': { type: 'string' },
  capability: { type: 'string', multiple: true },
  file: { type: 'string' },
} as const

const common = { app: { type: 'string' } } as const
const termSyntax =
  '[--type free|subscription|usage] [--price-amount USD] [--price-currency USD] [--status active|inactive] ' +
  '[--included-usd-micros N] [--included-units N] [--overage-rate-wei N] ' +
  '[--overage-rate-usd DECIMAL | --markup-percent N] [--billing-cycle daily|weekly|monthly] ' +
  '[--charge-threshold-usd DECIMAL] [--capability PIPELINE[:MODEL][=RATE]]... [--file FILE] [--json]'

export const plan: Command = {
  summary: 'lists, shows, creates, changes, deletes and syncs the plans of an app',
  help: {
    usages: [
      {
        syntax: 'tollgate plan list [--app APP] [--json]',
        text: 'Prints the plans of an app: Starter, Network Price, and those that its owner sells.',
      },
      {
        syntax: 'tollgate plan show PLAN_ID [--app APP] [--json]',
        text: 'Prints one plan with its capabilities and their prices.',
      },
      {
        syntax: `tollgate plan create [--app APP] --name NAME ${termSyntax}`,
        text: 'Adds a plan to an app, with the rules of POST …/plans.',
      },
      {
        syntax: `tollgate plan update PLAN_ID [--app APP] [--name NAME] ${termSyntax}`,
        text: 'Changes the given values and keeps the others; "none" clears a value. A change of terms makes a new version. The Starter plan accepts only --included-usd-micros.',
      },
      {
        syntax: 'tollgate plan delete PLAN_ID [--app APP] [--json]',
        text: 'Deletes a plan without users.',
      },
      {
        syntax: 'tollgate plan sync PLAN_ID [--app APP] [--json]',
        text: 'Writes the plan to the metering backend. Changes are synced automatically, and failed syncs are repeated.',
      },
    ],
    options: [
      {
        title: 'Options',
        options: [
          [
            '--overage-rate-usd DECIMAL',
            'USD for one USD-micro of network cost: 0.0000015 is 50 % above network price.',
          ],
          [
            '--markup-percent N',
            'The same rate as a markup in percent: 50 is 50 % above network price, 0 is network price.',
          ],
          [
            '--capability PIPELINE[:MODEL][=RATE]',
            "A pipeline with every model, or one of its models, optionally with its own rate: a decimal as above, or a markup such as 50%. May be repeated; the list replaces the plan's capabilities.",
          ],
          [
            '--file FILE',
            'A JSON object with members of POST …/plans, for values without an option; options take precedence.',
          ],
        ],
      },
    ],
    examples: [
      './tollgate plan list --app app_0123456789abcdef01234567',
      './tollgate plan create --app app_0123456789abcdef01234567 --name Pro --type usage --markup-percent 20 --capability llm=100%',
    ],
  },
  run: runAction('plan', { list, show, create, update, delete: remove, sync }),
}

async function list(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, common)
  const { app: clientId } = await need('plan list', values, ['app'])
  const { plans } = await withCore(values, (core) => core.readPlans({ clientId }))
  const columns = ['id', 'name', 'type', 'status', 'price', 'markup', 'version']
  report(values, plans, () => table(columns, plans.map(rowOf), 'no plans'))
}

const rowOf = (one: Plan): string[] => [
  one.id,
  one.name,
  one.type,
  one.status,
  priceOf(one),
  markupOf(one.overageRateUsd),
  String(one.version),
]

/** The price in USD; an old plan may have another currency. */
const priceOf = ({ priceAmount, priceCurrency }: Plan): string =>
  `${dollars({ exact: priceAmount })} ${priceCurrency}`

/** Formats a price for one USD-micro of network cost as a markup; empty without a price. */
const markupOf = (rate: string | undefined): string => (rate && percentOfRate(rate)) ?? ''

async function show(argv: readonly string[]): Promise<void> {
  const { values, planId, clientId } = await onePlan('show', argv, common)
  const { plans } = await withCore(values, (core) => core.readPlans({ clientId }))
  const match = plans.find(({ id }) => id === planId)
  if (!match) throw new Error('the app has no plan with this id')
  print(match, values.json)
}

async function create(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, { ...common, ...termOptions })
  const { app: clientId } = await need('plan create', values, ['app'])
  const planJson = await jsonOf(values)
  const answer = await changeCore(values, (core) => core.addPlan({ clientId, planJson }))
  print(answer.plan, values.json)
}

async function update(argv: readonly string[]): Promise<void> {
  const { values, planId, clientId } = await onePlan('update', argv, { ...common, ...termOptions })
  const planJson = await jsonOf(values)
  const request = { clientId, planId, planJson }
  print((await changeCore(values, (core) => core.changePlan(request))).plan, values.json)
}

async function remove(argv: readonly string[]): Promise<void> {
  const { values, planId, clientId } = await onePlan('delete', argv, common)
  await changeCore(values, (core) => core.removePlan({ clientId, planId }))
  report(values, { planId, deleted: true }, () => [`plan ${planId} is deleted`])
}

async function sync(argv: readonly string[]): Promise<void> {
  const { values, planId, clientId } = await onePlan('sync', argv, common)
  const answer = await changeCore(values, (core) => core.resyncPlan({ clientId, planId }))
  if (values.json) return printJson(answer)
  const { openmeterPlanId = 'not needed, because it is free' } = answer
  printLines([`plan ${planId} is synced: ${openmeterPlanId}`])
}

async function onePlan<const T extends typeof common>(
  verb: string,
  argv: readonly string[],
  options: T,
) {
  const { values, positionals } = parse<T>(argv, options)
  const [planId, ...rest] = positionals
  if (planId === undefined || rest.length > 0)
    throw new UsageError(`plan ${verb} needs one PLAN_ID`)
  const { app: clientId } = await need(`plan ${verb}`, values, ['app'])
  return { values, planId, clientId }
}

type Values = Readonly<Record<string, string | boolean | string[] | undefined>>

const members = {
  name: 'name',
  type: 'type',
  'price-amount': 'priceAmount',
  'price-currency': 'priceCurrency',
  status: 'status',
  'included-usd-micros': 'includedUsdMicros',
  'included-units': 'includedUnits',
  'overage-rate-wei': 'overageRateWei',
  'overage-rate-usd': 'overageRateUsd',
  'billing-cycle': 'billingCycle',
  'charge-threshold-usd': 'chargeThresholdUsd',
} as const

/** Renders the given options as members of the API's request. */
async function jsonOf(values: Values): Promise<string> {
  const { file, capability, 'markup-percent': markup } = values
  if (markup !== undefined && values['overage-rate-usd'] !== undefined)
    throw new UsageError('a plan takes --overage-rate-usd or --markup-percent')
  const named = Object.entries(members).flatMap(([option, member]) => {
    const value = values[option]
    return value === undefined ? [] : [[member, value === 'none' ? null : value]]
  })
  const body = {
    ...(typeof file === 'string' ? await readBody(file) : {}),
    ...Object.fromEntries(named),
    ...(typeof markup === 'string'
      ? { overageRateUsd: rateOfPercent(markup, '--markup-percent') }
      : {}),
    ...(Array.isArray(capability) ? { capabilities: capability.map(capabilityOf) } : {}),
  }
  return JSON.stringify(body)
}

async function readBody(file: string): Promise<object> {
  const body: unknown = JSON.parse(await readFile(file, 'utf8'))
  if (typeof body === 'object' && body !== null && !Array.isArray(body)) return body
  throw new UsageError('--file must hold a JSON object')
}

function capabilityOf(text: string) {
  const equals = text.lastIndexOf('=')
  const name = equals < 0 ? text : text.slice(0, equals)
  const colon = name.indexOf(':')
  return {
    pipeline: colon < 0 ? name : name.slice(0, colon),
    modelId: colon < 0 ? '*' : name.slice(colon + 1),
    ...(equals < 0 ? {} : { retailRateUsd: rateOf(text.slice(equals + 1)) }),
  }
}

/** Parses a rate, or a markup such as "50%". */
const rateOf = (text: string): string =>
  text.endsWith('%') ? rateOfPercent(text.slice(0, -1), '--capability') : text

function print(one: Plan | undefined, json: boolean | undefined): void {
  report({ json }, one, () => (one ? linesOf(one) : []))
}

function linesOf(one: Plan): string[] {
  const withMarkup = (rate: string | undefined): string | undefined =>
    rate === undefined ? undefined : `${rate} USD for a USD-micro (${markupOf(rate)})`
  return properties([
    ['id', one.id],
    ['name', one.name],
    ['type', one.type],
    ['status', one.status],
    ['price', `${priceOf(one)} ${one.billingCycle}`],
    ['included', one.includedUsdMicros && usd({ micros: one.includedUsdMicros })],
    ['included units', one.includedUnits],
    ['overage rate, wei', one.overageRateWei],
    ['overage rate', withMarkup(one.overageRateUsd)],
    ['charges at', one.chargeThresholdUsdMicros && usd({ micros: one.chargeThresholdUsdMicros })],
    ['version', String(one.version)],
    ['metering backend', one.openmeterPlanId],
    ['last synced', one.lastSyncedAt],
    ['sync error', one.syncError],
    ...one.capabilities.map((each): [string, string | undefined] => [
      `  ${each.pipeline}${each.modelId === '*' ? '' : `:${each.modelId}`}`,
      withMarkup(each.effectiveRetailRateUsd),
    ]),
  ])
}
