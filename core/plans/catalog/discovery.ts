import { DomainError } from '../../../proto/errors.ts'
import type { Db } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { AppId } from '../../shared/ids.ts'
import * as entries from './entries-store.ts'
import type { Capability } from './profile.ts'
import { findExcluded } from './store.ts'

/**
 * Determines which pipelines and models an app may use: those in the settings, in CATALOG_URL,
 * added by operators, or found in the app's own tickets, minus the exclusions in its manifest.
 */

export interface DiscoveryDeps {
  /** Catalogue from the settings: `pipeline` (any model) or `pipeline:modelId`. */
  readonly pipelines: readonly string[]
  /** Null when no catalogue is configured. */
  readonly url: string | null
  readonly now: Now
}

/** Capabilities that the app may not use, by reason. */
interface Sorted {
  readonly unknown: readonly Capability[]
  readonly excluded: readonly Capability[]
}

const recentMs = 2 * 3_600_000

export function createDiscovery({ pipelines, url, now }: DiscoveryDeps) {
  const configured = pipelines.map(toCapability)

  /**
   * Finds the capabilities that the app may not use. Throws UNAVAILABLE when some are unknown and
   * the catalogue was never read.
   */
  async function sort(db: Db, app: AppId, capabilities: readonly Capability[]): Promise<Sorted> {
    if (capabilities.length === 0) return { unknown: [], excluded: [] }
    const excluding = (await findExcluded(db, app)) ?? []
    const excluded = capabilities.filter((one) => excluding.some((each) => contains(each, one)))
    const unknown = await unknownOf(db, app, capabilities)
    if (unknown.length > 0 && excluded.length === 0) await requireRead(db)
    return { unknown, excluded }
  }

  async function unknownOf(
    db: Db,
    app: AppId,
    capabilities: readonly Capability[],
  ): Promise<readonly Capability[]> {
    const early = await missing(db, app, capabilities)
    if (early.length === 0) return early
    const at = now()
    await entries.noteSeen(db, app, { since: new Date(at.getTime() - recentMs), at })
    return missing(db, app, early)
  }

  async function missing(
    db: Db,
    app: AppId,
    capabilities: readonly Capability[],
  ): Promise<readonly Capability[]> {
    const names = [...new Set(capabilities.map(({ pipeline }) => pipeline))]
    const offers = [...configured, ...(await entries.findOffers(db, app, names))]
    return capabilities.filter((one) => !offers.some((offer) => overlaps(offer, one)))
  }

  async function requireRead(db: Db): Promise<void> {
    if (url === null) return
    const read = await entries.findRead(db, url)
    if (read?.readAt) return
    throw new DomainError(
      'UNAVAILABLE',
      'the catalogue of pipelines and models was never read, because its address does not answer; nothing was changed',
    )
  }

  /** Throws REQUEST_INVALID, with the `conflicts`, unless the app may use all capabilities. */
  async function require(db: Db, app: AppId, capabilities: readonly Capability[]): Promise<void> {
    const { unknown, excluded } = await sort(db, app, capabilities)
    if (unknown.length === 0 && excluded.length === 0) return
    const conflicts = [
      ...unknown.map((one) => ({ ...pairOf(one), reason: 'unknown' })),
      ...excluded.map((one) => ({ ...pairOf(one), reason: 'excluded' })),
    ]
    throw new DomainError(
      'REQUEST_INVALID',
      `the catalogue has no ${readNames(unknown.length > 0 ? unknown : excluded)}, or the app excludes it`,
      { members: { conflicts: bounded(conflicts) } },
    )
  }

  /** Returns up to `limit` capabilities that the app may use. */
  async function some(db: Db, app: AppId, limit: number): Promise<Capability[]> {
    const excluding = (await findExcluded(db, app)) ?? []
    const offers = [...configured, ...(await entries.someOffers(db, app, limit))]
    const unique = new Map(offers.map((offer) => [toKey(offer), offer]))
    return [...unique.values()]
      .filter((offer) => !excluding.some((each) => contains(each, offer)))
      .slice(0, limit)
  }

  return { sort, require, some }
}

export type Discovery = ReturnType<typeof createDiscovery>

/** True when every job of `inner` is also a job of `outer`. */
export const contains = (outer: Capability, inner: Capability): boolean =>
  outer.pipeline === inner.pipeline && (outer.modelId === '*' || outer.modelId === inner.modelId)

const overlaps = (one: Capability, other: Capability): boolean =>
  contains(one, other) || contains(other, one)

// Splits at the first colon, as tickets do (docs/signer-events.md).
export function toCapability(key: string): Capability {
  const colon = key.indexOf(':')
  return colon < 0
    ? { pipeline: key, modelId: '*' }
    : { pipeline: key.slice(0, colon), modelId: key.slice(colon + 1) }
}

export const toKey = ({ pipeline, modelId }: Capability): string =>
  modelId === '*' ? pipeline : `${pipeline}:${modelId}`

const pairOf = ({ pipeline, modelId }: Capability): Capability => ({ pipeline, modelId })

/** Lists the first five as text, and how many more there are. */
export function readNames(capabilities: readonly Capability[]): string {
  const some = capabilities.slice(0, 5).map(toKey)
  const more = capabilities.length - some.length
  return more > 0 ? `${some.join(', ')} and ${more} others` : some.join(', ')
}

const conflictsChars = 3_000

/** Returns only as many conflicts as fit into a gRPC trailer. */
export function bounded<T>(conflicts: readonly T[]): T[] {
  let chars = 0
  return conflicts.filter((conflict) => {
    chars += JSON.stringify(conflict).length * 2
    return chars <= conflictsChars
  })
}
