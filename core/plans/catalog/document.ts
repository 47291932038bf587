import { DomainError } from '../../../proto/errors.ts'
import { everyModel } from '../terms.ts'
import { type Capability, parseCapabilities } from './profile.ts'

/**
 * Parses the document at CATALOG_URL: a list of `{pipeline, modelId}` or `{pipeline, models}`, bare
 * or as `capabilities` or `pipelines` of an object. A pipeline without models means all its models.
 * One invalid entry rejects the whole document.
 */

const entriesMax = 10_000

/** Returns each pair once. Throws with the reason when the document is unusable. */
export function parseCatalog(text: string): Capability[] {
  const pairs = listOf(JSON.parse(text)).flatMap(capabilitiesOf)
  const unique = new Map(pairs.map((pair) => [JSON.stringify([pair.pipeline, pair.modelId]), pair]))
  if (unique.size === 0) throw new Error('answered no pipeline')
  if (unique.size > entriesMax) throw new Error(`answered more than ${entriesMax} models`)
  const entries = [...unique.values()]
  for (const entry of entries) checkEntry(entry)
  return entries
}

function listOf(document: unknown): unknown[] {
  if (Array.isArray(document)) return document
  const list = memberOf(document, ['capabilities', 'pipelines'])
  if (Array.isArray(list)) return list
  throw new Error('answered no list of pipelines')
}

function capabilitiesOf(entry: unknown): Capability[] {
  if (typeof entry === 'string') return [{ pipeline: entry, modelId: everyModel }]
  const pipeline = textOf(entry, ['pipeline', 'id', 'name'])
  const models = memberOf(entry, ['models'])
  if (Array.isArray(models) && models.length > 0)
    return models.map((model: unknown) => ({ pipeline, modelId: modelOf(model) }))
  const modelId = memberOf(entry, ['modelId', 'model_id', 'model'])
  return [{ pipeline, modelId: typeof modelId === 'string' ? modelId : everyModel }]
}

const modelOf = (model: unknown): string =>
  typeof model === 'string' ? model : textOf(model, ['modelId', 'model_id', 'model', 'id', 'name'])

function textOf(value: unknown, names: readonly string[]): string {
  const text = memberOf(value, names)
  if (typeof text === 'string') return text
  throw new Error(`answered an entry without ${names.slice(0, 2).join(' or ')}`)
}

/** Returns the first of these members that exists. */
function memberOf(value: unknown, names: readonly string[]): unknown {
  if (typeof value !== 'object' || value === null) return undefined
  const members = new Map(Object.entries(value))
  return names.map((name) => members.get(name)).find((member) => member !== undefined)
}

function checkEntry(entry: Capability): void {
  try {
    checkOffer(entry)
  } catch (error) {
    if (!(error instanceof DomainError)) throw error
    throw new Error(`answered an invalid entry: ${error.message}`, { cause: error })
  }
}

/** Throws REQUEST_INVALID for a pipeline or model that plans and credit cannot name. */
export function checkOffer(offer: Capability): void {
  parseCapabilities([offer], 'capability')
  if (offer.pipeline === everyModel || offer.pipeline.includes(':'))
    throw new DomainError('REQUEST_INVALID', 'pipeline must name one pipeline, without a colon')
}
