import type { Client } from 'pg'
import { type Address, lockSchema, withClient } from '../connect.ts'
import { type Placement, hasCitus, listPlacements, placeTables } from './place.ts'

export interface DistributeOptions {
  /** Number of shards of each distributed table. */
  readonly shards: number
  readonly isDryRun?: boolean
}

/**
 * Distributes the migrated schema of a Citus coordinator. Returns the tables that it placed, or
 * would place. Does nothing for tables that are placed already, so that it continues after a crash.
 */
export const distribute = (
  address: Address,
  { shards, isDryRun = false }: DistributeOptions,
): Promise<Placement[]> =>
  withClient(address, async (client) => {
    await requireCluster(client, address.setting)
    await lockSchema(client)
    const placements = await listPlacements(client)
    if (isDryRun || placements.length === 0) return placements
    await requireStopped(client, address.setting)
    await placeTables(client, placements, shards)
    return placements
  })

/** Throws unless the database is at the coordinator of a cluster with a worker. */
async function requireCluster(client: Client, setting: string): Promise<void> {
  if (!(await hasCitus(client)))
    throw new Error(
      `${setting}: the database does not have the extension citus; create it on each node first (docs/citus.md)`,
    )
  const { rows } = await client.query<{ is_here: boolean; is_known: boolean; workers: number }>(`
    select (select groupid = 0 from pg_dist_local_group) as is_here,
           exists (select from pg_dist_node where groupid = 0) as is_known,
           (select count(*)::int from pg_dist_node where groupid <> 0 and isactive) as workers`)
  const [node] = rows
  if (node?.is_here !== true)
    throw new Error(`${setting}: this node is a worker of a Citus cluster; use the coordinator`)
  if (!node.is_known)
    throw new Error(
      `${setting}: the cluster does not know its coordinator; run citus_set_coordinator_host first (docs/citus.md)`,
    )
  if (node.workers === 0)
    throw new Error(`${setting}: the cluster has no worker; run citus_add_node first`)
}

/** Throws if a core or collector is connected: only a restart notices that tables are distributed. */
async function requireStopped(client: Client, setting: string): Promise<void> {
  const { rows } = await client.query<{ name: string }>(`
    select application_name as name
    from pg_stat_activity
    where datname = current_database() and application_name in ('tollgate-core', 'tollgate-collector')
    limit 1`)
  const [row] = rows
  if (row)
    throw new Error(
      `${setting}: ${row.name} is connected to the database; stop every core and collector first`,
    )
}
