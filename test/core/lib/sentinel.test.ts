import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { connectRedis } from '../../../core/lib/redis.ts'
import { createInvalidations } from '../../../core/shared/invalidations.ts'
import { type RedisCluster, startRedisCluster } from '../../chaos/clusters/redis.ts'
import { startParts } from '../../support/deployment/parts.ts'
import { findProgram } from '../../support/run/programs.ts'

describe.runIf(findProgram('redis-server'))('a client of Redis Sentinels', () => {
  let cluster: RedisCluster & { stop(): Promise<void> }
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tollgate-sentinel-'))
    cluster = await startParts((stops) => startRedisCluster(stops, { folder, downAfterMs: 500 }))
  }, 60_000)
  afterAll(async () => {
    await cluster?.stop()
    await rm(folder, { recursive: true, force: true })
  })
  const connect = () =>
    connectRedis({
      url: cluster.url,
      commandTimeoutMs: 1_000,
      whileAway: 'wait',
      log: silentLog(),
    })

  it('follows the master, and receives invalidations again after a failover', async () => {
    const [publisher, subscriber] = [connect(), connect()]
    const far = createInvalidations({
      redis: { publisher: connect(), subscriber: connect() },
      tombstoneSeconds: 60,
      log: silentLog(),
    })
    const near = createInvalidations({
      redis: { publisher, subscriber },
      tombstoneSeconds: 60,
      log: silentLog(),
    })
    const heard = new Set<string>()
    near.watch(({ id }) => heard.add(id))
    await once(subscriber, 'ready')
    await expect.poll(() => publish(far, heard, 'before'), { timeout: 10_000 }).toBe(true)
    const before = await cluster.masterPort()
    await cluster.killMaster()
    await expect.poll(() => cluster.masterPort(), { timeout: 20_000 }).not.toBe(before)
    await expect.poll(() => publish(far, heard, 'after'), { timeout: 20_000 }).toBe(true)
    expect(await publisher.get('tollgate:revoked:after')).toBe('1')
    near.stop()
    far.stop()
  }, 60_000)
})

/** Publishes an invalidation, and returns whether the other process has heard it. */
async function publish(
  from: ReturnType<typeof createInvalidations>,
  heard: ReadonlySet<string>,
  id: string,
): Promise<boolean> {
  await from.publish({ kind: 'key', id })
  await sleep(50)
  return heard.has(id)
}
