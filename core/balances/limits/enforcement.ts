import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { UserId, UserKey } from '../../shared/ids.ts'
import type { PriceCeiling } from './limits.ts'
import * as store from './store.ts'
import { type LimitedCall, type Tallies, createTallies, windowsAt } from './tally.ts'

/**
 * Limits as the escrow uses them (docs/limits-of-users.md). Each function runs in the caller's
 * transaction and serves any number of users in a fixed number of statements. The caller must have
 * locked the users' accounts, so that several cores share one count. A user with limits, or with a
 * limited key, gets no lease, so that core checks each of its calls.
 */

/**
 * Loads the tallies for a batch of calls at `at`; null if no user has limits. See `createTallies`.
 * `saveTallies` writes the new counts.
 */
export async function loadTallies(
  db: Db,
  calls: readonly (UserKey & LimitedCall)[],
  at: Date,
): Promise<Tallies | null> {
  const users = [...new Map(calls.map((call) => [call.userId, call])).values()]
  const tallies = users.length === 0 ? [] : await store.findTallies(db, users)
  if (tallies.length === 0) return null
  const sessionIds = new Set(calls.map(({ sessionId }) => sessionId))
  await store.loadSessions(db, tallies, [...sessionIds])
  await store.loadActive(
    db,
    tallies.filter(({ limits }) => limits.sessions !== null),
    at,
  )
  return createTallies(tallies)
}

export const saveTallies = (db: Db, tallies: Tallies): Promise<void> =>
  store.saveTallies(db, tallies.changed())

/**
 * Counts reported calls that were allowed from a lease or an offline budget without a check of
 * limits.
 */
export async function countCalls(
  db: Db,
  calls: readonly (UserKey & LimitedCall)[],
  at: Date,
): Promise<void> {
  const tallies = await loadTallies(db, calls, at)
  if (!tallies) return
  for (const call of calls) tallies.count(call, at)
  await saveTallies(db, tallies)
}

/** The limits that `Lend` needs. */
export interface LenderLimits {
  /** True if each call of this user must be reserved. */
  readonly isLimited: (user: UserId) => boolean
  /**
   * Returns only the user's own ceilings, because a sidecar keeps them for all keys of the user.
   * Those of keys come with reservations.
   */
  readonly ceilings: (user: UserId) => readonly PriceCeiling[]
}

export async function findLenderLimits(db: Db, users: readonly UserKey[]): Promise<LenderLimits> {
  const tallies = users.length === 0 ? [] : await store.findTallies(db, users)
  const byUser = Map.groupBy(tallies, ({ userId }) => userId)
  return {
    isLimited: (user) => byUser.has(user),
    ceilings: (user) =>
      byUser.get(user)?.find(({ keyId }) => keyId === null)?.limits.ceilings ?? [],
  }
}

/** An authorisation that was counted by its bound, and the amount that it counts for now. */
export interface CountChange extends UserKey {
  readonly keyId: string | null
  readonly sessionId: string
  readonly authorisedAt: Date
  /** The amount counted before. */
  readonly from: UsdAttos
  readonly to: UsdAttos
}

/**
 * Corrects counts: from bound to cost when an authorisation's ticket is booked, to zero when the
 * authorisation is released, and back if its ticket comes after that.
 */
export async function correctCounts(db: Db, changes: readonly CountChange[]): Promise<void> {
  const effective = changes.filter(({ from, to }) => from !== to)
  if (effective.length === 0) return
  const users = [...new Map(effective.map((change) => [change.userId, change])).values()]
  const limited = new Set(await store.findLimitedUsers(db, users))
  const corrections = effective.filter(({ userId }) => limited.has(userId)).flatMap(toCorrections)
  if (corrections.length > 0) await store.addCorrections(db, corrections)
}

function toCorrections(change: CountChange): store.Correction[] {
  const { appId, userId, keyId, sessionId, authorisedAt, from, to } = change
  const { dayStart } = windowsAt(authorisedAt)
  const correction = { appId, userId, sessionId, dayStart, delta: usdAttos(to - from) }
  return [userId, ...(keyId === null ? [] : [keyId])].map((subjectId) => ({
    ...correction,
    subjectId,
  }))
}
