import { once } from 'node:events'
import { type Socket, connect, createServer } from 'node:net'
import { Redis } from 'ioredis'
import { describe, expect, it, onTestFinished } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { connectRedis, redisAnswers } from '../../../core/lib/redis.ts'
import { redisUrl } from '../../support/run/redis.ts'

describe('a Redis that is not there', () => {
  it('does not answer, and fails commands at once', async () => {
    const redis = connectRedis({
      url: 'redis://127.0.0.1:1',
      commandTimeoutMs: 50,
      whileAway: 'fail',
      log: silentLog(),
    })
    onTestFinished(() => redis.disconnect())
    expect(await redisAnswers(redis)).toBe(false)
    await expect(redis.get('x')).rejects.toThrow(/closed|writeable/)
  })
})

// Without Redis these tests are not defined, so they are not reported as skipped.
describe.each([redisUrl() ?? []].flat())('a subscriber of Redis at %s', (url) => {
  it('survives reconnections on which SUBSCRIBE is never answered', async () => {
    const proxy = await startProxy(url)
    const subscriber = connectRedis({
      url: proxy.url,
      commandTimeoutMs: 50,
      whileAway: 'fail',
      log: silentLog(),
    })
    onTestFinished(() => subscriber.disconnect())
    const unhandled: unknown[] = []
    const note = (error: unknown) => void unhandled.push(error)
    process.on('unhandledRejection', note)
    onTestFinished(() => void process.off('unhandledRejection', note))
    const channel = `test-${Math.random()}`
    const outcomes: string[] = []
    subscriber.on('ready', () => {
      subscriber.subscribe(channel).then(
        () => outcomes.push('subscribed'),
        (error: Error) => {
          outcomes.push(error.message)
          subscriber.disconnect(true)
        },
      )
    })
    await expect.poll(() => outcomes, { timeout: 10_000 }).toEqual(['subscribed'])

    proxy.swallowSubscribe(true)
    proxy.cut()
    await expect.poll(() => outcomes.length, { timeout: 10_000 }).toBeGreaterThanOrEqual(3)
    expect(outcomes.slice(1, 3)).toEqual(['Command timed out', 'Command timed out'])

    proxy.swallowSubscribe(false)
    await expect.poll(() => outcomes.at(-1), { timeout: 10_000 }).toBe('subscribed')
    const received = once(subscriber, 'message')
    const publisher = new Redis(url)
    onTestFinished(() => publisher.disconnect())
    await publisher.publish(channel, 'again')
    expect(await received).toEqual([channel, 'again'])
    expect(unhandled).toEqual([])
  })

  it('connects again when its connection is lost without a sign', async () => {
    const proxy = await startProxy(url)
    const subscriber = connectRedis({
      url: proxy.url,
      commandTimeoutMs: 50,
      whileAway: 'fail',
      log: silentLog(),
    })
    onTestFinished(() => subscriber.disconnect())
    await once(subscriber, 'ready')
    await subscriber.subscribe(`test-${Math.random()}`)
    proxy.silence()
    let isBack = false
    subscriber.once('ready', () => void (isBack = true))
    // A ping after three seconds, and two seconds without an answer.
    await expect.poll(() => isBack, { timeout: 15_000 }).toBe(true)
  }, 20_000)
})

/** A TCP proxy of Redis that can swallow SUBSCRIBE and cut its connections. */
async function startProxy(target: string) {
  const { hostname, port } = new URL(target)
  const open = new Set<Socket>()
  let swallows = false
  const silenced = new Set<Socket>()
  const server = createServer((socket) => {
    const upstream = connect(Number(port || 6379), hostname)
    for (const [one, other] of [
      [socket, upstream],
      [upstream, socket],
    ] as const) {
      open.add(one)
      one.on('error', () => one.destroy())
      one.on('close', () => {
        open.delete(one)
        other.destroy()
      })
    }
    upstream.on('data', (bytes) => silenced.has(upstream) || socket.write(bytes))
    socket.on('data', (bytes) => {
      const isSubscribe = bytes.toString('latin1').toLowerCase().includes('\r\nsubscribe\r\n')
      if (!(swallows && isSubscribe)) upstream.write(bytes)
    })
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const cut = () => {
    for (const socket of open) socket.destroy()
  }
  onTestFinished(() => {
    server.close()
    cut()
  })
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port')
  return {
    url: `redis://127.0.0.1:${address.port}`,
    cut,
    /** Open connections stay open, and nothing arrives over them any more. */
    silence: () => {
      for (const socket of open) silenced.add(socket)
    },
    swallowSubscribe: (yes: boolean) => void (swallows = yes),
  }
}
