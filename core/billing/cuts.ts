import { LRUCache } from 'lru-cache'
import type { Db, Pool } from '../lib/sql.ts'
import { type Now, addSeconds } from '../lib/time.ts'
import type { AppId } from '../platform/ids.ts'
import * as store from './store.ts'
import type { Cut } from './store.ts'

export interface CutsDeps {
  readonly pool: Pool
  readonly now: Now
}

/** The cut of an app at an instant, in hundredths of a percent; null when none is configured. */
export type CutAt = (app: AppId, instant: Date) => bigint | null

const noticeSeconds = 60
/** Half of the notice: a clock that is less than the other half behind still reads every cut in time. */
const freshSeconds = 30
const appsMax = 10_000

interface Timeline {
  /** The newest first. */
  readonly cuts: readonly Cut[]
  /** No cut that is not in the list begins before. */
  readonly completeUntil: Date
}

/**
 * The platform's cut of network fees (docs/billing.md). A cut begins a minute after it is set, and is never changed: the cut
 * of an instant that has passed is the same whenever, and by whichever process, it is asked.
 */
export function createCuts({ pool, now }: CutsDeps) {
  const timelines = new LRUCache<AppId, Timeline>({ max: appsMax })

  /**
   * A function that knows the cuts of these apps at every instant up to `until`, which has passed. One query for all apps that are not in the cache; the function itself asks nobody, and throws for other apps.
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
      return cutOf(timeline.cuts, instant)
    }
  }

  async function read(apps: readonly AppId[]): Promise<Map<AppId, Timeline>> {
    const completeUntil = addSeconds(now(), freshSeconds)
    const cuts = await store.listCuts(pool, apps)
    return new Map(apps.map((app) => [app, { cuts: cuts.get(app) ?? [], completeUntil }]))
  }

  /** The cut of one app at one instant. */
  const at = async (app: AppId, instant: Date): Promise<bigint | null> =>
    (await load([app], instant))(app, instant)

  /** All cuts of an app, the newest first, those that have not begun included. Reads inside the transaction `db`. */
  const list = async (db: Db, app: AppId): Promise<readonly Cut[]> =>
    (await store.listCuts(db, [app])).get(app) ?? []

  /** Sets the cut from a minute on, which it returns. The caller has locked the app's settings. */
  async function set(db: Db, app: AppId, basisPoints: bigint | null): Promise<Date> {
    const at = now()
    const since = addSeconds(at, noticeSeconds)
    return store.insertCut(db, app, { since, basisPoints, at })
  }

  return { load, at, list, set }
}

export type Cuts = ReturnType<typeof createCuts>

/** The cut that holds at an instant; `cuts` are the newest first. */
export const cutOf = (cuts: readonly Cut[], instant: Date): bigint | null =>
  cuts.find(({ since }) => since <= instant)?.basisPoints ?? null
