import { randomBytes } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { type FastifyReply, type FastifyRequest, fastify } from 'fastify'
import type { StripeConfig } from '../../../core/billing/processor/config.ts'
import type { Plane, ProcessorAccount } from '../../../core/billing/processor/port.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { createControl } from './control.ts'
import { expandFields } from './expand.ts'
import { type Fault, StripeFault } from './faults.ts'
import { type Form, parseForm, readForm, textsOf } from './form.ts'
import { createKeys } from './keys.ts'
import { type EventType, createMoney } from './money.ts'
import { type Accounts, routes } from './routes.ts'
import { createWebhooks } from './webhooks.ts'
import { type FakeAccount, type World, createWorld } from './world.ts'

const planes = ['live', 'test'] as const
const requestsMax = 10_000

export interface FakeRequest {
  readonly method: string
  /** The route, for example `/v1/customers/:id`. */
  readonly route: string
  readonly path: string
  readonly account: string | null
  readonly plane: Plane
  readonly key: string | null
  readonly version: string
  readonly form: Form
}

export interface FakeStripeOptions {
  readonly now?: () => Date
  /** First wait before an event is sent again; it doubles. */
  readonly retryMs?: number
}

interface Answer {
  readonly status: number
  readonly body: string
}

/**
 * The part of Stripe that this project uses, with its state: idempotency keys, connected accounts,
 * planes, balance transactions and signed webhooks. Limited: 50,000 keys and events, 10,000
 * requests in the log.
 */
