import { type Db, tx } from '../../lib/sql.ts'
import type { AppId, UserId, UserKey } from '../../shared/ids.ts'
import type { DatabaseClock } from '../../shared/database-clock.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Exposures } from '../exposure/exposure.ts'
import type { EscrowMeters } from './metrics.ts'
import type * as ownerLeaseStore from './stores/owner-lease-store.ts'

/** The storage of recalls, in PostgreSQL or, for the model checker, in memory. */
export type OwnerLeaseStore = Pick<typeof ownerLeaseStore, 'findLentApps' | 'findLentUsers'>

export interface OwnerRecallsDeps extends Pick<Shared, 'pool' | 'log'> {
  readonly invalidations: Pick<Shared['invalidations'], 'publish'>
  readonly ownerLeases: OwnerLeaseStore
  readonly exposures: Pick<Exposures, 'findOverdrawn'>
  /** Locks the accounts of users and recalls their leases. */
  readonly recall: (db: Db, users: readonly UserKey[], at: Date) => Promise<void>
  readonly meters: Pick<EscrowMeters, 'recalled'>
  readonly time: Pick<DatabaseClock, 'current'>
}

/** Kept small, because a page locks the accounts of its users. */
const pageSize = 200
/** Pages of one app in a round, so that other owners do not wait for a large one. */
const pagesMax = 50

/**
 * Recalls the leases of all users whose app's owner has lost money that its apps hold
 * (docs/escrow-credit.md, "The owner's account"): by one message per app, which sidecars follow at
 * once, and in the database page by page, for sidecars that missed the message. Does not run in the
 * transaction that takes the money, because that one has locked the owner's account, and users must
 * be locked in id order.
 */
export function createOwnerRecalls(deps: OwnerRecallsDeps) {
  const { pool, ownerLeases, exposures, recall, invalidations, meters, log, time } = deps

  async function round(): Promise<void> {
    const at = await time.current()
    const owners = await exposures.findOverdrawn(pool, at)
    if (owners.length === 0) return
    const apps = await ownerLeases.findLentApps(pool, owners, at)
    await Promise.all(
      apps.map(({ clientId }) => invalidations.publish({ kind: 'leases', id: clientId })),
    )
    // An app that fails now is tried again in the next round, and must not keep the others waiting.
    for (const { appId } of apps)
      await recallApp(appId, at).catch((error: unknown) =>
        log.error({ err: error, appId }, 'the recall of leases failed'),
      )
  }

  /** Recalls leases of an app's users in the order of their ids. The next round does the rest. */
  async function recallApp(appId: AppId, at: Date): Promise<void> {
    let users = 0
    let after: UserId | null = null
    for (let i = 0; i < pagesMax; i++) {
      const page: UserKey[] = await ownerLeases.findLentUsers(
        pool,
        { appId, after, limit: pageSize },
        at,
      )
      if (page.length > 0) await tx(pool, (db) => recall(db, page, at))
      users += page.length
      after = page.at(-1)?.userId ?? null
      if (page.length < pageSize) break
    }
    meters.recalled.inc(users)
    log.info({ appId, users }, "leases recalled, because the app's owner lost money")
  }

  return { round }
}
