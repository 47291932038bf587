import { credentials } from '@grpc/grpc-js'
import { unary } from '../../../core/lib/grpc.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { type CoreClient, basic, connectCore } from '../../../deploy/cli/client.ts'
import { AccountServiceClient } from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import { createDatabase } from '../run/postgres.ts'
import { type Stops, coreSecrets, secret, startParts } from './parts.ts'
import { freePorts, runProcess } from './processes.ts'
import { registerSecret } from '../run/secrecy.ts'

export interface SplitOptions {
  /** If null, the gateway and the sidecar use one core. Otherwise each uses its own. */
  readonly redisUrl: string | null
  readonly settings?: Readonly<Record<string, string>>
}

export interface Answer {
  readonly status: number
  readonly body: Readonly<Record<string, unknown>>
}

export interface Ask {
  readonly authorization?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly json?: unknown
  readonly form?: Readonly<Record<string, string>>
}

/**
 * Starts core, gateway and sidecar as separate processes. With Redis there are two cores, so that a
 * revocation at one must reach the sidecar of the other.
 */
export const startSplit = (options: SplitOptions) => startParts((stops) => start(stops, options))

async function start(stops: Stops, options: SplitOptions) {
  const port = await choosePorts()
  const shared = sharedSettings(options, port)
  const { target, farTarget, databaseUrl } = await startProcesses(stops, { shared, port, options })
  const connect = (to: string): CoreClient => {
    const client = connectCore({ target: to, token: shared.CORE_TOKEN })
    stops.push(async () => client.close())
    return client
  }
  const parts = {
    near: connect(target),
    far: connect(farTarget),
    target,
    databaseUrl,
    serviceToken: shared.CORE_TOKEN,
  }
  return {
    ...createCalls({ shared, sidecarPort: port('SIDECAR') }),
    platformUrl: `http://127.0.0.1:${shared.PLATFORM_PORT}`,
    sidecarUrl: `http://127.0.0.1:${port('SIDECAR')}`,
    app: await createApp({ ...parts, port: port('PLATFORM') }),
    ...parts,
  }
}

const listeners = [
  'CORE',
  'CORE_ADMIN',
  'SECOND',
  'SECOND_ADMIN',
  'PLATFORM',
  'BUILDER',
  'GATEWAY_ADMIN',
  'SIDECAR',
  'SIDECAR_ADMIN',
] as const
type PortOf = (name: (typeof listeners)[number]) => string

async function choosePorts(): Promise<PortOf> {
  const ports = await freePorts(listeners.length)
  return (name) => String(ports[listeners.indexOf(name)])
}

const sharedSettings = ({ redisUrl, settings = {} }: SplitOptions, port: PortOf) => ({
  CORE_TOKEN: secret(),
  WEBHOOK_SECRET: secret(),
  RATE_LIMITS: 'off',
  RATE_FIXED: '3000',
  PLATFORM_PORT: port('PLATFORM'),
  ...(redisUrl !== null && { REDIS_URL: redisUrl }),
  ...settings,
})

interface SplitParts {
  readonly shared: ReturnType<typeof sharedSettings>
  readonly port: PortOf
  readonly options: SplitOptions
}

/**
 * Starts the processes. Returns the addresses of the gateway's core, the sidecar's core and their
 * database.
 */
