import { type Socket, connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { basicOf } from '../../core/support.ts'
import { type Real, type RealApp, startReal } from '../../gateway/real.ts'
import { asRecord } from '../../gateway/support.ts'
import { registerSecret } from '../../support/run/secrecy.ts'

/** Bounds in core/usage/feed/places.ts. */
const perUser = 5
const perApp = 100
const perOwner = 150
const reserved = 4

interface Opener {
  readonly path: string
  readonly authorization: string
}

let real: Real
let app: RealApp
let other: RealApp
beforeAll(async () => {
  real = await startReal()
  app = await real.newApp('streams')
  other = await real.newApp('others')
})
afterAll(() => real?.stop())

const streamOf = (clientId: string, authorization: string): Opener => ({
  path: `/api/v1/builder/apps/${clientId}/usage/stream`,
  authorization,
})
const ownStream = ({ userToken }: RealApp): Opener => ({
  path: '/api/v1/user/usage/stream',
  authorization: userToken,
})

/** Creates another app of the same owner. */
async function secondApp(name: string): Promise<Opener> {
  const response = await fetch(`${real.url}/api/v1/apps`, {
    method: 'POST',
    headers: { ...app.session, 'content-type': 'application/json' },
    body: JSON.stringify({ name }),
  })
  const { clientId, m2mClientId, m2mClientSecret } = asRecord(await response.json())
  const secret = registerSecret(String(m2mClientSecret))
  return streamOf(String(clientId), basicOf(String(m2mClientId), secret))
}

interface Opening {
  readonly status: number
  readonly retryAfter: string | null
  close(): Promise<void>
}

async function open({ path, authorization }: Opener): Promise<Opening> {
  const stop = new AbortController()
  const response = await fetch(real.url + path, { headers: { authorization }, signal: stop.signal })
  return {
    status: response.status,
    retryAfter: response.headers.get('retry-after'),
    close: async () => {
      stop.abort()
      await response.body?.cancel().catch(() => {})
    },
  }
}

const openMany = (count: number, opener: Opener): Promise<Opening[]> =>
  Promise.all(Array.from({ length: count }, () => open(opener)))
const closeAll = async (openings: readonly Opening[]): Promise<void> =>
  void (await Promise.all(openings.map(({ close }) => close())))
const countOf = (openings: readonly Opening[], status: number): number =>
  openings.filter((each) => each.status === status).length

/** Returns whether `count` streams can be open at once. Closes the opened ones. */
async function hasRoom(count: number, opener: Opener): Promise<boolean> {
  const openings = await openMany(count, opener)
  await closeAll(openings)
  return countOf(openings, 200) === count
}

/** Waits until core has released the places of closed streams. */
async function roomFor(count: number, opener: Opener): Promise<boolean> {
  for (let round = 0; round < 100; round++) {
    if (await hasRoom(count, opener)) return true
    await sleep(200)
  }
  return false
}

/** Opens a stream and never reads from it. */
function openSilently({ path, authorization }: Opener): Socket {
  const { hostname, port } = new URL(real.url)
  const socket = connect(Number(port), hostname).pause()
  socket.on('error', () => socket.destroy())
  socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: ${authorization}\r\n\r\n`)
  return socket
}

describe('streams of live spend', () => {
  it('are bounded per app, owner and user when opened at once, with room for others', async () => {
    const first = streamOf(app.clientId, app.basic)
    const [second, third] = await Promise.all([secondApp('second'), secondApp('third')])
    const ofFirst = await openMany(perApp + 20, first)
    expect([countOf(ofFirst, 200), countOf(ofFirst, 429)]).toEqual([perApp, 20])
    const refused = ofFirst.find(({ status }) => status === 429)
    expect(Number(refused?.retryAfter)).toBeGreaterThan(0)
    const ofSecond = await openMany(perOwner - perApp + 20, second)
    expect([countOf(ofSecond, 200), countOf(ofSecond, 429)]).toEqual([perOwner - perApp, 20])
    // The third app has its reserved places, however many the owner's other apps hold.
    const ofThird = await openMany(reserved + 5, third)
    expect([countOf(ofThird, 200), countOf(ofThird, 429)]).toEqual([reserved, 5])
    expect(await hasRoom(50, streamOf(other.clientId, other.basic))).toBe(true)
    const ofUser = await openMany(perUser + 3, ownStream(other))
    expect([countOf(ofUser, 200), countOf(ofUser, 429)]).toEqual([perUser, 3])
    // Other requests still work.
    const users = await fetch(`${real.url}/api/v1/apps/${app.clientId}/users`, {
      headers: { authorization: app.basic },
    })
    expect(users.status).toBe(200)
    await users.body?.cancel()
    await closeAll([...ofFirst, ...ofSecond, ...ofThird, ...ofUser])
    expect(await roomFor(perApp, first)).toBe(true)
    expect(await roomFor(perUser, ownStream(other))).toBe(true)
  }, 120_000)

  it('keep no place after many are opened and closed', async () => {
    const own = ownStream(app)
    for (let round = 0; round < 10; round++) {
      const sockets = Array.from({ length: 10 }, () => openSilently(own))
      await sleep(10 * round)
      for (const socket of sockets) socket.destroy()
    }
    expect(await roomFor(perUser, own)).toBe(true)
  }, 60_000)

  it('hold only their own places while they are not read', async () => {
    const own = ownStream(app)
    const sockets = Array.from({ length: perUser }, () => openSilently(own))
    // The check takes a place for a moment, in which one of the sockets may have been refused.
    while (await hasRoom(1, own)) {
      await sleep(100)
      sockets.push(openSilently(own))
    }
    expect(await hasRoom(1, ownStream(other))).toBe(true)
    expect(await hasRoom(1, streamOf(app.clientId, app.basic))).toBe(true)
    for (const socket of sockets) socket.destroy()
    expect(await roomFor(perUser, own)).toBe(true)
  }, 60_000)
})
