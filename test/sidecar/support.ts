import { Agent, type IncomingHttpHeaders, request as httpRequest } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { onTestFinished } from 'vitest'
import { createEnvReader } from '../../core/lib/env.ts'
import { type Log, silentLog } from '../../core/lib/log.ts'
import { createMetrics } from '../../core/lib/metrics.ts'
import { type SidecarConfig, readSidecarConfig } from '../../sidecar/config.ts'
import { type Sidecar, startSidecar } from '../../sidecar/server.ts'
import type { KeyShape } from '../../sidecar/verifiers/api-key.ts'
import { type CoreDouble, startCoreDouble } from './core-double.ts'

export const secret = 'whsec_test'
export const oldSecret = 'whsec_old'
export const coreToken = 'core-token-of-these-tests-0123456789'
/** 2026-09-14T10:15:30Z, the clock of the vectors. */
export const vectorNow = 1_789_380_930

/** The fixture's keys are not ours; they are told by their prefix and have no checksum. */
const fixtureKeys: KeyShape = {
  looksLikeKey: (text) => text.startsWith('sk_live_'),
  isWellFormed: () => true,
}

export interface Harness {
  readonly core: CoreDouble
  readonly sidecar: Sidecar
  readonly clock: { seconds: number }
  readonly metrics: ReturnType<typeof createMetrics>
  authorize(body: unknown, headers?: Record<string, string>): Promise<Reply>
}

export interface HarnessOptions {
  readonly env?: Readonly<Record<string, string>>
  readonly core?: CoreDouble
  readonly log?: Log
  readonly keyShape?: KeyShape | null
}

/** A sidecar on a free port before a core double with the users of signer-contract.md section 8. */
export async function startHarness({
  env = {},
  core: given,
  log,
  keyShape,
}: HarnessOptions = {}): Promise<Harness> {
  const core = given ?? (await startCoreDouble())
  if (!given) onTestFinished(core.stop)
  provision(core)
  const clock = { seconds: vectorNow }
  const metrics = createMetrics('sidecar')
  const shape = keyShape === null ? {} : { keyShape: keyShape ?? fixtureKeys }
  const sidecar = await startSidecar(configOf({ CORE_TARGET: core.target, ...env }), {
    log: log ?? silentLog(),
    metrics,
    now: () => new Date(clock.seconds * 1000),
    ...shape,
  })
  onTestFinished(sidecar.stop)
  await until(core.watching)
  const authorize = (
    body: unknown,
    headers: Record<string, string> = { authorization: `Bearer ${secret}` },
  ) =>
    post(
      `${sidecar.url}/authorize`,
      typeof body === 'string' ? body : JSON.stringify(body),
      headers,
    )
  return { core, sidecar, clock, metrics, authorize }
}

export function configOf(env: Readonly<Record<string, string>>): SidecarConfig {
  const reader = createEnvReader({
    SIDECAR_PORT: '0',
    CORE_TOKEN: coreToken,
    WEBHOOK_SECRET: `${secret},${oldSecret}`,
    LOG_LEVEL: 'silent',
    ...env,
  })
  const config = readSidecarConfig(reader)
  if (reader.problems.length > 0) throw new Error(reader.problems.join('; '))
  return config
}

function provision({ keys, users }: CoreDouble): void {
  const key = (clientId: string, externalUserId: string, keyId: string) => ({
    clientId,
    externalUserId,
    keyId,
  })
  keys.set('sk_live_alice', key('acme', 'alice', 'key-alice'))
  keys.set('sk_live_7Qp2mV9aXr4LtB8cYwZ0', key('acme', 'alice', 'key-alice-2'))
  keys.set('sk_live_poor', key('acme', 'bob', 'key-bob'))
  keys.set('sk_live_tenant', key('tenant_a', 'user_42', 'key-tenant'))
  users.set('acme:alice', { micros: 5_000_000n })
  users.set('acme:bob', { micros: 0n })
  users.set('tenant_a:user_42', { micros: 5_000_000n })
}

export interface Reply {
  readonly transport: number
  readonly text: string
  readonly json: Record<string, unknown>
  readonly headers: IncomingHttpHeaders
}

const agent = new Agent({ keepAlive: true })

export interface Sent {
  readonly method?: string
  readonly agent?: Agent
}

export async function post(
  url: string,
  body: string | Buffer,
  headers: Record<string, string> = {},
): Promise<Reply> {
  return send(url, { headers, body, method: 'POST' })
}

