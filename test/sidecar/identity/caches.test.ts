import { randomUUID } from 'node:crypto'
import { Redis } from 'ioredis'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { fingerprint } from '../../../core/lib/crypto.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createVersions } from '../../../sidecar/cache/cached-state.ts'
import { createRedisCache } from '../../../sidecar/cache/redis.ts'
import { redisUrl } from '../../support/run/redis.ts'
import { startCoreDouble } from '../../fakes/sidecar-core.ts'
import { startHarness, until } from '../support.ts'
import { firstCall } from '../signer-bodies.ts'

const url = redisUrl()
const urls = url ? [url] : []

describe.each(urls)('the cache in Redis', (url) => {
  it('returns an entry until it expires or is deleted', async () => {
    const cache = createRedisCache({ url, log: silentLog() })
    onTestFinished(() => cache.stop())
    await until(() => cache.ready())
    const key = `tollgate:test:${randomUUID()}`
    expect(await cache.get(key)).toBeNull()
    await cache.set(key, 'zoë', 1)
    expect(await cache.get(key)).toBe('zoë')
    await sleep(1100)
    expect(await cache.get(key)).toBeNull()
    await cache.set(key, 'x', 10)
    await cache.del(key)
    expect(await cache.get(key)).toBeNull()
  })
})

describe('the cache without a running Redis', () => {
  it('fails at once and never prevents a decision', async () => {
    const away = 'redis://127.0.0.1:1'
    const cache = createRedisCache({ url: away, log: silentLog() })
    onTestFinished(() => cache.stop())
    const started = performance.now()
    await expect(cache.get('x')).rejects.toThrow(/writeable|closed|retries|ECONNREFUSED/i)
    expect(await cache.ready()).toBe(false)
    expect(performance.now() - started).toBeLessThan(2_000)
    const { authorize, sidecar, metrics } = await startHarness({ env: { REDIS_URL: away } })
    expect((await authorize(firstCall())).json['status']).toBe(200)
    expect(await sidecar.ready()).toEqual({ core: 'ok', redis: 'degraded', escrow: 'ok' })
    expect(await metrics.metrics()).toMatch(
      /tollgate_sidecar_dependency_failures_total\{dependency="cache"[^}]*\} [1-9]/,
    )
  })
})

