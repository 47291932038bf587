import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { LockedAccount, SubscriptionLedger } from './ports.ts'
import * as store from './raise-store.ts'
import type { StarterRaise } from './raise-store.ts'

const batch = 500
const roundMs = 20_000
// No period is longer: who is in one of a version that is older has left it.
const longestPeriodMs = 32 * 86_400_000
// Users who were subscribed by the version before, in a transaction that ended after this one began.
const lateMs = 60_000

interface RaisesDeps<Account extends LockedAccount> {
  readonly pool: Pool
  readonly ledger: SubscriptionLedger<Account>
  readonly now: Now
}

/**
 * Gives what a newer version of a Starter plan includes beyond the one before to everybody who is in a period of an earlier
 * one: in batches that remember how far they came, by any number of cores, once for each user and version.
 */
export function createRaises<Account extends LockedAccount>({
  pool,
  ledger,
  now,
}: RaisesDeps<Account>) {
  /** Raises for a bounded time. Returns how many users it gave something. */
  async function raiseStarters(): Promise<number> {
    const end = performance.now() + roundMs
    await store.noteRaises(pool, new Date(now().getTime() - longestPeriodMs))
    const done: string[] = []
    let total = 0
    while (performance.now() < end) {
      const step = await tx(pool, (db) => raiseBatch(db, done))
      if (step === null) break
      total += step.count
      if (step.isThrough) done.push(`${step.raise.planId} ${step.raise.version}`)
    }
    return total
  }

  async function raiseBatch(db: Db, skip: readonly string[]) {
    const raise = await store.lockRaise(db, skip)
    if (!raise) return null
    const at = now()
    const users = await store.usersToRaise(db, raise, batch)
    const count = users.length === 0 ? 0 : await raiseAll(db, { raise, users, at })
    const isThrough = users.length < batch
    const isLast = isThrough && at.getTime() > raise.createdAt.getTime() + lateMs
    const afterUser = isThrough ? noUser : (users.at(-1)?.userId ?? noUser)
    await store.saveRaise(db, { ...raise, afterUser }, isLast ? at : null)
    return { raise, count, isThrough }
  }

  async function raiseAll(
    db: Db,
    { raise, users, at }: { raise: StarterRaise; users: readonly LockedUser[]; at: Date },
  ): Promise<number> {
    // First into the running periods: one of them may have begun with this version.
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
      return ledger.raise(account, { versions, from, to }, at)
    })
    if (raised.length > 0) await ledger.save(db, raised, at)
    return raised.length
  }

  return { raiseStarters }
}

type LockedUser = Pick<LockedAccount, 'appId' | 'userId'>
const noUser = '00000000-0000-0000-0000-000000000000'
