import { DomainError } from '../../../proto/errors.ts'
import { isReadable, unreadableKinds } from '../../lib/text/readable.ts'
import { parseReadable } from '../../shared/text.ts'

/**
 * Manifests and discovery profiles, and their parsers, which throw REQUEST_INVALID with the reason.
 */

/** A model of a pipeline; `*` means every model. */
export interface Capability {
  readonly pipeline: string
  readonly modelId: string
}

const sortOrders = ['latency', 'price', 'swapRate', 'avail'] as const

/** How orchestrators are chosen: the best `topN` by `sortBy` among those that pass the filters. */
export interface Policy {
  readonly topN?: number
  readonly sortBy?: (typeof sortOrders)[number]
  readonly filters?: Readonly<Record<string, number>>
}

export interface ProfileCapability extends Capability {
  readonly discoveryPolicy: Policy | null
}

export interface Profile {
  readonly id: string
  readonly name: string
  readonly policy: Policy
  readonly capabilities: readonly ProfileCapability[]
  readonly createdAt: Date
  readonly updatedAt: Date
}

/** Capabilities that an app does not offer. An empty list means no restriction. */
export interface Manifest {
  readonly excluded: readonly Capability[]
  readonly version: string
}

const capabilitiesMax = 1_000
const wordMax = 200
const policyMax = 4_000

const invalid = (message: string): DomainError => new DomainError('REQUEST_INVALID', message)

/** Checks the capabilities, rejects duplicates, and returns them sorted. */
export function parseCapabilities<T extends Capability>(values: readonly T[], field: string): T[] {
  if (values.length > capabilitiesMax)
    throw invalid(`${field} may have at most ${capabilitiesMax} entries`)
  const seen = new Set<string>()
  for (const { pipeline, modelId } of values) {
    for (const word of [pipeline, modelId]) checkWord(word, field)
    const pair = JSON.stringify([pipeline, modelId])
    if (seen.has(pair)) throw invalid(`${field} names ${pipeline} with ${modelId} twice`)
    seen.add(pair)
  }
  return values.toSorted((a, b) => compare(a.pipeline, b.pipeline) || compare(a.modelId, b.modelId))
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

function checkWord(word: string, field: string): void {
  if (word.trim() === '' || word.trim() !== word || word.length > wordMax || !isReadable(word)) {
    throw invalid(
      `${field}: pipeline and modelId have 1 to ${wordMax} characters each, and ${unreadableKinds}`,
    )
  }
}

const filterRanges: Readonly<Record<string, number>> = {
  gpuRamGbMin: 100_000,
  gpuRamGbMax: 100_000,
  priceMax: Number.MAX_SAFE_INTEGER,
  maxAvgLatencyMs: 3_600_000,
  maxSwapRatio: 1,
}

/** Parses a policy from JSON. Empty text is the empty policy. */
export function parsePolicy(json: string): Policy {
  if (json.length > policyMax) throw invalid(`policy is longer than ${policyMax} characters`)
  const { topN, sortBy, filters, ...rest } = objectOf(json === '' ? {} : readJson(json), 'policy')
  refuseUnknown(rest, { field: 'policy', known: ['topN', 'sortBy', 'filters'] })
  return {
    ...(topN === undefined ? {} : { topN: parseTopN(topN) }),
    ...(sortBy === undefined ? {} : { sortBy: parseSortBy(sortBy) }),
    ...(filters === undefined
      ? {}
      : { filters: parseFilters(objectOf(filters, 'policy.filters')) }),
  }
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new DomainError('REQUEST_INVALID', 'policy is not valid JSON', { cause: error })
  }
}

function objectOf(value: unknown, field: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalid(`${field} must be an object`)
  return Object.fromEntries(Object.entries(value))
}

function refuseUnknown(
  rest: object,
  { field, known }: { field: string; known: readonly string[] },
): void {
  if (Object.keys(rest).length > 0) throw invalid(`${field} may hold only: ${known.join(', ')}`)
}

function parseTopN(value: unknown): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 1 || value > 1_000) {
    throw invalid('policy.topN must be a whole number from 1 to 1000')
  }
  return value
}

function parseSortBy(value: unknown) {
  const order = sortOrders.find((known) => known === value)
  if (!order) throw invalid(`policy.sortBy must be one of: ${sortOrders.join(', ')}`)
  return order
}

function parseFilters(filters: Record<string, unknown>): Record<string, number> {
  const entries = Object.entries(filters).map(([name, value]): [string, number] => {
    const max = Object.hasOwn(filterRanges, name) ? filterRanges[name] : undefined
    if (max === undefined)
      throw invalid(`policy.filters may hold only: ${Object.keys(filterRanges).join(', ')}`)
    if (typeof value !== 'number' || !Number.isFinite(value) || value < 0 || value > max) {
      throw invalid(`policy.filters.${name} must be a number from 0 to ${max}`)
    }
    return [name, value]
  })
  const { gpuRamGbMin = 0, gpuRamGbMax = Infinity } = Object.fromEntries(entries)
  if (gpuRamGbMin > gpuRamGbMax)
    throw invalid('policy.filters.gpuRamGbMin must not be above gpuRamGbMax')
  return Object.fromEntries(entries)
}

export const parseProfileName = (text: string): string => parseReadable(text, { field: 'name' })