export async function startStripe({
  now = () => new Date(),
  retryMs = 50,
}: FakeStripeOptions = {}) {
  const nowMs = (): number => now().getTime()
  const seconds = (): number => Math.floor(nowMs() / 1000)
  let count = 0
  const nextNumber = (): number => ++count
  const secretKeys = {
    live: registerSecret(`sk_live_${randomBytes(12).toString('hex')}`),
    test: registerSecret(`sk_test_${randomBytes(12).toString('hex')}`),
  }
  const webhookSecrets = {
    live: registerSecret(`whsec_${randomBytes(16).toString('hex')}`),
    test: registerSecret(`whsec_${randomBytes(16).toString('hex')}`),
  }
  const worlds = new Map<string, World>()
  const accounts = new Map<string, FakeAccount>()
  const keys = createKeys(nowMs)
  const webhooks = createWebhooks({ nowMs, retryMs })
  const money = createMoney({ emit, platformOf: ({ plane }) => worldOf({ plane, account: null }) })
  const requests: FakeRequest[] = []

  const server = fastify({ bodyLimit: 1024 * 1024, forceCloseConnections: true })
  server.addContentTypeParser(
    'application/x-www-form-urlencoded',
    { parseAs: 'string' },
    (_request, body, done) => done(null, body),
  )
  for (const route of Object.keys(routes)) {
    const [method = '', url = ''] = route.split(' ')
    server.route({ method, url, handler: (request, reply) => serve(route, request, reply) })
  }
  await server.listen({ port: 0, host: '127.0.0.1' })
  const { port } = server.server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}`

  const fake = {
    url,
    secretKeys,
    webhookSecrets,
    /** The newest requests, at most 10,000. */
    requests,
    /** Returns what happens to a request. */
    faults: (() => undefined) as (request: FakeRequest) => Fault | undefined,
    /** Time of every request in milliseconds. */
    latencyMs: 0,
    /** Requests of one second; more are refused with 429. Null for no limit. */
    budget: null as number | null,
    webhooks,
    /** Connected accounts by id. */
    accounts,
    /** Settings of core for both planes. */
    env: {
      PAYMENT_PROCESSOR: 'stripe',
      STRIPE_SECRET_KEY: secretKeys.live,
      STRIPE_TEST_SECRET_KEY: secretKeys.test,
      STRIPE_WEBHOOK_SECRETS: webhookSecrets.live,
      STRIPE_TEST_WEBHOOK_SECRETS: webhookSecrets.test,
      STRIPE_API_URL: url,
    },
    config: {
      live: { secretKey: secretKeys.live, webhookSecrets: [webhookSecrets.live] },
      test: { secretKey: secretKeys.test, webhookSecrets: [webhookSecrets.test] },
      apiUrl: url,
      timeoutMs: 10_000,
    } satisfies StripeConfig,
    ...createControl({ worldOf, accounts, money, emit }),
    stop: async (): Promise<void> => {
      webhooks.stop()
      server.server.closeAllConnections()
      await server.close()
    },
  }
  let window = { begin: 0, spent: 0 }
  return fake

  function worldOf({ plane, account }: ProcessorAccount): World {
    const name = `${plane} ${account ?? ''}`
    const known = worlds.get(name)
    if (known) return known
    const world = createWorld(plane, account, { seconds, nextNumber })
    worlds.set(name, world)
    return world
  }

  function emit(world: World, type: EventType, object: object): void {
    const { plane, account } = world
    const { name, previous } = typeof type === 'string' ? { name: type, previous: null } : type
    webhooks.emit({
      id: `evt_${nextNumber().toString(36).padStart(14, '0')}`,
      object: 'event',
      type: name,
      created: seconds(),
      livemode: plane === 'live',
      api_version: '2026-10-28.endive',
      ...(account === null ? {} : { account }),
      data: {
        object: structuredClone(object),
        ...(previous === null ? {} : { previous_attributes: previous }),
      },
    })
  }

  async function serve(route: string, request: FastifyRequest, reply: FastifyReply) {
    const call = readCall(route, request)
    if (call instanceof StripeFault) return send(reply, answerOf(call))
    requests.push(call)
    if (requests.length > requestsMax) requests.shift()
    const fault = fake.faults(call)
    if (fault?.kind === 'reset before') return reset(reply)
    if (fault?.kind === 'hang before') return reply.hijack()
    const refusal = refusalOf(fault)
    const { answer, isReplayed } = refusal
      ? { answer: answerOf(refusal), isReplayed: false }
      : await execute(call, request, fault)
    if (fault?.kind === 'late') await sleep(fault.ms)
    if (fault?.kind === 'reset after') return reset(reply)
    if (fault?.kind === 'hang after') return reply.hijack()
    if (fault?.kind === 'body') return send(reply, { status: fault.status, body: fault.text })
    if (isReplayed) void reply.header('idempotent-replayed', 'true')
    return send(reply, answer)
  }

  function refusalOf(fault: Fault | undefined): StripeFault | undefined {
    if (fault?.kind === 'refuse') return new StripeFault(fault.status, 'Told so.', fault.fields)
    const begin = seconds()
    if (window.begin !== begin) window = { begin, spent: 0 }
    window.spent++
    return fake.budget !== null && window.spent > fake.budget
      ? new StripeFault(429, 'Too many requests.', { code: 'rate_limit' })
      : undefined
  }

  /** Answers by the request's key, if it has one. */
  async function execute(call: FakeRequest, request: FastifyRequest, fault: Fault | undefined) {
    const { plane, account, key } = call
    const name = `${plane} ${account ?? ''} ${key}`
    try {
      const known = key === null ? null : keys.begin(name, identityOf(call, request))
      if (known) return { answer: known, isReplayed: true }
    } catch (error) {
      return { answer: answerOf(error), isReplayed: false }
    }
    const answer = perform(call, request)
    if (fake.latencyMs > 0) await sleep(fake.latencyMs)
    if (fault?.kind !== 'error after') {
      if (key !== null) keys.end(name, answer)
      return { answer, isReplayed: false }
    }
    const failure = answerOf(new StripeFault(500, 'An unknown error occurred.'))
    if (key !== null) keys.end(name, fault.isStored ? failure : answer)
    return { answer: failure, isReplayed: false }
  }

  function perform(call: FakeRequest, request: FastifyRequest): Answer {
    try {
      const world = worldOf(call)
      const handler = routes[`${call.method} ${call.route}`]
      if (!handler) throw new StripeFault(404, `Unrecognized request URL (${call.path})`)
      const { expand, ...form } = call.form
      const id = pathId(request)
      const emitHere = (type: string, object: object): void => emit(world, type, object)
      const scope = { world, id, form, money, payUrl: url }
      const result = handler({ ...scope, accounts: accountsFor(call.plane), emit: emitHere })
      const paths = textsOf(readForm({ expand: expand ?? [] }).list('expand'))
      return { status: 200, body: JSON.stringify(expandFields(result, paths, world)) }
    } catch (error) {
      return answerOf(error)
    }
  }

  function accountsFor(plane: Plane): Accounts {
    return {
      create: (fields) => {
        const account = newAccount(
          `acct_${nextNumber().toString(36).padStart(12, '0')}`,
          plane,
          fields,
        )
        accounts.set(account.id, account)
        return account
      },
      get: (id) => requireAccount(id, plane),
      own: () => ({
        ...newAccount('acct_platform', plane, { email: null, metadata: {} }),
        charges_enabled: true,
        payouts_enabled: true,
        details_submitted: true,
      }),
    }
  }

  function newAccount(
    id: string,
    plane: Plane,
    fields: Pick<FakeAccount, 'email' | 'metadata'>,
  ): FakeAccount {
    const head = { id, object: 'account', created: seconds(), livemode: plane === 'live' } as const
    const flags = { charges_enabled: false, payouts_enabled: false, details_submitted: false }
    return { ...head, ...fields, ...flags }
  }

  function requireAccount(id: string, plane: Plane): FakeAccount {
    const account = accounts.get(id)
    if (account && account.livemode === (plane === 'live')) return account
    throw new StripeFault(
      403,
      `The provided key does not have access to account '${id}' (or that account does not exist). Application access may have been revoked.`,
      { code: 'account_invalid' },
    )
  }

  function readCall(route: string, request: FastifyRequest): FakeRequest | StripeFault {
    try {
      const plane = planes.find(
        (plane) => request.headers.authorization === `Bearer ${secretKeys[plane]}`,
      )
      if (plane === undefined) throw new StripeFault(401, 'Invalid API Key provided')
      const account = headerOf(request, 'stripe-account')
      if (account !== null) requireAccount(account, plane)
      const key = headerOf(request, 'idempotency-key')
      if (key !== null && key.length > 255) throw StripeFault.invalid('The key is too long.')
      const [path = '', query = ''] = request.url.split('?')
      const [method = '', url = ''] = route.split(' ')
      const text = method === 'GET' ? query : bodyOf(request)
      const version = headerOf(request, 'stripe-version') ?? ''
      return { method, route: url, path, account, plane, key, version, form: parseForm(text) }
    } catch (error) {
      if (error instanceof StripeFault) return error
      throw error
    }
  }
}

export type FakeStripe = Awaited<ReturnType<typeof startStripe>>

const bodyOf = ({ body }: FastifyRequest): string => (typeof body === 'string' ? body : '')

const identityOf = ({ method, path }: FakeRequest, request: FastifyRequest): string =>
  `${method} ${path} ${bodyOf(request)}`

function pathId({ params }: FastifyRequest): string {
  const id = typeof params === 'object' && params !== null && 'id' in params ? params.id : ''
  return typeof id === 'string' ? id : ''
}

function headerOf({ headers }: FastifyRequest, name: string): string | null {
  const value = headers[name]
  return typeof value === 'string' ? value : null
}

function answerOf(error: unknown): Answer {
  if (error instanceof StripeFault)
    return { status: error.status, body: JSON.stringify(error.body) }
  throw error
}

function reset(reply: FastifyReply): FastifyReply {
  reply.raw.socket?.resetAndDestroy()
  return reply.hijack()
}

const send = (reply: FastifyReply, { status, body }: Answer) =>
  reply.code(status).header('content-type', 'application/json').send(body)