async function startProcesses(stops: Stops, { shared, port, options }: SplitParts) {
  const database = await createDatabase()
  stops.push(database.drop)
  const run = async (name: 'core' | 'gateway' | 'sidecar', env: Record<string, string>) =>
    stops.push((await runProcess({ name, env })).stop)
  const ofCore = {
    ...shared,
    DATABASE_URL: database.url,
    ...coreSecrets(),
  }
  const hasTwoCores = options.redisUrl !== null
  await run('core', { ...ofCore, CORE_PORT: port('CORE'), CORE_ADMIN_PORT: port('CORE_ADMIN') })
  if (hasTwoCores)
    await run('core', {
      ...ofCore,
      CORE_PORT: port('SECOND'),
      CORE_ADMIN_PORT: port('SECOND_ADMIN'),
    })
  const target = `127.0.0.1:${port('CORE')}`
  const farTarget = hasTwoCores ? `127.0.0.1:${port('SECOND')}` : target
  await run('sidecar', {
    ...shared,
    CORE_TARGET: farTarget,
    SIDECAR_PORT: port('SIDECAR'),
    SIDECAR_ADMIN_PORT: port('SIDECAR_ADMIN'),
  })
  await run('gateway', {
    ...shared,
    CORE_TARGET: target,
    BUILDER_PORT: port('BUILDER'),
    GATEWAY_ADMIN_PORT: port('GATEWAY_ADMIN'),
  })
  return { target, farTarget, databaseUrl: database.url }
}

export type Split = Awaited<ReturnType<typeof startSplit>>

const password = registerSecret('a long enough password')

async function createApp({
  near,
  target,
  serviceToken,
  port,
}: {
  near: CoreClient
  target: string
  serviceToken: string
  port: string
}) {
  const email = `${secret()}@example.com`
  const created = await near.apps.createApp({
    name: 'Split',
    ownerEmail: email,
    ownerPassword: password,
    starterUsdMicros: undefined,
  })
  const accounts = new AccountServiceClient(target, credentials.createInsecure())
  const { sessionToken, session } = await unary(accounts.logIn.bind(accounts))(
    { email, password },
    {
      deadlineMs: 10_000,
      headers: { [serviceTokenHeader]: serviceToken },
    },
  )
  accounts.close()
  const owner = {
    cookie: `tollgate_session=${sessionToken}`,
    origin: `http://localhost:${port}`,
    'x-csrf-token': session?.csrfToken ?? '',
  }
  return {
    ...created,
    path: `/api/v1/apps/${created.clientId}`,
    basic: basic(created.m2mClientId, created.m2mClientSecret),
    owner,
  }
}

function createCalls({
  shared,
  sidecarPort,
}: {
  shared: { PLATFORM_PORT: string; WEBHOOK_SECRET: string }
  sidecarPort: string
}) {
  async function send(url: string, init: RequestInit): Promise<Answer> {
    const response = await fetch(url, { ...init, signal: AbortSignal.timeout(10_000) })
    const body: Record<string, unknown> = JSON.parse(await response.text())
    return { status: response.status, body }
  }

  const rest = (
    method: string,
    path: string,
    { authorization, headers, json, form }: Ask = {},
  ): Promise<Answer> =>
    send(`http://127.0.0.1:${shared.PLATFORM_PORT}${path}`, {
      method,
      headers: {
        ...headers,
        ...(authorization !== undefined && { authorization }),
        ...(json !== undefined && { 'content-type': 'application/json' }),
      },
      ...(json !== undefined && { body: JSON.stringify(json) }),
      ...(form && { body: new URLSearchParams(form) }),
    })

  let calls = 0
  /**
   * Returns the sidecar's decision about a signing request with `credential`, in a new session
   * unless `more` names one. `secret` is the caller's; the default is the default signer's.
   */
  async function decide(
    credential: string,
    more: object = {},
    secret = shared.WEBHOOK_SECRET,
  ): Promise<Answer['body']> {
    calls += 1
    const state = {
      StateID: calls.toString(16).padStart(8, '0'),
      LastUpdate: new Date().toISOString(),
      SequenceNumber: 0,
      AuthID: '',
      Balance: '1',
      InitialPricePerUnit: 1,
      InitialPixelsPerUnit: 1,
      Type: 'fixed',
      App: 'acme/echo',
      AuthExpiry: 0,
      ...more,
    }
    const { body } = await send(`http://127.0.0.1:${sidecarPort}/authorize`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}` },
      body: JSON.stringify({ headers: { Authorization: [`Bearer ${credential}`] }, state }),
    })
    return body
  }

  const authorize = async (credential: string): Promise<unknown> =>
    (await decide(credential))['status']

  return { rest, decide, authorize }
}
