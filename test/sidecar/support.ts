import { Agent, type IncomingHttpHeaders, request as httpRequest } from 'node:http'
import { onTestFinished } from 'vitest'
import { createEnvReader } from '../../core/lib/env.ts'
import { type Log, silentLog } from '../../core/lib/log.ts'
import { createMetrics } from '../../core/lib/metrics.ts'
import { type SidecarConfig, readSidecarConfig } from '../../sidecar/config.ts'
import { type RequestBounds, type Sidecar, startSidecar } from '../../sidecar/server.ts'
import type { KeyShape } from '../../sidecar/identity/verifiers/api-key.ts'
import { registerSecret } from '../support/run/secrecy.ts'
import { type CoreDouble, startCoreDouble } from '../fakes/sidecar-core.ts'

import { until } from '../support/waiting.ts'

export { until }

export const secret = registerSecret('whsec_test_0123456789_0123456789_ab')
export const oldSecret = registerSecret('whsec_old_0123456789_0123456789_abc')
export const coreToken = registerSecret('core-token-of-these-tests-0123456789')
/** 2026-09-14T10:15:30Z, the clock of the vectors. */
export const vectorNow = 1_789_380_930

/** The vectors' keys have another format: recognised by their prefix, without a checksum. */
const fixtureKeys: KeyShape = {
  looksLikeKey: (text) => text.startsWith('sk_live_'),
  isWellFormed: () => true,
}

export interface Harness {
  readonly core: CoreDouble
  readonly sidecar: Sidecar
  /** `wall` shifts the wall clock against the elapsed seconds. */
  readonly clock: { seconds: number; wall: number }
  readonly metrics: ReturnType<typeof createMetrics>
  authorize(body: unknown, headers?: Record<string, string>): Promise<Reply>
}

export interface HarnessOptions {
  readonly env?: Readonly<Record<string, string>>
  readonly core?: CoreDouble
  readonly log?: Log
  readonly keyShape?: KeyShape | null
  readonly bounds?: RequestBounds
}

/**
 * Starts a sidecar on a free port, with a core double that has the users of the vectors in
 * docs/signer-protocol.md.
 */
export async function startHarness({
  env = {},
  core: ownCore,
  log,
  keyShape,
  bounds,
}: HarnessOptions = {}): Promise<Harness> {
  const core = ownCore ?? (await startCoreDouble())
  if (!ownCore) onTestFinished(core.stop)
  provision(core)
  const clock = { seconds: vectorNow, wall: 0 }
  const metrics = createMetrics('sidecar')
  const shape = keyShape === null ? {} : { keyShape: keyShape ?? fixtureKeys }
  const sidecar = await startSidecar(configOf({ CORE_TARGET: core.target, ...env }), {
    log: log ?? silentLog(),
    metrics,
    now: () => new Date((clock.seconds + clock.wall) * 1000),
    mono: () => performance.now() + (clock.seconds - vectorNow) * 1000,
    ...shape,
    ...(bounds && { bounds }),
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

/** Returns the answer's text without the decision id, which every refusal has. */
export const withoutDecision = (text: string): string =>
  text.replace(/,"decision":"[0-9a-f]{24}"(?=\}$)/, '')

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

/** Sends one request over a real socket. `json` is {} when the answer is not an object. */
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