/** One exchange over a real socket. `json` is {} when the answer is not an object. */
export async function send(
  url: string,
  options: Sent & { headers?: Record<string, string>; body?: string | Buffer },
): Promise<Reply> {
  const { promise, resolve, reject } = Promise.withResolvers<Reply>()
  const { body = '', headers = {}, method = 'POST' } = options
  const length = body.length > 0 ? { 'content-length': String(Buffer.byteLength(body)) } : {}
  const request = httpRequest(url, {
    method,
    agent: options.agent ?? agent,
    headers: { ...length, ...headers },
  })
  let answered = false
  request.on('response', (response) => {
    answered = true
    const chunks: Buffer[] = []
    response.on('data', (chunk: Buffer) => chunks.push(chunk))
    response.on('error', reject)
    response.on('end', () => {
      const text = Buffer.concat(chunks).toString()
      resolve({
        transport: response.statusCode ?? 0,
        text,
        json: objectFrom(text),
        headers: response.headers,
      })
    })
  })
  request.on('error', (error) => void (answered || reject(error)))
  request.end(body)
  return promise
}

function objectFrom(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? { ...value } : {}
  } catch {
    return {}
  }
}

/** Waits for a state of the world, at most three seconds. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 3000
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`never became true: ${condition.toString()}`)
    await sleep(5)
  }
}

/** Body (1) of signer-contract.md 1.5: the first call of a live session with an API key. */
export function firstCall(overrides: { key?: string; headers?: object; state?: object } = {}) {
  const { key = 'sk_live_7Qp2mV9aXr4LtB8cYwZ0', headers = {}, state = {} } = overrides
  return {
    headers: {
      Accept: ['application/json'],
      'Accept-Encoding': ['identity'],
      Authorization: [`Bearer ${key}`],
      Connection: ['close'],
      'Content-Length': ['1184'],
      'Content-Type': ['application/json'],
      'User-Agent': ['livepeer-python-gateway/0.1'],
      ...headers,
    },
    state: {
      StateID: '9f86d081',
      PMSessionID: '0x2b1f6c0e5d7a49a8b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7081920',
      LastUpdate: '2026-09-14T10:15:30.123456789Z',
      OrchestratorAddress: '0x5be44e23041e93cdf9bcd5a0968524e104e38ae1',
      App: 'acme/echo',
      AuthExpiry: 0,
      SenderNonce: 1,
      Balance: '49999999880000',
      InitialPricePerUnit: 12_000,
      InitialPixelsPerUnit: 1,
      Type: 'live',
      SequenceNumber: 0,
      AuthID: '',
      ...state,
    },
  }
}

/** Body (2): the 12th call of an lv2v session with a JWT, by a signer in UTC+2. */
export function laterCall(token: string, state: object = {}) {
  return {
    headers: {
      'Accept-Encoding': ['gzip'],
      Authorization: [`Bearer ${token}`],
      'Content-Length': ['2309'],
      'Content-Type': ['application/json'],
      'User-Agent': ['Go-http-client/1.1'],
      'X-Forwarded-For': ['203.0.113.7'],
      'X-Request-Id': ['gw-8842'],
    },
    state: {
      StateID: '4e07408b',
      PMSessionID: '0x9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab',
      LastUpdate: '2026-09-14T12:16:17.123456789+02:00',
      OrchestratorAddress: '0x847791cbf03be716a7fe9dc8c9affe17bd49ae5e',
      App: '',
      AuthExpiry: 1_789_380_958,
      SenderNonce: 23,
      Balance: '6000/7',
      InitialPricePerUnit: 300,
      InitialPixelsPerUnit: 7,
      Type: 'lv2v',
      SequenceNumber: 11,
      AuthID: 'tenant_a:user_42',
      ...state,
    },
  }
}

/** Body (3): the third call of a fixed session by an odd client. */
export function oddCall(authorization: string[]) {
  return {
    headers: {
      Accept: ['*/*'],
      Authorization: authorization,
      'Content-Length': ['1040'],
      'Content-Type': ['application/json'],
      Cookie: ['a=1', 'b=2'],
      'Signer-Auth-Id': ['tenant_evil:admin'],
      'User-Agent': ['curl/8.5.0'],
      'X-Empty': [''],
      'X-Html': ['<&>'],
    },
    state: {
      StateID: 'ef2d127d',
      PMSessionID: '0xe7f6c011776e8db7cd330b54174fd76f7d0216b612387a5ffcfb81e6f0919683',
      LastUpdate: '2026-09-14T10:16:30.123456789Z',
      OrchestratorAddress: '0x5be44e23041e93cdf9bcd5a0968524e104e38ae1',
      App: 'acme/img2img',
      AuthExpiry: 0,
      SenderNonce: 3,
      Balance: '0',
      InitialPricePerUnit: 2_500_000_000_000,
      InitialPixelsPerUnit: 1,
      Type: 'fixed',
      SequenceNumber: 2,
      AuthID: 'tenant_a:user_42',
    },
  }
}
