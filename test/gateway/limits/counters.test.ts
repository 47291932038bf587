import { Redis } from 'ioredis'
import { describe, expect, inject, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createCounters } from '../../../gateway/limits/counters.ts'
import { startProxy } from '../../core/support.ts'
import { clock, halfPast, now } from './support.ts'

describe('counters', () => {
  it('of this process reset when the minute ends', async () => {
    const counters = createCounters({ redisUrl: undefined, log: silentLog(), now })
    expect([
      await counters.add('x'),
      await counters.add('x'),
      await counters.read('x'),
      await counters.read('y'),
    ]).toEqual([1, 2, 2, 0])
    clock.at += 60_000
    expect(await counters.read('x')).toBe(0)
  })

  it('keep a longer window until its end', async () => {
    clock.at = halfPast
    const counters = createCounters({ redisUrl: undefined, log: silentLog(), now })
    const reserve = async () => (await counters.reserve('x', 600)).sum
    expect([await reserve(), counters.resetSeconds(600)]).toEqual([1, 570])
    clock.at += 569_000
    expect(await reserve()).toBe(2)
    clock.at += 1_000
    expect(await reserve()).toBe(1)
  })
})

// Without Redis these tests are not defined, so they are not reported as skipped.
describe.each([inject('parts').redisUrl ?? []].flat())('counters at %s', (redisUrl) => {
  it('are shared through Redis, and each key expires', async () => {
    const name = `test-${Math.random()}`
    const [one, two] = [0, 1].map(() => createCounters({ redisUrl, log: silentLog(), now }))
    const probe = new Redis(redisUrl)
    await probe.ping()
    // Each counter is local until it is connected.
    const early = `${name}-early`
    await expect
      .poll(async () => (await one?.add(early)) !== undefined && (await two?.read(early)), {
        timeout: 10_000,
      })
      .toBeGreaterThan(0)
    await one?.add(name)
    const before = Number(await two?.read(name))
    expect(await one?.add(name)).toBe(before + 1)
    const [key = ''] = await probe.keys(`tollgate:limit:*:${name}`)
    expect(await probe.ttl(key)).toBeGreaterThan(0)
    await one?.reserve(`${name}-long`, 600)
    expect((await two?.reserve(`${name}-long`, 600))?.sum).toBe(2)
    const [long = ''] = await probe.keys(`tollgate:limit:*:${name}-long`)
    expect(await probe.ttl(long)).toBeGreaterThan(600)
    for (const each of [one, two]) each?.stop()
    probe.disconnect()
  })

  it('continue in this process while Redis hangs, and wait for it at most once a second', async () => {
    const { hostname, port } = new URL(redisUrl)
    const proxy = await startProxy({ host: hostname, port: Number(port) })
    const counters = createCounters({
      redisUrl: `redis://127.0.0.1:${proxy.port}`,
      log: silentLog(),
      now,
    })
    const name = `test-${Math.random()}`
    await expect.poll(() => counters.add(name)).toBeGreaterThan(0)
    const seen = await counters.read(name)
    proxy.mode('hang')
    const began = performance.now()
    for (let i = 1; i <= 20; i++) expect(await counters.add(name)).toBe(seen + i)
    expect(performance.now() - began).toBeLessThan(2_500)
    counters.stop()
    proxy.stop()
  })
})
