import { setTimeout as sleep } from 'node:timers/promises'
import type { CoreClient } from '../../deploy/cli/client.ts'
import { basic } from '../../deploy/cli/client.ts'
import type { Product } from './product.ts'
import { type Timeline, createTimeline } from './timeline.ts'

/** An app of the load, with the writes that the product acknowledged. */
export interface Writer {
  readonly clientId: string
  /** Creates a user with a key, before the outages. Returns the key. */
  addUser(name: string): Promise<string>
  /** Deactivates the user, which revokes the user's keys. */
  deactivate(name: string): Promise<void>
  /** Begins to write through the gateway, four times a second. */
  start(credited: readonly string[]): void
  /** Waits for the open requests. */
  stop(): Promise<void>
  readonly timeline: Timeline
  /** Users whose creation was acknowledged. The writer requests each once, without a retry. */
  readonly users: ReadonlySet<string>
  /** Credits that were acknowledged, by amount; each amount was requested for one user. */
  readonly credits: ReadonlyMap<bigint, string>
  /** Amounts that were requested, acknowledged or not. */
  readonly requested: ReadonlySet<bigint>
}

const pauseMs = 250
const answerMs = 6_000
const creditEvery = 4
const creditTries = 120
const retryMs = 1_000
/** Credits that are requested at the same time, so that an outage ends without a flood. */
const creditsMax = 4

interface Request {
  readonly method: string
  readonly path: string
  readonly json?: unknown
  readonly key?: string
}

interface Answer {
  readonly status: number
  /** Null if it is not a success. */
  readonly body: Record<string, unknown> | null
}

export async function createWriter(
  { operator, platformUrl }: Pick<Product, 'platformUrl'> & { operator: CoreClient },
  starterMicros: bigint,
): Promise<Writer> {
  const app = await operator.apps.createApp({
    name: `chaos ${starterMicros}`,
    ownerEmail: undefined,
    ownerPassword: undefined,
    isCustomer: false,
    starterUsdMicros: String(starterMicros),
  })
  const authorization = basic(app.m2mClientId, app.m2mClientSecret)
  const timeline = createTimeline()
  const users = new Set<string>()
  const credits = new Map<bigint, string>()
  const requested = new Set<bigint>()
  const open = new Set<Promise<unknown>>()
  const stopping = new AbortController()
  let running = Promise.resolve()
  let openCredits = 0

  async function send({ method, path, json, key }: Request): Promise<Answer> {
    const response = await fetch(`${platformUrl}/api/v1/apps/${app.clientId}${path}`, {
      method,
      signal: AbortSignal.timeout(answerMs),
      headers: {
        authorization,
        ...(json !== undefined && { 'content-type': 'application/json' }),
        ...(key !== undefined && { 'idempotency-key': key }),
      },
      body: json === undefined ? null : JSON.stringify(json),
    })
    const text = await response.text()
    const body = response.ok ? (JSON.parse(text) as Record<string, unknown>) : null
    return { status: response.status, body }
  }

  /** Sends and records. Returns whether the write was acknowledged. */
  async function write(request: Request): Promise<boolean> {
    const answer = await timeline.attempt(async () => {
      const answer = await send(request)
      // A 409 means that an earlier request with this key may still run.
      return answer.status >= 500 ? null : answer
    })
    return answer !== null && answer.body !== null
  }

  async function writeUser(name: string): Promise<void> {
    if (await write({ method: 'POST', path: '/users', json: { externalUserId: name } }))
      users.add(name)
  }

  /** Requests a credit with one idempotency key until it is acknowledged, as an integrator does. */
  async function writeCredit(amount: bigint, user: string): Promise<void> {
    requested.add(amount)
    const request = {
      method: 'POST',
      path: `/users/${user}/allowances`,
      json: { amountUsdMicros: String(amount), source: 'promo' },
      key: `credit-${amount}`,
    }
    openCredits += 1
    for (let tries = 0; tries < creditTries; tries++, await sleep(retryMs)) {
      if (!(await write(request))) continue
      credits.set(amount, user)
      break
    }
    openCredits -= 1
  }

  async function run(credited: readonly string[]): Promise<void> {
    for (let i = 0; !stopping.signal.aborted; i++, await sleep(pauseMs)) {
      const user = credited[i % credited.length] ?? ''
      const isCredit = i % creditEvery === 0 && openCredits < creditsMax
      const work = isCredit ? writeCredit(1_000n + BigInt(i), user) : writeUser(`written-${i}`)
      open.add(work)
      void work.finally(() => open.delete(work))
    }
  }

  async function must(request: Request): Promise<Record<string, unknown>> {
    const { body, status } = await send(request)
    if (body === null) throw new Error(`${request.method} ${request.path}: ${status}`)
    return body
  }

  return {
    clientId: app.clientId,
    addUser: async (name) => {
      await must({ method: 'POST', path: '/users', json: { externalUserId: name } })
      return String((await must({ method: 'POST', path: `/users/${name}/keys` }))['apiKey'])
    },
    deactivate: async (name) =>
      void (await must({ method: 'DELETE', path: `/users?externalUserId=${name}` })),
    start: (credited) => void (running = run(credited)),
    stop: async () => {
      stopping.abort()
      await running
      await Promise.all(open)
    },
    timeline,
    users,
    credits,
    requested,
  }
}
