import { DomainError } from '../../../proto/errors.ts'
import {
  parseInteger,
  usdAttos,
  usdMicros,
  microsToAttos,
  parseDecimal18,
} from '../../lib/money.ts'
import { isReadable, unreadableKinds } from '../../lib/text/readable.ts'
import type { Capability } from '../catalog/profile.ts'
import { everyModel, parseRetailRate } from '../terms.ts'
import {
  type Plan,
  type PlanStatus,
  type PlanTerms,
  type PlanType,
  billingCycles,
  freeTerms,
  nameKey,
  planStatuses,
  planTypes,
  soldCurrency,
} from './plan.ts'

/**
 * Parses plan requests. Throws REQUEST_INVALID with the reason. Checks run in the order in which
 * faults are reported: name, flags, capabilities, and, after the catalogue check, terms.
 */

/** Members of a request; each may be any JSON value. */
export type Body = Readonly<Record<string, unknown>>

const invalid = (message: string): DomainError => new DomainError('REQUEST_INVALID', message)

/** Parses the JSON object of a message. */
export function parseBody(json: string): Body {
  const value = parsed(json)
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalid('the body must be a JSON object')
  return Object.fromEntries(Object.entries(value))
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch (error) {
    throw new DomainError('REQUEST_INVALID', 'invalid JSON', { cause: error })
  }
}

const nameMax = 64
const nameSyntax = /^[\p{L}\p{N}](?:[\p{L}\p{M}\p{N} _.-]*[\p{L}\p{M}\p{N}])?$/u

/** Names of plans that every app has, now or in older services. */
const reservedNames = ['Network Price', 'Network Discovery', 'Starter', 'Nothing included'].map(
  nameKey,
)

/** Parses the name of a plan. A reserved name is accepted if the plan already has it. */
export function parseName(value: unknown, { current }: { current: string | null }): string {
  if (value === undefined || value === null || value === '') throw invalid('name is required')
  const name = typeof value === 'string' ? value.trim() : ''
  if ([...name].length > nameMax || !nameSyntax.test(name))
    throw invalid(
      `name must have 1 to ${nameMax} letters, digits, blanks and _ . - and begin and end with a letter or digit`,
    )
  const key = nameKey(name)
  if (reservedNames.includes(key) && (current === null || nameKey(current) !== key))
    throw invalid(`the name ${name} is reserved`)
  return name
}

/** Only the service creates the default plans, so a request cannot set these flags. */
export function refuseFlags(body: Body): void {
  for (const flag of ['is_network_default', 'is_starter_default'])
    if (Object.hasOwn(body, flag)) throw invalid(`${flag} cannot be set`)
  for (const flag of ['isNetworkDefault', 'isStarterDefault'])
    if (Object.hasOwn(body, flag) && body[flag] !== false) throw invalid(`${flag} cannot be set`)
}

const capabilitiesMax = 200
const wordMax = 200

/** A capability with checked pipeline and model; its prices are not checked yet. */
export interface NamedCapability extends Capability {
  readonly field: string
  readonly body: Body
}

/** Returns null when the request has no capabilities. */
export function parseCapabilities(body: Body): NamedCapability[] | null {
  const { capabilities: list } = body
  if (list === undefined) return null
  if (!Array.isArray(list)) throw invalid('capabilities must be an array')
  if (list.length > capabilitiesMax)
    throw invalid(`capabilities may have at most ${capabilitiesMax} entries`)
  const named = list.map((value: unknown, index) => parseCapability(value, index))
  const pairs = new Set<string>()
  for (const { field, pipeline, modelId } of named) {
    const pair = JSON.stringify([pipeline, modelId])
    if (pairs.has(pair)) throw invalid(`${field} names ${pipeline} with ${modelId} twice`)
    pairs.add(pair)
  }
  return named
}

function parseCapability(value: unknown, index: number): NamedCapability {
  const field = `capabilities[${index}]`
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalid(`${field} must be an object`)
  const body: Body = Object.fromEntries(Object.entries(value))
  const pipeline = parseWord(body['pipeline'], `${field}.pipeline`)
  const modelId = parseWord(body['modelId'], `${field}.modelId`)
  if (pipeline === everyModel) throw invalid(`${field}.pipeline must name a pipeline`)
  return { field, body, pipeline, modelId }
}

function parseWord(value: unknown, field: string): string {
  if (value === undefined || value === null || value === '') throw invalid(`${field} is required`)
  if (typeof value === 'string' && value === value.trim() && value.length <= wordMax)
    if (isReadable(value)) return value
  throw invalid(
    `${field} must be 1 to ${wordMax} characters without blanks around them, and ${unreadableKinds}`,
  )
}

