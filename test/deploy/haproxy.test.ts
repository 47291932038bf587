import { Agent, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { basic, connectCore } from '../../deploy/cli/client.ts'
import { coreSecrets, secret, startParts } from '../support/deployment/parts.ts'
import { type RunningProcess, freePorts, runProcess } from '../support/deployment/processes.ts'
import { type Balanced, haproxy, startBalancer } from '../support/run/haproxy.ts'
import { createDatabase } from '../support/run/postgres.ts'

const callers = 8
const perAddress = 20

async function choosePorts(): Promise<Balanced> {
  const chosen = await freePorts(18)
  const next = (): number => chosen.pop() ?? 0
  const gateway = () => ({ platform: next(), builder: next(), admin: next() })
  const sidecar = () => ({ http: next(), admin: next() })
  const core = () => ({ grpc: next(), admin: next() })
  return {
    ports: { platform: next(), builder: next(), sidecar: next(), core: next() },
    gateways: [gateway(), gateway()],
    cores: [core(), core()],
    // None runs.
    sidecars: [sidecar(), sidecar()],
  }
}

/** Starts two cores and two gateways, with HAProxy before both. */
const startBalanced = (settings: Readonly<Record<string, string>>) =>
  startParts(async (stops) => {
    const database = await createDatabase()
    stops.push(database.drop)
    const balanced = await choosePorts()
    const { ports } = balanced
    const shared = {
      CORE_TOKEN: secret(),
      CORE_TARGET: `127.0.0.1:${ports.core}`,
      PUBLIC_URL: `http://127.0.0.1:${ports.platform}`,
      RATE_FIXED: '3000',
      ...settings,
    }
    const data = { ...shared, ...coreSecrets(), DATABASE_URL: database.url, COLLECTOR: 'off' }
    const processes = { cores: [] as RunningProcess[], gateways: [] as RunningProcess[] }
    for (const { grpc, admin } of balanced.cores) {
      const env = { ...data, CORE_PORT: String(grpc), CORE_ADMIN_PORT: String(admin) }
      const core = await runProcess({ name: 'core', env })
      stops.push(core.stop)
      processes.cores.push(core)
    }
    const balancer = await startBalancer(balanced)
    stops.push(balancer.stop)
    for (const { platform, builder, admin } of balanced.gateways) {
      const own = { PLATFORM_PORT: String(platform), BUILDER_PORT: String(builder) }
      const env = { ...shared, ...own, GATEWAY_ADMIN_PORT: String(admin), TRUSTED_PROXY_HOPS: '1' }
      const gateway = await runProcess({ name: 'gateway', env })
      stops.push(gateway.stop)
      processes.gateways.push(gateway)
    }
    const operator = connectCore({ target: shared.CORE_TARGET, token: shared.CORE_TOKEN })
    stops.push(async () => operator.close())
    return { ...processes, operator, platformPort: ports.platform }
  })

type Running = Awaited<ReturnType<typeof startBalanced>>

interface Sent {
  readonly port: number
  readonly path: string
  readonly method?: 'POST'
  readonly headers?: Readonly<Record<string, string>>
  readonly from?: string
  /** False for a connection of its own. */
  readonly agent?: Agent | false
}

/**
 * Returns the status of a request, or the code of its failure. Repeats a read whose kept connection
 * ended without an answer, as HTTP asks of clients (RFC 9112 section 9.3.1).
 */
async function send(sent: Sent): Promise<number | string> {
  const { port, path, method, headers = {}, from, agent } = sent
  const { promise, resolve } = Promise.withResolvers<number | string>()
  const outgoing = request(
    {
      host: '127.0.0.1',
      port,
      path,
      headers,
      ...(method && { method }),
      ...(agent !== undefined && { agent }),
      ...(from && { localAddress: from }),
    },
    (response) => {
      response.resume()
      response.once('end', () => resolve(response.statusCode ?? 0))
    },
  )
  outgoing.on('error', (error: NodeJS.ErrnoException) => {
    const isEnded = outgoing.reusedSocket && error.code === 'ECONNRESET' && method === undefined
    resolve(isEnded ? send({ ...sent, agent: false }) : (error.code ?? error.message))
  })
  outgoing.end()
  return promise
}

describe.runIf(haproxy)('HAProxy before two gateways and two cores', () => {
  let running: Running
  beforeAll(async () => {
    running = await startBalanced({ RATE_LIMITS: 'off' })
  }, 120_000)
  afterAll(() => running?.stop(), 60_000)

  it('answers every read while a gateway, then a core, is stopped and started', async () => {
    const { cores, gateways, operator, platformPort: port } = running
    const app = await operator.apps.createApp({
      name: 'balanced',
      ownerEmail: undefined,
      ownerPassword: undefined,
      starterUsdMicros: undefined,
    })
    const authorization = basic(app.m2mClientId, app.m2mClientSecret)
    const path = `/api/v1/apps/${app.clientId}/users`
    const answers = new Map<number | string, number>()
    const over = new AbortController()
    const load = Array.from({ length: callers }, async () => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 })
      while (!over.signal.aborted) {
        const answer = await send({ port, path, headers: { authorization }, agent })
        answers.set(answer, (answers.get(answer) ?? 0) + 1)
      }
      agent.destroy()
    })
    for (const process of [gateways[0], cores[0]]) {
      if (process === undefined) throw new Error('a process is missing')
      await sleep(500)
      await process.stop()
      await sleep(500)
      await process.start()
      // Until HAProxy has seen it ready.
      await sleep(2_500)
    }
    over.abort()
    await Promise.all(load)
    expect([...answers.keys()]).toEqual([200])
    expect(answers.get(200)).toBeGreaterThan(100)
  }, 120_000)
})

describe.runIf(haproxy)('a gateway behind HAProxy', () => {
  let running: Running
  beforeAll(async () => {
    running = await startBalanced({ RATE_LIMIT_ADDRESS: String(perAddress) })
  }, 120_000)
  afterAll(() => running?.stop(), 60_000)

  it('limits callers by their own address, which they cannot forge', async () => {
    const form = { 'content-type': 'application/x-www-form-urlencoded', 'content-length': '0' }
    const ask = (from: string, forged: string) =>
      send({
        port: running.platformPort,
        path: '/api/v1/oidc/token',
        method: 'POST',
        headers: { ...form, 'x-forwarded-for': forged },
        from,
      })
    const answers: (number | string)[] = []
    // Each of the two gateways counts by itself without Redis, and one minute may end meanwhile.
    for (let i = 0; i <= 4 * perAddress && answers.at(-1) !== 429; i++)
      answers.push(await ask('127.0.0.2', `10.0.0.${i}`))
    expect(answers[0]).toBe(400)
    expect(answers.at(-1)).toBe(429)
    expect(await ask('127.0.0.3', '127.0.0.2')).toBe(400)
  }, 60_000)
})