describe.each(urls)('several sidecars on one Redis', (url) => {
  const redis = { REDIS_URL: url }

  async function pair() {
    const core = await startCoreDouble()
    onTestFinished(core.stop)
    const key = `sk_live_${randomUUID()}`
    const keyId = randomUUID()
    const first = await startHarness({ core, env: redis })
    const second = await startHarness({ core, env: redis })
    core.keys.set(key, { clientId: 'acme', externalUserId: 'alice', keyId })
    await until(
      async () =>
        (await first.sidecar.ready())['redis'] === 'ok' &&
        (await second.sidecar.ready())['redis'] === 'ok',
    )
    // Wait for both links of each sidecar, because each new link makes earlier reads stale.
    await sleep(100)
    const body = firstCall({ key })
    return { core, first, second, key, keyId, body }
  }

  it('look up a key once in total', async () => {
    const { core, first, second, body } = await pair()
    expect((await first.authorize(body)).json['status']).toBe(200)
    await sleep(50)
    expect((await second.authorize(body)).json['status']).toBe(200)
    expect(core.calls.verifyApiKey).toBe(1)
  })

  it('do not accept a revoked key from Redis', async () => {
    const { core, first, second, key, keyId, body } = await pair()
    await first.authorize(body)
    const client = new Redis(url)
    onTestFinished(() => client.disconnect())
    await client.set(`tollgate:revoked:${keyId}`, '1', 'EX', 60)
    core.keys.delete(key)
    expect((await second.authorize(body)).json['status']).toBe(401)
  })

  it('reject a forged entry, an old one, and one of another key', async () => {
    const { core, first, key, body } = await pair()
    const other = `sk_live_${randomUUID()}`
    core.keys.set(other, { clientId: 'acme', externalUserId: 'bob', keyId: randomUUID() })
    await first.authorize(body)
    await first.authorize(firstCall({ key: other }))
    const client = new Redis(url)
    onTestFinished(() => client.disconnect())
    const nameOf = (text: string): string => `tollgate:identity:${fingerprint(text)}`
    await until(async () => (await client.exists(nameOf(key), nameOf(other))) === 2)
    const [own, others] = await client.mget(nameOf(key), nameOf(other))
    // Other sidecars accept the unchanged entry without another lookup.
    const calls = core.calls.verifyApiKey
    const reader = await startHarness({ core, env: redis })
    await until(async () => (await reader.sidecar.ready())['redis'] === 'ok')
    expect((await reader.authorize(body)).json['auth_id']).toBe('acme:alice')
    expect(core.calls.verifyApiKey).toBe(calls)
    core.keys.delete(other)
    const forged = [
      own ?? '',
      String(others).replace('bob', 'alice'),
      String(others).slice(43),
      `${'A'.repeat(43)}${String(others).slice(43)}`,
      '{}',
    ]
    for (const text of forged) {
      await client.set(nameOf(other), text, 'EX', 60)
      const fresh = await startHarness({ core, env: redis })
      await until(async () => (await fresh.sidecar.ready())['redis'] === 'ok')
      expect((await fresh.authorize(firstCall({ key: other }))).json['status']).toBe(401)
      expect(await fresh.metrics.metrics()).toMatch(/forge[a-z_]*(?:\{[^}]*\})? 1/)
    }
  })

  it('reject an expired entry that was written again', async () => {
    const core = await startCoreDouble()
    onTestFinished(core.stop)
    const key = `sk_live_${randomUUID()}`
    core.keys.set(key, { clientId: 'acme', externalUserId: 'alice', keyId: randomUUID() })
    const writer = await startHarness({ core, env: redis })
    await until(async () => (await writer.sidecar.ready())['redis'] === 'ok')
    await writer.authorize(firstCall({ key }))
    const client = new Redis(url)
    onTestFinished(() => client.disconnect())
    const name = `tollgate:identity:${fingerprint(key)}`
    await until(async () => (await client.exists(name)) === 1)
    const old = (await client.get(name)) ?? ''
    core.keys.delete(key)
    await client.set(name, old)
    onTestFinished(async () => void (await client.del(name)))
    const reader = await startHarness({ core, env: redis })
    await until(async () => (await reader.sidecar.ready())['redis'] === 'ok')
    reader.clock.seconds += 301
    expect((await reader.authorize(firstCall({ key }))).json['status']).toBe(401)
  })

  it('drop the entry named in a message on the channel', async () => {
    const { core, first, key, keyId, body } = await pair()
    await first.authorize(body)
    core.keys.delete(key)
    const client = new Redis(url)
    onTestFinished(() => client.disconnect())
    for (const hostile of ['nope', '{}', '{"kind":7,"id":[]}', '[]'])
      await client.publish('tollgate:invalidations', hostile)
    expect((await first.authorize(body)).json['status']).toBe(200)
    await client.publish('tollgate:invalidations', JSON.stringify({ kind: 'key', id: keyId }))
    await until(async () => (await first.authorize(body)).json['status'] === 401)
  })
})

describe('an invalidation of access without Redis', () => {
  it('asks core for money again, and keeps the identity', async () => {
    const { core, authorize } = await startHarness()
    const body = firstCall()
    expect((await authorize(body)).json['status']).toBe(200)
    await until(core.watching)
    const [verified, lent] = [core.calls.verifyApiKey, core.calls.lend]
    core.invalidate('access', 'user-of-acme:alice')
    await until(async () => {
      await authorize(body)
      return core.calls.lend > lent
    })
    expect(core.calls.verifyApiKey).toBe(verified)
  })
})

describe('an outage of both invalidation links', () => {
  it('makes all earlier reads stale', async () => {
    const core = await startCoreDouble()
    const { authorize } = await startHarness({ core })
    const body = firstCall()
    expect((await authorize(body)).json['status']).toBe(200)
    core.stop()
    expect((await authorize(body)).json['status']).toBe(200)
    const again = await startCoreDouble(core.port)
    onTestFinished(again.stop)
    await until(again.watching)
    await until(async () => (await authorize(body)).json['status'] === 401)
  })
})

describe('versions', () => {
  it('make only earlier reads of the invalidated id stale', () => {
    const versions = createVersions({ max: 2 })
    const before = versions.current()
    expect(versions.isStale('a', before)).toBe(false)
    versions.invalidate('a')
    expect([
      versions.isStale('a', before),
      versions.isStale('b', before),
      versions.isStale(null, before),
    ]).toEqual([true, false, false])
    expect(versions.isStale('a', versions.current())).toBe(false)
  })

  it('make all earlier reads stale after an eviction', () => {
    const versions = createVersions({ max: 2 })
    const before = versions.current()
    for (const id of ['a', 'b', 'c']) versions.invalidate(id)
    expect(versions.isStale('z', before)).toBe(true)
    expect(versions.isStale('z', versions.current())).toBe(false)
    versions.invalidateAll()
    expect(versions.isStale(null, versions.current() - 1)).toBe(true)
  })
})
