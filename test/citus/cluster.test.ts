import { execFile } from 'node:child_process'
import { stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Client } from 'pg'
import { afterAll, beforeAll, expect, inject, it, describe } from 'vitest'
import {
  type Deployment,
  type TestApp,
  createApp,
  startDeployment,
} from '../support/deployment/deployment.ts'
import { createRandom } from '../support/random.ts'
import { type Node, at, listNodes } from '../support/run/citus-cluster.ts'
import { endMinute, testSeed } from '../support/run/sizes.ts'
import { type Books, keepBooks } from '../support/usage/books.ts'
import {
  derivedFaults,
  differing,
  ledgerFaults,
  readStreams,
  ticketLines,
} from '../support/usage/database-lines.ts'
import { type Story, deliveries } from '../support/usage/events.ts'
import { createRates } from '../support/usage/rates.ts'

const run = promisify(execFile)
const minute = 60_000_000
const end = (endMinute ?? Math.floor(Date.now() / 60_000) - 1) * minute
const start = end - 60 * minute
const clusterUrl = inject('parts').databaseUrl ?? ''

const observations = createRates(createRandom(testSeed + 1), { start, end })
let service: Deployment
let apps: TestApp[]
beforeAll(async () => {
  service = await startDeployment()
  apps = []
  for (let number = 0; number < 4; number++) apps.push(await createApp(service, 5_000_000n))
  for (const { at: micros, attosPerEth } of observations)
    await service.pool.query(
      `insert into rates (usd_attos_per_eth, source, observed_at)
       values ($1, 'test', timestamptz 'epoch' + $2::bigint * interval '1 microsecond')`,
      [attosPerEth, micros],
    )
}, 240_000)
afterAll(() => service?.stop(), 60_000)

function createStory(seed: number): Story {
  const subjects = Array.from({ length: 100 }, (_, i) => ({
    clientId: apps[i % apps.length]?.clientId ?? '',
    externalUserId: `user-${seed}-${i}`,
    heavy: i % 20 === 0,
  }))
  return { seed, count: 8_000, subjects, observations, start, end }
}

/** Delivers a story; `act` runs when a third of it is consumed. Returns once all is priced. */
async function deliver(story: Story, act: () => Promise<void>): Promise<Books> {
  const before = (await readStreams(service.pool)).offsets
  const delivering = service.line.deliver(deliveries(story))
  delivering.catch(() => {})
  await until(
    async () =>
      (await readStreams(service.pool)).offsets - before > BigInt(Math.floor(story.count / 3)),
  )
  await act()
  await delivering
  await service.operator.metering.recordRate({ usdPerEth: '3000', source: 'test' })
  await until(async () => {
    const { unpricedTickets } = await service.operator.metering.getMeteringStatus({})
    return unpricedTickets === '0'
  })
  return keepBooks(story, { from: start, until: end })
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  for (const stop = Date.now() + 120_000; Date.now() < stop; await sleep(50))
    if (await isSo().catch(() => false)) return
  throw new Error('not in time')
}

/** Compares the tickets of all stories, and every derived figure, with independent sums. Returns what differs. */
async function findDifferences(stories: readonly Books[]): Promise<unknown[]> {
  const expected = new Map(
    stories
      .flatMap(({ users }) => [...users])
      .filter(([, { count }]) => count > 0n)
      .map(([key, { count, fee, cost, fingerprint }]) => [
        key,
        `${count} ${fee} ${cost} ${fingerprint}`,
      ]),
  )
  expect(expected.size).toBeGreaterThan(50)
  const found: unknown[] = [
    ...differing(expected, await ticketLines(service.pool)),
    ...(await derivedFaults(service.pool)),
    ...(await ledgerFaults(service.pool)),
  ]
  for await (const { difference } of service.operator.books.verifyBooks({ clientId: undefined }))
    if (difference) found.push(difference)
  return found
}

async function query<T extends object>(node: Node, text: string): Promise<T[]> {
  const client = new Client({ connectionString: at(clusterUrl, node) })
  await client.connect()
  try {
    return (await client.query<T>(text)).rows
  } finally {
    await client.end()
  }
}

/** Crashes the PostgreSQL of a node of this machine and starts it again after two seconds. */
async function crash(node: Node): Promise<void> {
  const [server] = await query<{ data: string; bin: string }>(
    node,
    `select current_setting('data_directory') as data,
            (select setting from pg_config where name = 'BINDIR') as bin`,
  )
  if (!server) throw new Error('the node does not answer')
  const { uid, gid } = await stat(server.data)
  const control = (...args: string[]) =>
    run(`${server.bin}/pg_ctl`, ['-D', server.data, '-w', ...args], {
      uid,
      gid,
      cwd: '/',
      env: { HOME: server.data },
    })
  await control('-m', 'immediate', 'stop')
  await sleep(2_000)
  await control('-l', '/dev/null', 'start')
}

/** Moves the shards of an app to the other worker. */
async function move(app: TestApp, workers: readonly Node[]): Promise<void> {
  const { rows } = await service.pool.query<{ shard: bigint; port: number }>(
    `
    select s.shardid as shard, s.nodeport as port
    from clients c
    join citus_shards s on s.table_name = 'balances'::regclass
    where c.client_id = $1 and s.shardid = get_shard_id_for_distribution_column('balances', c.app_id)`,
    [app.clientId],
  )
  const [place] = rows
  const from = workers.find(({ port }) => port === place?.port)
  const to = workers.find(({ port }) => port !== place?.port)
  if (!place || !from || !to) throw new Error('the app is on no worker')
  await service.pool.query(
    `select citus_move_shard_placement($1, $2, $3, $4, $5, shard_transfer_mode => 'block_writes')`,
    [place.shard, from.host, from.port, to.host, to.port],
  )
  const after = await service.pool.query(
    'select from citus_shards where shardid = $1 and nodeport = $2',
    [place.shard, to.port],
  )
  expect(after.rowCount).toBe(1)
}

describe('a cluster that charges users', () => {
  const stories: Books[] = []

  it('loses nothing when a worker crashes and starts again', async () => {
    const [, worker] = await listNodes(clusterUrl)
    if (!worker) throw new Error('the cluster has no worker')
    stories.push(await deliver(createStory(testSeed), () => crash(worker)))
    expect(await findDifferences(stories)).toEqual([])
  }, 240_000)

  it('loses nothing when an app moves to another worker', async () => {
    const [, ...workers] = await listNodes(clusterUrl)
    const [app] = apps
    if (!app) throw new Error('no app')
    stories.push(await deliver(createStory(testSeed + 100), () => move(app, workers)))
    expect(await findDifferences(stories)).toEqual([])
  }, 240_000)
})
