import { randomBytes } from 'node:crypto'
import { Client, Pool } from 'pg'
import { distribute } from '../../../core/db/distribution/distribute.ts'
import { migrate } from '../../../core/db/migrate.ts'
import type { TestDatabase } from './postgres.ts'
import { type Cluster, oneAtATime } from './database-cluster.ts'

export interface Node {
  readonly host: string
  readonly port: number
}

/**
 * Creates an empty database that the coordinator and the first workers of the cluster at `url`
 * share.
 */
export async function createEmptyDatabase(url: string, workers = Infinity): Promise<TestDatabase> {
  const name = `tollgate_test_${randomBytes(7).toString('hex')}`
  const nodes = (await listNodes(url)).slice(0, workers + 1)
  const onAll = async (statement: string): Promise<void> => {
    for (const node of nodes) await withClient(at(url, node), (client) => client.query(statement))
  }
  await onAll(`create database ${name}`)
  await joinNodes(url, name, nodes)
  return {
    url: at(url, { name }),
    drop: () => onAll(`drop database if exists ${name} with (force)`),
  }
}

/** Like `createEmptyDatabase`, with a migrated and, if it has a worker, distributed schema. */
export async function createMigratedDatabase(url: string, workers: number): Promise<TestDatabase> {
  const database = await createEmptyDatabase(url, workers)
  await migrate(database.url)
  if (workers > 0) await distribute({ url: database.url, setting: 'CITUS_URL' }, { shards: 4 })
  return database
}

/**
 * Uses the Citus cluster whose coordinator is at `url`; its user must be allowed to create
 * databases on every node. Each database has a migrated and distributed schema: its template is
 * copied on each node, so that the copies have the template's metadata.
 */
export async function openCitusCluster(url: string): Promise<Cluster> {
  const run = `tollgate_test_${randomBytes(4).toString('hex')}`
  const nodes = await listNodes(url)
  const admins = nodes.map(({ host, port }) => {
    const pool = new Pool({ connectionString: at(url, { host, port }), max: 1 })
    return pool.on('error', () => {})
  })
  const [coordinator] = admins
  if (!coordinator) throw new Error('the coordinator is not among the nodes of its cluster')
  const onAll = async (statement: string): Promise<void> => {
    await Promise.all(admins.map((admin) => admin.query(statement)))
  }
  const names = new Set<string>()
  const dropNamed = async (name: string): Promise<void> => {
    await onAll(`drop database if exists ${name} with (force)`)
    names.delete(name)
  }

  const template = `${run}_template`
  names.add(template)
  await onAll(`create database ${template}`)
  await joinNodes(url, template, nodes)
  await migrate(at(url, { name: template }))
  await distribute({ url: at(url, { name: template }), setting: 'CITUS_URL' }, { shards: 4 })

  const clone = async (): Promise<string> => {
    const name = `${run}_${names.size}_${randomBytes(3).toString('hex')}`
    names.add(name)
    await Promise.all(admins.map((admin) => copyTemplate(admin, template, name)))
    // A copy does not include the settings of the template.
    await coordinator.query(
      `alter database ${name} set citus.multi_shard_modify_mode to sequential;
       alter database ${name} set citus.enable_unsafe_triggers to on`,
    )
    return at(url, { name })
  }
  const { rows } = await coordinator.query<{ server_version: string }>('show server_version')
  return {
    version: `${rows[0]?.server_version.split(' ')[0] ?? 'unknown'} with Citus`,
    host: new URL(url).host,
    create: oneAtATime(clone),
    drop: (copy) => dropNamed(new URL(copy).pathname.slice(1)),
    stop: async () => {
      await Promise.allSettled([...names].map(dropNamed))
      await Promise.all(admins.map((admin) => admin.end()))
    },
  }
}

/** Returns the nodes of the cluster, the coordinator first. */
export async function listNodes(url: string): Promise<Node[]> {
  return withClient(url, async (client) => {
    const { rows } = await client.query<Node>(`
      select nodename as host, nodeport as port
      from pg_dist_node
      where noderole = 'primary'
      order by groupid`)
    return rows
  })
}

async function joinNodes(url: string, name: string, nodes: readonly Node[]): Promise<void> {
  const [coordinator, ...workers] = nodes
  for (const node of nodes)
    await withClient(at(url, { ...node, name }), (client) => client.query('create extension citus'))
  await withClient(at(url, { name }), async (client) => {
    await client.query('select citus_set_coordinator_host($1, $2)', [
      coordinator?.host,
      coordinator?.port,
    ])
    for (const { host, port } of workers)
      await client.query('select citus_add_node($1, $2)', [host, port])
  })
}

/** Copies the template after it ended the connections of Citus's maintenance daemon. */
async function copyTemplate(admin: Pool, template: string, name: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    await admin.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [
      template,
    ])
    try {
      await admin.query(`create database ${name} template ${template}`)
      return
    } catch (error) {
      if (attempt === 40 || !(error instanceof Error && /being accessed/.test(error.message)))
        throw error
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
}

async function withClient<T>(url: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

/** Returns `url` with another host, port or database. */
export function at(url: string, { host, port, name }: Partial<Node> & { name?: string }): string {
  const changed = new URL(url)
  if (host !== undefined) changed.hostname = host
  if (port !== undefined) changed.port = String(port)
  if (name !== undefined) changed.pathname = `/${name}`
  return changed.href
}
