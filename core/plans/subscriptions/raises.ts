import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Log } from '../../lib/log.ts'
import type { Now } from '../../lib/time.ts'
import { type Clocks, later, realTime } from '../../shared/clocks/clocks.ts'
import type { AppId } from '../../shared/ids.ts'
import type { LockedAccount, SubscriptionLedger } from './ports.ts'
import * as store from './raise-store.ts'
import type { RaiseFilter, StarterRaise } from './raise-store.ts'

const batch = 500
/** Smaller batch while the owner waits for the response. */
const firstBatch = 100
const roundMs = 20_000
// No period is longer, so a period that began with an older version has ended.
const longestPeriodMs = 32 * 86_400_000
// Allows for users subscribed with the previous version in a transaction that committed after this
// one began.
const lateMs = 60_000

interface Round extends Pick<RaiseFilter, 'app'> {
  readonly limit?: number
  readonly batches?: number
}

interface RaisesDeps<Account extends LockedAccount> {
  readonly pool: Pool
  readonly ledger: SubscriptionLedger<Account>
  /** Aborts when core stops. */
  readonly stopping: AbortSignal
  readonly log: Log
  readonly clocks?: Clocks
  readonly now: Now
}

/**
 * When a newer version of a Starter plan includes more, grants the difference to all users in a
 * period of an earlier version. Works in batches that store their progress, on any number of cores,
 * once per user and version.
 */
export function createRaises<Account extends LockedAccount>({
  pool,
  ledger,
  stopping,
  log,
  clocks = realTime,
  now,
}: RaisesDeps<Account>) {
  /**
   * Raises for a bounded time, in one app or in all. Returns the number of users with a new grant.
   */
  const raiseStarters = async (app: AppId | null = null): Promise<number> =>
    (await raiseWithin({ app })).count

  /**
   * Like `raiseStarters`, after a change of one app's Starter. Raises the first users before it
   * returns, the others in the background. The next round of any core does what fails or is left
   * when the process ends.
   */
  async function raiseFirst(app: AppId): Promise<void> {
    try {
      if (!(await raiseWithin({ app, limit: firstBatch, batches: 1 })).isThrough)
        raiseWithin({ app }).catch(warn)
    } catch (error) {
      warn(error)
    }
  }

  const warn = (err: unknown): void =>
    log.warn({ err }, 'raising the users of a Starter plan failed; it continues in a minute')

  const noteRaises = (app: AppId | null): Promise<void> =>
    store.noteRaises(pool, new Date(now().getTime() - longestPeriodMs), app)

  /**
   * Raises in one app, or in all, until no user lacks a raise, time is up, or `batches` full
   * batches are done.
   */
  async function raiseWithin({ app, limit = batch, batches = Infinity }: Round) {
    const end = performance.now() + roundMs
    await noteRaises(app)
    const skip: string[] = []
    let [count, full] = [0, 0]
    while (full < batches && performance.now() < end && !stopping.aborted) {
      const step = await tx(pool, (db) => raiseBatch(db, { app, skip, limit }))
      if (step === null) return { count, isThrough: true }
      count += step.count
      if (step.isThrough) skip.push(store.toRaiseId(step.raise))
      else full++
    }
    return { count, isThrough: false }
  }

  async function raiseBatch(db: Db, { limit, ...filter }: RaiseFilter & { limit: number }) {
    const raise = await store.lockRaise(db, filter)
    if (!raise) return null
    const at = now()
    const users = await store.usersToRaise(db, raise, limit)
    const count = users.length === 0 ? 0 : await raiseAll(db, { raise, users, at })
    const isThrough = users.length < limit
    const own = await clocks.timeOf(db, raise.appId, at)
    const isLast = isThrough && own.getTime() > raise.createdAt.getTime() + lateMs
    const afterUser = isThrough ? noUser : (users.at(-1)?.userId ?? noUser)
    await store.saveRaise(db, { ...raise, afterUser }, isLast ? at : null)
    return { raise, count, isThrough }
  }

  async function raiseAll(
    db: Db,
    { raise, users, at }: { raise: StarterRaise; users: readonly LockedUser[]; at: Date },
  ): Promise<number> {
    // Bring the accounts into their current periods first: one may have begun with this version.
    const present = await ledger.lock(db, users, at)
    await ledger.save(db, present, at)
    const accounts = await ledger.lock(db, users, at)
    const ids = users.map(({ userId }) => userId)
    const inForce = await store.versionsInForce(db, raise, ids)
    const versions = await store.includedBy(db, raise)
    const to = versions.find(({ version }) => version === raise.version)
    const raised = accounts.filter((account) => {
      const from = inForce.get(account.userId)
      if (!to || from === undefined || from >= to.version) return false
      return ledger.raise(account, { versions, from, to }, later(at, account.aheadMs))
    })
    if (raised.length > 0) await ledger.save(db, raised, at)
    return raised.length
  }

  return { raiseStarters, raiseFirst }
}

type LockedUser = Pick<LockedAccount, 'appId' | 'userId'>
const noUser = '00000000-0000-0000-0000-000000000000'
