import type { UserKey } from '../../shared/ids.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { Total } from '../../metering/ingest/charges.ts'
import type { DatabaseClock } from '../../shared/database-clock.ts'
import type { Account } from '../accounts/account.ts'
import type { Accounts } from '../accounts/accounts.ts'
import { graceSeconds } from './granting/lending.ts'
import { earlySeconds } from './stores/due-store.ts'
import { type EndSums, type Losses, retentionDays } from './losses.ts'
import { clockRange } from './due.ts'
import type { DueSearch, EscrowStore, StoredAuthorisation } from './port.ts'
import { lowerLeases } from './settlement.ts'

export interface ReleaseDeps {
  readonly pool: Pool
  readonly store: Pick<
    EscrowStore,
    | 'findDueUsers'
    | 'findDueAuthorisations'
    | 'findLeases'
    | 'findReleasable'
    | 'splitRuns'
    | 'saveLeases'
    | 'takeOldEarlyTickets'
    | 'forgetClocksAfter'
    | 'forgetOld'
  >
  readonly accounts: Pick<Accounts, 'lock' | 'save'>
  readonly losses: Losses
  readonly lagSeconds: number
  readonly holdMaxSeconds: number
  readonly leaseSeconds: number
  readonly time: Pick<DatabaseClock, 'now' | 'measure' | 'jumpedAt'>
  /** Called after the commit with the sums that a batch of users got back. */
  readonly onReleased: (sums: ReleaseSums) => void
}

export interface ReleaseSums extends EndSums {
  /** Remaining amounts of leases that their sidecar did not return. */
  readonly orphaned: Total
}

/** The most users and authorisations in one transaction. */
const batchUsers = 200
const batchAuthorisations = 2_000
/** A round ends after this many batches; the next one continues. */
const batchesMax = 50
const forgetAtOnce = 5_000

/** Cores notice a jump of the database's clock within this time of each other. */
const measureSeconds = 2

/**
 * Ends the holds of missing tickets. Decides by the stream's own clock, never by time alone while
 * calls are allowed (docs/escrow-settlement.md, "Settlement and release"). Keeps no state, so
 * several cores may run it at once.
 */
export function createRelease(deps: ReleaseDeps) {
  const { pool, store, accounts, losses, time } = deps
  // After a jump, older leases may still be in use for this long, although they seem to have ended.
  const unsureSeconds = deps.leaseSeconds + graceSeconds + deps.lagSeconds + measureSeconds

  /** Ends all due holds, then deletes old rows. */
  async function round(signal?: AbortSignal): Promise<void> {
    await time.measure()
    const due = { ...deps, at: time.now(), jumpedAt: time.jumpedAt(), limit: batchUsers }
    await store.forgetClocksAfter(pool, clockRange(due).to)
    if (due.at >= addSeconds(due.jumpedAt, unsureSeconds)) await releaseDue(due, signal)
    await store.forgetOld(pool, {
      endedBefore: addSeconds(due.at, -retentionDays * 86_400),
      bookedBefore: addSeconds(due.at, -deps.holdMaxSeconds),
      limit: forgetAtOnce,
    })
  }

  async function releaseDue(due: DueSearch, signal: AbortSignal | undefined): Promise<void> {
    for (let batch = 0; batch < batchesMax; batch++) {
      const users = await store.findDueUsers(pool, due)
      if (users.length === 0 || signal?.aborted) break
      deps.onReleased(await tx(pool, (db) => releaseUsers(db, users, due)))
    }
  }

  /** Ends the due holds of some users, in the caller's transaction. */
  async function releaseUsers(
    db: Db,
    users: readonly UserKey[],
    due: DueSearch,
  ): Promise<ReleaseSums> {
    const locked = await accounts.lock(db, users, due.at)
    const byUser = new Map(locked.map((account) => [account.userId, account]))
    const find = ({ userId }: UserKey): Account | undefined => byUser.get(userId)
    const dueCalls = await store.findDueAuthorisations(db, locked, {
      ...due,
      limit: batchAuthorisations,
    })
    const authorisations = await splitRuns(db, dueCalls)
    const ended = await losses.end(db, { authorisations, find }, due.at)
    const orphaned = await releaseOrphans(db, locked, due)
    await accounts.save(db, locked, due.at)
    return { ...ended, orphaned }
  }

  /** Splits runs, because each call ends separately: all but the last are proven. */
  async function splitRuns(
    db: Db,
    dueCalls: readonly StoredAuthorisation[],
  ): Promise<readonly StoredAuthorisation[]> {
    const runs = dueCalls.filter(({ run }) => run)
    if (runs.length === 0) return dueCalls
    return [...dueCalls.filter(({ run }) => !run), ...(await store.splitRuns(db, runs))]
  }

  /**
   * Lowers orphans by old early tickets, whose calls were never reported, then closes the
   * releasable orphans.
   */
  async function releaseOrphans(
    db: Db,
    locked: readonly Account[],
    due: DueSearch,
  ): Promise<Total> {
    const byUser = new Map(locked.map((account) => [account.userId, account]))
    // Includes users with nothing lent, because an orphan without a remaining amount must be
    // closed, too.
    const leases = await store.findLeases(db, locked)
    const orphans = leases.filter(({ endsAt }) => endsAt <= due.at)
    if (orphans.length === 0) return { count: 0, amount: usdAttos(0n) }
    const ofUser = Map.groupBy(orphans, ({ userId }) => userId)
    const early = await store.takeOldEarlyTickets(
      db,
      locked.filter(({ userId }) => ofUser.has(userId)),
      { before: addSeconds(due.at, -earlySeconds), limit: batchAuthorisations },
    )
    const changed = early.flatMap(({ userId, cost }) => {
      const account = byUser.get(userId)
      return account ? lowerLeases(account, ofUser.get(userId) ?? [], cost) : []
    })
    const releasable = await store.findReleasable(db, orphans, due)
    const closed = orphans.filter(({ id }) => releasable.has(id))
    const rests = closed.map(({ userId, amount, used }) => free(byUser.get(userId), amount - used))
    await store.saveLeases(db, {
      opened: [],
      changed: [...new Set(changed)].filter((lease) => !closed.includes(lease)),
      closed,
    })
    return { count: closed.length, amount: usdAttos(rests.reduce((sum, rest) => sum + rest, 0n)) }
  }

  return { round, releaseUsers }
}

function free(account: Account | undefined, rest: bigint): UsdAttos {
  if (account) account.lent = usdAttos(account.lent - rest)
  return usdAttos(rest)
}
