import { LRUCache } from 'lru-cache'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { type Clocks, realTime } from '../../shared/clocks/clocks.ts'
import type { AppId, UserId } from '../../shared/ids.ts'
import type { RatingPorts, SoldRates, UserPeriods } from './port.ts'

/**
 * Maps users to their plan versions over time (docs/money.md, "The version of a ticket").
 *
 * Gains: periods are only appended, and a version never changes, so both are cached while a user's
 * last period stays the same: a batch of known users needs no query. The ledger checks the last
 * period when it charges (`ConfirmPeriods`). The `ingest with plans by COPY` row of `npm run bench`
 * shows the gain. Plain version: `read`, which loads everything from the database.
 */

export interface SoldTerms extends SoldRates {
  readonly termsId: bigint
}

/** The start of a version. */
interface Step {
  readonly startMs: number
  readonly terms: SoldTerms
}

export interface Timeline {
  readonly appId: AppId
  readonly userId: UserId
  /** In order. */
  readonly steps: readonly Step[]
  readonly lastStartMs: number
  readonly endMs: number
  /** Whether `steps` starts with the user's first period. */
  readonly isWhole: boolean
}

export interface User {
  readonly appId: AppId
  readonly userId: UserId
}

interface LockedAccount extends User {
  readonly periodStart: Date
  /** Periods that the caller's transaction entered. */
  readonly periods: readonly unknown[]
}

const maxTimelines = 100_000
const maxTerms = 20_000
/** Only a user who changes plans often has more. */
const recentPeriods = 16

/**
 * Returns the version at an instant: that of the last period begun by then, else of the first
 * period; null if the instant is before the cached periods.
 */
export function termsAt({ steps, isWhole }: Timeline, ms: number): SoldTerms | null {
  for (let i = steps.length - 1; i >= 0; i--) {
    const step = steps[i]
    if (step && step.startMs <= ms) return step.terms
  }
  return isWhole ? (steps[0]?.terms ?? null) : null
}

export function createPlanHistory({
  pool,
  ledger,
  plans,
  clocks = realTime,
}: Pick<RatingPorts, 'ledger' | 'plans'> & { readonly pool: Pool; readonly clocks?: Clocks }) {
  const cache = new LRUCache<UserId, Timeline>({ max: maxTimelines })
  const terms = new LRUCache<bigint, SoldTerms>({ max: maxTerms })

  /**
   * Returns timelines that include the period running at `at`. Users with an ended period first
   * enter the next one.
   */
  async function current(users: readonly User[], at: Date): Promise<ReadonlyMap<UserId, Timeline>> {
    const timelines = new Map<UserId, Timeline>()
    const missing: User[] = []
    const ahead = await clocks.ahead(pool, users)
    const isOver = ({ appId }: User, endMs: number): boolean =>
      endMs <= at.getTime() + (ahead.get(appId) ?? 0)
    for (const user of users) {
      const known = cache.get(user.userId)
      if (known && !isOver(user, known.endMs)) timelines.set(user.userId, known)
      else missing.push(user)
    }
    if (missing.length === 0) return timelines
    let loaded = await read(pool, missing, recentPeriods)
    const due = missing.filter((user) => isOver(user, loaded.get(user.userId)?.endMs ?? 0))
    if (due.length > 0) {
      await tx(pool, (db) => ledger.enterPeriods(db, due, at))
      loaded = new Map([...loaded, ...(await read(pool, due, recentPeriods))])
    }
    for (const [userId, timeline] of loaded) {
      cache.set(userId, timeline)
      timelines.set(userId, timeline)
    }
    return timelines
  }

  /** Reads from the database, without the cache. */
  async function read(
    db: Db,
    users: readonly User[],
    limit: number | null,
  ): Promise<Map<UserId, Timeline>> {
    const rows = await ledger.readPeriods(db, users, limit)
    const termsOf = await findTerms(
      db,
      rows.flatMap(({ periods }) => periods.map(({ termsId }) => termsId)),
    )
    const apps = new Map(users.map(({ userId, appId }) => [userId, appId]))
    return new Map(
      rows.flatMap((row) => {
        const appId = apps.get(row.userId)
        return appId === undefined ? [] : [[row.userId, timelineOf({ ...row, appId }, termsOf)]]
      }),
    )
  }

  async function findTerms(
    db: Db,
    ids: readonly bigint[],
  ): Promise<ReadonlyMap<bigint, SoldTerms>> {
    const byId = new Map<bigint, SoldTerms>()
    const missing: bigint[] = []
    for (const id of new Set(ids)) {
      const known = terms.get(id)
      if (known) byId.set(id, known)
      else missing.push(id)
    }
    if (missing.length === 0) return byId
    for (const [termsId, rates] of await plans.readRates(db, missing)) {
      const planTerms = { termsId, ...rates }
      terms.set(termsId, planTerms)
      byId.set(termsId, planTerms)
    }
    return byId
  }

  /** Locks the accounts until the transaction ends, so that no user enters a period in between. */
  async function locked(
    db: Db,
    users: readonly User[],
    at: Date,
  ): Promise<ReadonlyMap<UserId, Timeline>> {
    await ledger.enterPeriods(db, users, at)
    return read(db, users, recentPeriods)
  }

  /** Returns the versions of the current periods of accounts that the caller has locked. */
  async function running(
    db: Db,
    accounts: readonly LockedAccount[],
  ): Promise<ReadonlyMap<UserId, SoldTerms>> {
    const known = new Map<UserId, SoldTerms>()
    const missing = accounts.filter(({ userId, periodStart }) => {
      const timeline = cache.get(userId)
      const terms = timeline?.steps.at(-1)?.terms
      if (!terms || timeline.lastStartMs !== periodStart.getTime()) return true
      known.set(userId, terms)
      return false
    })
    if (missing.length === 0) return known
    const loaded = await read(db, missing, recentPeriods)
    for (const { userId, periods } of missing) {
      const timeline = loaded.get(userId)
      const terms = timeline?.steps.at(-1)?.terms
      if (!timeline || !terms) continue
      known.set(userId, terms)
      // Do not cache a period that this transaction enters: it is not committed yet.
      if (periods.length === 0) cache.set(userId, timeline)
    }
    return known
  }

  const forget = (users: readonly UserId[]): void => {
    for (const user of users) cache.delete(user)
  }

  /** Reads all periods of a user, for a ticket from before the cached ones. */
  const whole = async (db: Db, user: User): Promise<Timeline | undefined> =>
    (await read(db, [user], null)).get(user.userId)

  return { current, locked, running, whole, forget }
}

function timelineOf(
  { appId, userId, periods, isWhole }: UserPeriods & User,
  termsOf: ReadonlyMap<bigint, SoldTerms>,
): Timeline {
  const last = periods.at(-1)
  const steps = periods.map(({ startMs, termsId }) => {
    const soldTerms = termsOf.get(termsId)
    if (!soldTerms) throw new Error(`version ${termsId} of a plan cannot be found`)
    return { startMs, terms: soldTerms }
  })
  return { appId, userId, steps, isWhole, lastStartMs: last?.startMs ?? 0, endMs: last?.endMs ?? 0 }
}
