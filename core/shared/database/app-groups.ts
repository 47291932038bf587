import { type Db, type Pool, commitWith } from '../../lib/sql.ts'
import { type AppId, appId } from '../ids.ts'
import { hasDistributedTables, listAppIds } from './store.ts'

// On a Citus cluster (docs/citus.md) the rows of one app are on one node. A statement whose tables
// all have the condition `app_id = …` runs there unchanged, locks and lateral joins included; a
// statement about several apps is restricted. The functions of this file therefore divide work by
// app on a cluster. Elsewhere one statement serves all apps, which is faster.

const poolsByClient = new WeakMap<Db, Pool>()
const distributedPools = new WeakSet<Db>()

/** Notes whether the tables of `pool`'s database are distributed, for its later clients. */
export async function noteDistribution(pool: Pool): Promise<void> {
  pool.on('connect', (client) => poolsByClient.set(client, pool))
  if (!(await hasDistributedTables(pool))) return
  distributedPools.add(pool)
  commitWith(pool, commitInTwoPhases)
}

/**
 * Citus commits in two phases what a transaction wrote to two nodes, but does not count tables that
 * it does not manage, such as `leases`: a crash between the commits of a worker and the coordinator
 * would keep one and lose the other. The function updates a managed table, which counts, but no row.
 */
const commitInTwoPhases = 'select commit_in_two_phases()'

const isDistributed = (db: Db): boolean => distributedPools.has(poolsByClient.get(db) ?? db)

/**
 * Calls `work` once for each app of `rows` in id order on a cluster, else once with all rows and
 * null. Returns the concatenated results.
 */
export async function inAppGroups<T extends { readonly appId: AppId }, R>(
  db: Db,
  rows: readonly T[],
  work: (rows: readonly T[], app: AppId | null) => Promise<readonly R[]>,
): Promise<readonly R[]> {
  if (!isDistributed(db)) return work(rows, null)
  const groups = [...Map.groupBy(rows, (row) => row.appId)].sort(([a], [b]) => (a < b ? -1 : 1))
  const results: R[] = []
  for (const [app, group] of groups) results.push(...(await work(group, app)))
  return results
}

interface Search<R> {
  /** The only app to search; null for all. */
  readonly app: AppId | null
  readonly limit: number
  /** Returns apps that may have such rows, without locking them. */
  findApps(): Promise<readonly AppId[]>
  /** Returns rows of an app, or of all apps if `app` is null, locked if the caller needs it. */
  lock(app: AppId | null, limit: number): Promise<readonly R[]>
}

/**
 * Locks or searches rows of several apps: app by app on a cluster, which refuses locks on several
 * nodes, and some joins.
 */
export async function lockInApps<R>(db: Db, search: Search<R>): Promise<readonly R[]> {
  const { app, limit, findApps, lock } = search
  if (app !== null || !isDistributed(db)) return lock(app, limit)
  const locked: R[] = []
  for (const each of await findApps()) {
    if (locked.length >= limit) break
    locked.push(...(await lock(each, limit - locked.length)))
  }
  return locked
}

/** Returns all apps by id, for searches that no index narrows. */
export const listApps = async (db: Db): Promise<AppId[]> => (await listAppIds(db)).map(appId)
