import { LRUCache } from 'lru-cache'
import type { Db } from '../lib/sql.ts'
import { addSeconds } from '../lib/time.ts'
import type { AppId } from '../shared/ids.ts'
import type { Shared } from '../shared/shared.ts'
import * as store from './store.ts'
import type { Cut } from './store.ts'

export interface CutsDeps extends Pick<Shared, 'pool' | 'now'> {}

/** Returns the cut of an app at an instant, in hundredths of a percent; null without a cut. */
export type CutAt = (app: AppId, instant: Date) => bigint | null

const noticeSeconds = 60
/**
 * Half of the notice, so that a core still reads every cut in time if its clock is less than the
 * other half behind.
 */
const freshSeconds = 30
const appsMax = 10_000

interface Timeline {
  /** Newest first. */
  readonly cuts: readonly Cut[]
  /** The list has all cuts that begin before this time. */
  readonly completeUntil: Date
}

/**
 * The platform's cut of network fees (docs/billing.md). A cut begins a minute after it is set and
 * never changes. So the cut of a past instant is always the same, in every process.
 */
export function createCuts({ pool, now }: CutsDeps) {
  const timelines = new LRUCache<AppId, Timeline>({ max: appsMax })

  /**
   * Returns a function for the cuts of these apps at any instant up to `until`, which must be past.
   * Runs one query for all apps that are not cached. The returned function does no I/O and throws
   * for other apps.
   */
  async function load(apps: readonly AppId[], until: Date): Promise<CutAt> {
    const known = new Map<AppId, Timeline>()
    for (const app of new Set(apps)) {
      const timeline = timelines.get(app)
      if (timeline && timeline.completeUntil >= until) known.set(app, timeline)
    }
    const missing = apps.filter((app) => !known.has(app))
    if (missing.length > 0)
      for (const [app, timeline] of await read(missing)) {
        known.set(app, timeline)
        timelines.set(app, timeline)
      }
    return (app, instant) => {
      const timeline = known.get(app)
      if (!timeline) throw new Error('the cut of an app was not loaded')
      return findCut(timeline.cuts, instant)
    }
  }

  async function read(apps: readonly AppId[]): Promise<Map<AppId, Timeline>> {
    const completeUntil = addSeconds(now(), freshSeconds)
    const cuts = await store.listCuts(pool, apps)
    return new Map(apps.map((app) => [app, { cuts: cuts.get(app) ?? [], completeUntil }]))
  }

  /** Returns the cut of one app at one instant. */
  const at = async (app: AppId, instant: Date): Promise<bigint | null> =>
    (await load([app], instant))(app, instant)

  /**
   * Lists all cuts of an app, newest first, including those that have not begun. Reads in the
   * transaction `db`.
   */
  const list = async (db: Db, app: AppId): Promise<readonly Cut[]> =>
    (await store.listCuts(db, [app])).get(app) ?? []

  /**
   * Sets the cut from a minute from now on, and returns that time. The caller has locked the app's
   * settings.
   */
  async function set(db: Db, app: AppId, basisPoints: bigint | null): Promise<Date> {
    const at = now()
    const since = addSeconds(at, noticeSeconds)
    return store.insertCut(db, app, { since, basisPoints, at })
  }

  return { load, at, list, set }
}

export type Cuts = ReturnType<typeof createCuts>

/** Returns the cut in force at an instant; `cuts` must be sorted newest first. */
export const findCut = (cuts: readonly Cut[], instant: Date): bigint | null =>
  cuts.find(({ since }) => since <= instant)?.basisPoints ?? null
