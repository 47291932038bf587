import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { type Socket, connect } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { currentValue } from '../../../core/lib/settings/reloadable.ts'
import { createEnvReader } from '../../../core/lib/env.ts'
import { readEdgeConfig } from '../../../gateway/config.ts'
import { type Harness, startHarness } from '../support.ts'

type Bounds = { max: number; maxPerAddress: number | null }

async function startBounded(connections: Bounds): Promise<Harness> {
  const harness = await startHarness({
    edge: { connections },
    builderEdge: {
      port: 0,
      url: 'https://edge.example',
      corsOrigins: [],
      perAddress: 1_000,
    },
  })
  onTestFinished(harness.stop)
  return harness
}

const listenersOf = ({ gateway }: Harness): [string, string][] => [
  ['platform', gateway.platformUrl],
  ['builder', gateway.builderUrl],
  ['edge', gateway.edgeUrl ?? ''],
]

/** Opens connections sequentially. */
async function open(url: string, count: number, text = ''): Promise<Socket[]> {
  const { hostname, port } = new URL(url)
  const sockets: Socket[] = []
  for (let i = 0; i < count; i++) {
    const socket = connect(Number(port), hostname)
    socket.on('error', () => socket.destroy())
    sockets.push(socket)
    await once(socket, 'connect')
    if (text !== '') socket.write(text)
  }
  onTestFinished(() => sockets.forEach((socket) => void socket.destroy()))
  return sockets
}

/** Requests `/health` on its own connection. */
async function health(url: string): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  request(`${url}/health`, { agent: new Agent() }, (response) => {
    response.resume()
    resolve(response.statusCode ?? 0)
  })
    .on('error', reject)
    .end()
  return promise
}

const openAmong = (sockets: readonly Socket[]): number =>
  sockets.filter(({ destroyed, readableEnded }) => !destroyed && !readableEnded).length

describe('connections per address', () => {
  it('are limited per listener, so that 2,000 idle ones leave room for others', async () => {
    const harness = await startBounded({ max: 10_000, maxPerAddress: 50 })
    for (const [name, url] of listenersOf(harness)) {
      const strangers = await open(url, name === 'platform' ? 2_000 : 100)
      for (const socket of strangers) socket.resume()
      expect([name, await health(url)]).toEqual([name, 200])
      await expect.poll(() => openAmong(strangers)).toBeLessThanOrEqual(50)
    }
  }, 30_000)

  it('drops the oldest one whose headers have not arrived', async () => {
    const { gateway } = await startBounded({ max: 100, maxPerAddress: 3 })
    const slow = await open(gateway.platformUrl, 3, 'GET /health HTTP/1.1\r\nx-a: ')
    for (const socket of slow) socket.resume()
    expect(await health(gateway.platformUrl)).toBe(200)
    await expect.poll(() => slow.map(({ destroyed }) => destroyed)).toEqual([true, false, false])
  })

  it('keeps those with a running request, and refuses a new one when all are busy', async () => {
    const { gateway } = await startBounded({ max: 100, maxPerAddress: 2 })
    const head = 'POST /api/v1/oidc/token HTTP/1.1\r\nhost: x\r\nexpect: 100-continue'
    const busy = await open(gateway.platformUrl, 2, `${head}\r\ncontent-length: 100\r\n\r\n`)
    for (const socket of busy) await once(socket, 'data')
    await expect(health(gateway.platformUrl)).rejects.toThrow(/hang up|ECONNRESET/)
    expect(openAmong(busy)).toBe(2)
  })

  it('are not limited behind a trusted proxy', () => {
    const read = (env: Record<string, string>) => {
      const { max, maxPerAddress } = readEdgeConfig(createEnvReader(env)).connections
      return { max: currentValue(max), maxPerAddress: currentValue(maxPerAddress) }
    }
    expect(read({})).toEqual({ max: 10_000, maxPerAddress: 1_000 })
    expect(read({ TRUSTED_PROXY_HOPS: '1' })).toEqual({ max: 10_000, maxPerAddress: null })
    expect(
      read({ GATEWAY_MAX_CONNECTIONS: '20', GATEWAY_MAX_CONNECTIONS_PER_ADDRESS: '10' }),
    ).toEqual({ max: 20, maxPerAddress: 10 })
  })
})

describe('connections of all addresses', () => {
  it('replaces the oldest idle one when the listener is full', async () => {
    const { gateway } = await startBounded({ max: 3, maxPerAddress: null })
    const idle = await open(gateway.platformUrl, 3)
    for (const socket of idle) socket.resume()
    expect(await health(gateway.platformUrl)).toBe(200)
    await expect.poll(() => idle.map(({ destroyed }) => destroyed)).toEqual([true, false, false])
  })
})
