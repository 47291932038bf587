import { DomainError } from '../../../proto/errors.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Pool } from '../../lib/sql.ts'
import { isReadable } from '../../lib/text/readable.ts'
import { type Discovery, toCapability, toKey } from './discovery.ts'

/** The feature for all spend on the network. */
export const networkSpend = 'network_spend'

const keyMax = 128
const modelSyntax = /^[A-Za-z0-9][A-Za-z0-9._:/-]*$/
const namesMax = 50

/**
 * Features that credit can be bound to (docs/decisions/45.md): all spend, a pipeline, or one model
 * of a pipeline.
 */
export function createFeatures({ pool, discovery }: { pool: Pool; discovery: Discovery }) {
  /**
   * Throws FEATURE_UNKNOWN, with the known keys, unless the app's catalogue has the feature. Throws
   * UNAVAILABLE when the feature is unknown and the catalogue was never read.
   */
  async function requireFeature(app: AppId, key: string): Promise<void> {
    if (key === networkSpend) return
    const feature = toCapability(key)
    const isKey =
      key.length <= keyMax &&
      isReadable(key) &&
      (feature.modelId === '*' || modelSyntax.test(feature.modelId))
    if (isKey) {
      const { unknown, excluded } = await discovery.sort(pool, app, [feature])
      if (unknown.length === 0 && excluded.length === 0) return
    }
    throw await unknownFeature(app)
  }

  async function unknownFeature(app: AppId): Promise<DomainError> {
    const keys = [networkSpend, ...(await discovery.some(pool, app, namesMax)).map(toKey)]
    const some = keys.length <= namesMax ? keys : [...keys.slice(0, namesMax), '…']
    return new DomainError(
      'FEATURE_UNKNOWN',
      `featureKey must be one of: ${some.join(', ')}; a pipeline may be followed by :modelId`,
    )
  }

  return { requireFeature }
}
