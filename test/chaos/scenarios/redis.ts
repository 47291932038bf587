import { request } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { startOwnPostgres } from '../../support/run/own-postgres.ts'
import { type RedisCluster, startRedisCluster } from '../clusters/redis.ts'
import type { Product } from '../product.ts'
import { type Findings, type Load, type Outage, type Scenario, secondsOf } from '../run.ts'

const failovers = 3
const channel = 'tollgate:invalidations'
/** Both cores and both sidecars. */
const subscribers = 4
const perAddress = 20
const upMs = 30_000
const refusedWithinMs = 5_000

export const redis: Scenario = {
  name: 'redis',
  title: 'Redis fails over',
  setup:
    'A Redis with two replicas and three Sentinels (`deploy/redis/sentinel.conf`), and one PostgreSQL. Both signers push ' +
    'their events to the sidecars.',
  start: async (stops, { folder }) => {
    const [cluster, database] = await Promise.all([
      startRedisCluster(stops, { folder: join(folder, 'redis') }),
      startOwnPostgres(),
    ])
    stops.push(database.stop)
    return {
      databaseUrl: database.url,
      redisUrl: cluster.url,
      kafka: null,
      settings: { RATE_LIMITS: 'on', RATE_LIMIT_ADDRESS: String(perAddress) },
      outages: (product, load) =>
        Array.from({ length: failovers }, (_, i) => failOver(cluster, { product, load, round: i })),
    }
  },
}

/**
 * Kills the master. While it is down, and after another took over, a user is deactivated at one core
 * and must be refused at the sidecar of the other, and an address that asks too often must be
 * refused.
 */
function failOver(
  cluster: RedisCluster,
  { product, load, round }: { product: Product; load: Load; round: number },
): Outage {
  const notes: string[] = []
  const faults: string[] = []
  let restart = async (): Promise<void> => {}

  async function revoke(when: string, user: { name: string; key: string }): Promise<void> {
    const began = performance.now()
    await load.writers[0]?.deactivate(user.name)
    for (const until = began + upMs; performance.now() < until; await sleep(20)) {
      if ((await load.signers.call(1, user.key)) !== 401) continue
      const ms = performance.now() - began
      notes.push(
        `${when}, a user deactivated at one core is refused at the other's sidecar after ${secondsOf(ms)}`,
      )
      if (ms > refusedWithinMs)
        faults.push(`${when}, it took longer than ${secondsOf(refusedWithinMs)}`)
      return
    }
    faults.push(`${when}, a deactivated user is not refused`)
  }

  /** An address may make a limited number of requests a minute, of which one may end meanwhile. */
  async function limit(when: string, address: string): Promise<void> {
    const statuses: number[] = []
    for (let i = 0; i <= 2 * perAddress && statuses.at(-1) !== 429; i++)
      statuses.push(await askToken(product.platformUrl, address))
    if (statuses.at(-1) !== 429) faults.push(`${when}, an address is not limited`)
    if (statuses.some((status) => status >= 500)) faults.push(`${when}, a limited route failed`)
  }

  async function act(): Promise<number> {
    const users = await Promise.all([0, 1].map((i) => newUser(load, `revoked-${round}-${i}`)))
    const old = await cluster.masterPort()
    const from = performance.now()
    restart = await cluster.killMaster()
    const [first, second] = users
    if (first) await revoke('Without Redis', first)
    await limit('without Redis', `127.0.${round + 1}.2`)
    const back = await subscribedAgain(cluster, old)
    if (back === null) faults.push('the subscribers are not at the new master')
    else notes.push(`all four subscribers are at the new master after ${secondsOf(back - from)}`)
    if (second) await revoke('After it', second)
    await limit('after it', `127.0.${round + 1}.3`)
    return from
  }

  async function after(): Promise<Findings> {
    await restart()
    // The replica that returns must be known before the next failover.
    await sleep(5_000)
    return { notes, faults }
  }

  return { what: 'the master is killed (SIGKILL)', writesWithinMs: 1_000, act, after }
}

/** Creates a user whose key the second sidecar has in memory. */
async function newUser(load: Load, name: string): Promise<{ name: string; key: string }> {
  const key = (await load.writers[0]?.addUser(name)) ?? ''
  const status = await load.signers.call(1, key)
  if (status !== 200) throw new Error(`the first call of ${name} was answered with ${status}`)
  return { name, key }
}

/** Returns when all processes receive invalidations from another master than `old`. */
async function subscribedAgain(cluster: RedisCluster, old: number): Promise<number | null> {
  for (const until = performance.now() + upMs; performance.now() < until; await sleep(50)) {
    const port = await cluster.masterPort()
    if (port !== old && (await countSubscribers(port)) === subscribers) return performance.now()
  }
  return null
}

async function countSubscribers(port: number): Promise<number> {
  const client = new Redis({ host: '127.0.0.1', port, retryStrategy: () => null })
  client.on('error', () => {})
  try {
    const answer = await client.call('pubsub', 'numsub', channel)
    return Array.isArray(answer) ? Number(answer[1]) : 0
  } catch {
    return 0
  } finally {
    client.disconnect()
  }
}

/** Sends a token request without parameters from an address of this machine. */
function askToken(platformUrl: string, localAddress: string): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<number>()
  const headers = { 'content-type': 'application/x-www-form-urlencoded', 'content-length': '0' }
  const outgoing = request(
    `${platformUrl}/api/v1/oidc/token`,
    { method: 'POST', headers, localAddress, agent: false },
    (response) => {
      response.resume()
      resolve(response.statusCode ?? 0)
    },
  )
  outgoing.on('error', () => resolve(599))
  outgoing.end()
  return promise
}