/**
 * Parses the terms, after the catalogue check of the capabilities. Absent members keep the values
 * of `current`.
 */
export function parseTerms(
  body: Body,
  { current, capabilities }: { current: Plan | null; capabilities: NamedCapability[] | null },
): Omit<PlanTerms, 'bundles'> & { bundles: BundleTerms[] } {
  const before: PlanTerms = current?.newest ?? freeTerms
  const type = parseWordOf(planTypes, body['type'], { field: 'type', current: before.type })
  const units = parseUnits(body, { type, before })
  const retailRate = parseRate(body['overageRateUsd'], {
    field: 'overageRateUsd',
    before: before.retailRate,
  })
  const bundles = capabilities?.map(parseBundle) ?? [...before.bundles]
  const billingCycle = parseWordOf(billingCycles, body['billingCycle'], {
    field: 'billingCycle',
    current: before.billingCycle,
  })
  const chargeThreshold = parseThreshold(body, { type, before })
  const included = parseIncluded(body['includedUsdMicros'], before.included)
  const price = parsePrice(body, before)
  return {
    type,
    ...units,
    retailRate,
    bundles,
    billingCycle,
    chargeThreshold,
    included,
    ...price,
  }
}

/** A bundle without its id. */
export type BundleTerms = Omit<PlanTerms['bundles'][number], 'id'>

function parseWordOf<T extends string>(
  known: readonly T[],
  value: unknown,
  { field, current }: { field: string; current: T },
): T {
  if (value === undefined) return current
  const word = known.find((one) => one === value)
  if (word === undefined) throw invalid(`${field} must be one of: ${known.join(', ')}`)
  return word
}

const unitsNeeded = 'includedUnits and overageRateWei are required for subscription plans'
const unitDigits = 36
const weiDigits = 36

/**
 * Parses included units and overage rate: null for free plans, required for subscriptions, optional
 * for usage plans.
 */
function parseUnits(body: Body, { type, before }: { type: PlanType; before: PlanTerms }) {
  if (type === 'free') return { includedUnits: null, overageRateWei: null }
  const includedUnits = parseWhole(body, { field: 'includedUnits', digits: unitDigits, before })
  const overageRateWei = parseWhole(body, { field: 'overageRateWei', digits: weiDigits, before })
  if (type === 'subscription' && (includedUnits === null || overageRateWei === null))
    throw invalid(unitsNeeded)
  return { includedUnits, overageRateWei }
}

function parseWhole(
  body: Body,
  {
    field,
    digits,
    before,
  }: { field: 'includedUnits' | 'overageRateWei'; digits: number; before: PlanTerms },
): bigint | null {
  const value = body[field]
  if (value === undefined) return before[field]
  if (value === null) return null
  if (typeof value === 'string' && /^(0|[1-9][0-9]*)$/.test(value) && value.length <= digits)
    return BigInt(value)
  throw invalid(`${field} must be a non-negative integer string of at most ${digits} digits`)
}

function parseRate(
  value: unknown,
  { field, before }: { field: string; before: bigint | null },
): bigint | null {
  if (value === undefined) return before
  if (value === null) return null
  const rate = typeof value === 'string' ? parseRetailRate(value) : null
  if (rate === null)
    throw invalid(
      `${field} must be a non-negative decimal USD amount for one USD-micro, such as "0.0000015", with at most 18 places and at most 1`,
    )
  return rate
}

const maxPriceDigits = 30
const p95Max = 3_600_000

function parseBundle({ field, body, pipeline, modelId }: NamedCapability): BundleTerms {
  return {
    pipeline,
    modelId,
    slaTargetScore: parseScore(body['slaTargetScore'], `${field}.slaTargetScore`),
    slaTargetP95Ms: parseMilliseconds(body['slaTargetP95Ms'], `${field}.slaTargetP95Ms`),
    maxPricePerUnit: parseMaxPrice(body['maxPricePerUnit'], `${field}.maxPricePerUnit`),
    retailRate: parseRate(body['retailRateUsd'], { field: `${field}.retailRateUsd`, before: null }),
  }
}

function parseScore(value: unknown, field: string): number | null {
  if (value === undefined || value === null) return null
  if (typeof value === 'number' && value >= 0 && value <= 1_000) return value
  throw invalid(`${field} must be a number from 0 to 1000`)
}

function parseMilliseconds(value: unknown, field: string): number | null {
  if (value === undefined || value === null) return null
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= p95Max)
    return value
  throw invalid(`${field} must be a whole number from 0 to ${p95Max}`)
}

