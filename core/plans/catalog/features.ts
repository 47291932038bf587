import { DomainError } from '../../../proto/errors.ts'
import type { AppId } from '../../platform/ids.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Capability } from './profile.ts'
import * as store from './store.ts'

/** The feature that stands for all spend on the network. */
export const networkSpend = 'network_spend'

const keyMax = 128
const modelSyntax = /^[A-Za-z0-9][A-Za-z0-9._:/-]*$/

/** What credit of an app may be bound to (docs/decisions/45.md): all spend, a pipeline, or one model of a pipeline. */
export function createFeatures({
  pool,
  pipelines,
}: {
  pool: Pool
  /** The catalogue: `pipeline`, which has any model, or `pipeline:modelId`. */
  pipelines: readonly string[]
}) {
  const catalogue = pipelines.map(toCapability)

  /** FEATURE_UNKNOWN, with the keys that are known, unless the app's catalogue has the feature. */
  async function requireFeature(app: AppId, key: string): Promise<void> {
    if (key === networkSpend) return
    const excluded = (await store.findExcluded(pool, app)) ?? []
    const offers = catalogue.filter((offer) => !excluded.some((each) => contains(each, offer)))
    const feature = toCapability(key)
    const isKnown =
      key.length <= keyMax &&
      (feature.modelId === '*' || modelSyntax.test(feature.modelId)) &&
      offers.some((offer) => contains(offer, feature) || contains(feature, offer)) &&
      !excluded.some((each) => contains(each, feature))
    if (!isKnown) throw unknownFeature(offers)
  }

  return { requireFeature }
}

export type Features = ReturnType<typeof createFeatures>

function unknownFeature(offers: readonly Capability[]): DomainError {
  const keys = [networkSpend, ...offers.map(toKey)]
  const some = keys.length <= 50 ? keys : [...keys.slice(0, 50), '…']
  return new DomainError(
    'FEATURE_UNKNOWN',
    `featureKey must be one of: ${some.join(', ')}; a pipeline may be followed by :modelId`,
  )
}

/** True when every job of `inner` is one of `outer`. */
const contains = (outer: Capability, inner: Capability): boolean =>
  outer.pipeline === inner.pipeline && (outer.modelId === '*' || outer.modelId === inner.modelId)

// Tickets split their pipeline at the first colon, too (docs/signer-protocol.md).
function toCapability(key: string): Capability {
  const colon = key.indexOf(':')
  return colon < 0
    ? { pipeline: key, modelId: '*' }
    : { pipeline: key.slice(0, colon), modelId: key.slice(colon + 1) }
}

const toKey = ({ pipeline, modelId }: Capability): string =>
  modelId === '*' ? pipeline : `${pipeline}:${modelId}`
