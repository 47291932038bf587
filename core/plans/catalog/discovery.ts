import { DomainError } from '../../../proto/errors.ts'
import type { Db } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { AppId } from '../../platform/ids.ts'
import * as entries from './entries-store.ts'
import type { Capability } from './profile.ts'
import { findExcluded } from './store.ts'

/**
 * Which pipelines and models exist for an app: those of the settings, of CATALOG_URL, of operators, and those that its own
 * tickets were for; without those that its manifest excludes.
 */

export interface DiscoveryDeps {
  /** The catalogue of the settings: `pipeline`, which has any model, or `pipeline:modelId`. */
  readonly pipelines: readonly string[]
  /** Null when no catalogue is read. */
  readonly url: string | null
  readonly now: Now
}

/** What of some capabilities the app may use. */
interface Sorted {
  readonly unknown: readonly Capability[]
  readonly excluded: readonly Capability[]
}

const recentMs = 2 * 3_600_000

export function createDiscovery({ pipelines, url, now }: DiscoveryDeps) {
  const configured = pipelines.map(toCapability)

  /** Sorts out the capabilities that the app may not use. UNAVAILABLE when the catalogue that may know them was never read. */
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

  /** REQUEST_INVALID, with the `conflicts`, unless the app may use every one of the capabilities. */
  async function require(db: Db, app: AppId, capabilities: readonly Capability[]): Promise<void> {
    const { unknown, excluded } = await sort(db, app, capabilities)
    if (unknown.length === 0 && excluded.length === 0) return
    const conflicts = [
      ...unknown.map((one) => ({ ...pairOf(one), reason: 'unknown' })),
      ...excluded.map((one) => ({ ...pairOf(one), reason: 'excluded' })),
    ]
    throw new DomainError(
      'REQUEST_INVALID',
      `the catalogue has no ${namesOf(unknown.length > 0 ? unknown : excluded)}, or the app excludes it`,
      { members: { conflicts: bounded(conflicts) } },
    )
  }

  /** Some of what the app may use. */
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

/** True when every job of `inner` is one of `outer`. */
export const contains = (outer: Capability, inner: Capability): boolean =>
  outer.pipeline === inner.pipeline && (outer.modelId === '*' || outer.modelId === inner.modelId)

const overlaps = (one: Capability, other: Capability): boolean =>
  contains(one, other) || contains(other, one)

// Tickets split their pipeline at the first colon, too (docs/signer-protocol.md).
export function toCapability(key: string): Capability {
  const colon = key.indexOf(':')
  return colon < 0
    ? { pipeline: key, modelId: '*' }
    : { pipeline: key.slice(0, colon), modelId: key.slice(colon + 1) }
}

export const toKey = ({ pipeline, modelId }: Capability): string =>
  modelId === '*' ? pipeline : `${pipeline}:${modelId}`

const pairOf = ({ pipeline, modelId }: Capability): Capability => ({ pipeline, modelId })

/** The first of them as text. */
export function namesOf(capabilities: readonly Capability[]): string {
  const some = capabilities.slice(0, 5).map(toKey)
  const more = capabilities.length - some.length
  return more > 0 ? `${some.join(', ')} and ${more} others` : some.join(', ')
}

const conflictsChars = 3_000

/** As many as a trailer of gRPC takes. */
export function bounded<T>(conflicts: readonly T[]): T[] {
  let chars = 0
  return conflicts.filter((conflict) => {
    chars += JSON.stringify(conflict).length * 2
    return chars <= conflictsChars
  })
}