function parseMaxPrice(value: unknown, field: string): bigint | null {
  if (value === undefined || value === null) return null
  const wei = typeof value === 'string' ? parseInteger(value) : null
  if (wei !== null && wei > 0n) return wei
  throw invalid(
    `${field} must be a positive integer string of wei, at most ${maxPriceDigits} digits`,
  )
}

const thresholdSyntax = /^(0|[1-9][0-9]*)(?:\.[0-9]{1,2})?$/
const dollarsMax = 1_000_000n * 10n ** 18n

function parseThreshold(body: Body, { type, before }: { type: PlanType; before: PlanTerms }) {
  const value = body['chargeThresholdUsd']
  if (value === undefined) return type === 'usage' ? before.chargeThreshold : null
  if (value === null || value === '') return null
  if (type !== 'usage')
    throw invalid('chargeThresholdUsd is only valid for Pay-Per-Use (type "usage") plans')
  const dollars = typeof value === 'string' ? parseDollars(value) : null
  if (dollars === null || dollars === 0n)
    throw invalid(
      'chargeThresholdUsd must be a decimal string of dollars above 0, at most 1000000, with at most 2 decimals',
    )
  return usdAttos(dollars)
}

function parseDollars(text: string): bigint | null {
  if (text.length > 16 || !thresholdSyntax.test(text)) return null
  const dollars = parseDecimal18(text)
  return dollars === null || dollars > dollarsMax ? null : dollars
}

const includedMax = 10n ** 15n

/** Parses the amount included in each period. */
export function parseIncluded(value: unknown, before: PlanTerms['included']) {
  if (value === undefined) return before
  if (value === null) return null
  const micros = typeof value === 'string' ? parseInteger(value) : null
  if (micros === null || micros > includedMax)
    throw invalid(
      `includedUsdMicros must be a non-negative integer string of at most ${includedMax}`,
    )
  return microsToAttos(usdMicros(micros))
}

function parsePrice(body: Body, before: PlanTerms) {
  const { priceAmount: amount, priceCurrency: currency } = body
  const isAmount = (text: unknown): text is string =>
    typeof text === 'string' && parseDollars(text) !== null
  if (amount !== undefined && amount !== null && !isAmount(amount))
    throw invalid(
      'priceAmount must be a non-negative decimal string, at most 1000000, with at most 2 decimals',
    )
  if (currency !== undefined && currency !== null && currency !== soldCurrency)
    throw invalid(`priceCurrency must be ${soldCurrency}`)
  return {
    priceAmount: amount === undefined ? before.priceAmount : (amount ?? freeTerms.priceAmount),
    priceCurrency: currency === undefined ? before.priceCurrency : soldCurrency,
  }
}

export const parseStatus = (value: unknown, current: PlanStatus): PlanStatus =>
  parseWordOf(planStatuses, value, { field: 'status', current })

const planMembers = [
  'id',
  'name',
  'type',
  'priceAmount',
  'priceCurrency',
  'status',
  'includedUnits',
  'includedUsdMicros',
  'overageRateWei',
  'overageRateUsd',
  'billingCycle',
  'chargeThresholdUsd',
  'capabilities',
]
// Members of a plan in responses, accepted so that a client can send a plan back with a change.
const readMembers = [
  'clientId',
  'isNetworkDefault',
  'isStarterDefault',
  'chargeThresholdUsdMicros',
  'version',
  'createdAt',
  'updatedAt',
  'openmeterPlanId',
  'lastSyncedAt',
  'syncError',
]
const capabilityMembers = [
  'id',
  'pipeline',
  'modelId',
  'slaTargetScore',
  'slaTargetP95Ms',
  'maxPricePerUnit',
  'retailRateUsd',
]

/**
 * Rejects unknown members: ignoring a mistyped one would sell something the owner did not intend.
 */
export function refuseUnknown(body: Body, capabilities: readonly NamedCapability[]): void {
  requireKnown(body, { known: planMembers, also: readMembers, at: '' })
  for (const { field, body: members } of capabilities)
    requireKnown(members, {
      known: capabilityMembers,
      also: ['effectiveRetailRateUsd'],
      at: `${field}.`,
    })
}

function requireKnown(
  body: Body,
  { known, also, at }: { known: readonly string[]; also: readonly string[]; at: string },
): void {
  const unknown = Object.keys(body).find((name) => !known.includes(name) && !also.includes(name))
  if (unknown !== undefined)
    throw invalid(`unknown field ${at}${unknown.slice(0, 64)}; known are: ${known.join(', ')}`)
}
