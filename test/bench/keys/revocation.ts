import { setTimeout as sleep } from 'node:timers/promises'
import { basic, connectCore } from '../../../deploy/cli/client.ts'
import { newSecret } from '../../../core/lib/crypto.ts'
import { freePorts, runProcess } from '../../support/deployment/processes.ts'
import type { Bench, Finding } from '../row.ts'
import { middleHalf, quantile } from '../stats.ts'

const giveUpMs = 10_000
/**
 * With Redis down, a request that ends a credential waits a second for Redis; its effect does not.
 */
const workers = 12

/** A credential that the sidecar allows, and a function that ends it. */
interface Revocable {
  readonly credential: string
  readonly end: () => Promise<unknown>
}

/**
 * Measures the time from the request that ends a credential at one core until the sidecar of
 * another core refuses it. Redis is either down or not configured, so the end reaches the other
 * core through the database.
 */
export async function revocation(bench: Bench): Promise<Finding[]> {
  const [port] = await freePorts(1)
  return [
    ...(await measure(bench, {
      name: 'Redis down',
      env: { REDIS_URL: `redis://127.0.0.1:${port}` },
    })),
    ...(await measure(bench, { name: 'no Redis', env: {} })),
  ]
}

interface Variant {
  readonly name: string
  readonly env: Readonly<Record<string, string>>
}

async function measure(bench: Bench, variant: Variant): Promise<Finding[]> {
  const count = bench.quick ? 200 : 1_000
  const deployed = await start(bench, variant.env)
  const findings: Finding[] = []
  for (const kind of ['key', 'token', 'session', 'user'] as const) {
    const delays: number[] = []
    let next = 0
    const work = async (): Promise<void> => {
      for (let i = next++; i < count; i = next++)
        delays.push(await delayOf(deployed, await deployed.make(kind, `${kind}-${i}`)))
    }
    await Promise.all(Array.from({ length: workers }, work))
    bench.say(`revocation, ${variant.name}, ${kind}: ${quantile(delays, 0.99).toFixed(2)} s`)
    findings.push({
      name: `revocation to sidecar, ${kind}, ${variant.name}, p99`,
      unit: 's',
      target: { atMost: 1 },
      value: quantile(delays, 0.99),
      spread: middleHalf(delays),
      detail: `median ${(quantile(delays, 0.5) * 1000).toFixed(0)} ms, most ${(Math.max(...delays) * 1000).toFixed(0)} ms of ${count}, other core`,
    })
  }
  return findings
}

type Deployed = Awaited<ReturnType<typeof start>>

/** Returns the seconds from the request to the first refusal. */
async function delayOf({ authorize }: Deployed, { credential, end }: Revocable): Promise<number> {
  // A new sidecar answers 503 until its core answers.
  for (let status: unknown, tries = 0; status !== 200; tries++) {
    status = await authorize(credential)
    if (tries > 200) throw new Error(`the sidecar does not allow it: ${String(status)}`)
    if (status !== 200) await sleep(20)
  }
  const began = performance.now()
  const ended = end()
  for (;;) {
    const status = await authorize(credential)
    const passed = performance.now() - began
    if (status === 401 || status === 403 || passed > giveUpMs) {
      await ended
      return passed / 1000
    }
  }
}

/** Starts two cores on one database, one for the gateway and one for the sidecar. */
async function start(bench: Bench, env: Variant['env']) {
  const names = ['CORE', 'CORE_ADMIN', 'FAR', 'FAR_ADMIN', 'PLATFORM', 'BUILDER', 'GATEWAY_ADMIN']
  const all = [...names, 'SIDECAR', 'SIDECAR_ADMIN']
  const ports = await freePorts(all.length)
  const port = (name: string): string => String(ports[all.indexOf(name)])
  const shared = {
    ...env,
    CORE_TOKEN: newSecret(''),
    WEBHOOK_SECRET: newSecret(''),
    RATE_LIMITS: 'off',
    RATE_FIXED: '3000',
    PLATFORM_PORT: port('PLATFORM'),
    BUILDER_PORT: port('BUILDER'),
    GATEWAY_ADMIN_PORT: port('GATEWAY_ADMIN'),
    SIDECAR_PORT: port('SIDECAR'),
    SIDECAR_ADMIN_PORT: port('SIDECAR_ADMIN'),
  }
  const ofCore = {
    ...shared,
    DATABASE_URL: await (await bench.server()).create(),
    KEY_ENCRYPTION_KEY: newSecret(''),
    SECRET_PEPPERS: `p1:${newSecret('')}`,
  }
  const run = async (name: 'core' | 'gateway' | 'sidecar', env: Record<string, string>) =>
    bench.defer((await runProcess({ name, env })).stop)
  for (const name of ['CORE', 'FAR'])
    await run('core', { ...ofCore, CORE_PORT: port(name), CORE_ADMIN_PORT: port(`${name}_ADMIN`) })
  const target = `127.0.0.1:${port('CORE')}`
  await run('sidecar', { ...shared, CORE_TARGET: `127.0.0.1:${port('FAR')}` })
  await run('gateway', { ...shared, CORE_TARGET: target })
  const operator = connectCore({ target, token: shared.CORE_TOKEN })
  bench.defer(async () => operator.close())
  const app = await operator.apps.createApp({
    name: 'Revocation',
    ownerEmail: undefined,
    ownerPassword: undefined,
    starterUsdMicros: undefined,
  })
  const rest = restOf(`http://127.0.0.1:${port('PLATFORM')}`, {
    path: `/api/v1/apps/${app.clientId}`,
    authorization: basic(app.m2mClientId, app.m2mClientSecret),
  })
  return {
    make: (kind: Kind, user: string) => makers[kind](rest, user),
    authorize: authorizeOf(`http://127.0.0.1:${port('SIDECAR')}`, shared.WEBHOOK_SECRET),
  }
}

type Kind = 'key' | 'token' | 'session' | 'user'
type Rest = ReturnType<typeof restOf>

function restOf(url: string, { path, authorization }: { path: string; authorization: string }) {
  async function send(
    method: string,
    at: string,
    body?: URLSearchParams | string,
  ): Promise<Readonly<Record<string, unknown>>> {
    const json = typeof body === 'string' ? { 'content-type': 'application/json' } : {}
    const response = await fetch(url + at, {
      method,
      headers: { authorization, ...json },
      ...(body !== undefined && { body }),
    })
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${at}: ${response.status} ${text}`)
    return text === '' ? {} : JSON.parse(text)
  }
  return {
    ofApp: (method: string, at: string, json?: object) =>
      send(method, path + at, json && JSON.stringify(json)),
    form: (at: string, fields: Record<string, string>) =>
      send('POST', `/api/v1/oidc${at}`, new URLSearchParams(fields)),
  }
}

async function tokenOf({ ofApp }: Rest, user: string): Promise<string> {
  await ofApp('POST', '/users', { externalUserId: user })
  return String((await ofApp('POST', `/users/${user}/token`))['access_token'])
}

const makers: Readonly<Record<Kind, (rest: Rest, user: string) => Promise<Revocable>>> = {
  async key({ ofApp }, user) {
    await ofApp('POST', '/users', { externalUserId: user })
    const key = await ofApp('POST', `/users/${user}/keys`)
    const end = () => ofApp('DELETE', `/users/${user}/keys?keyId=${String(key['keyId'])}`)
    return { credential: String(key['apiKey']), end }
  },
  async token(rest, user) {
    const token = await tokenOf(rest, user)
    return { credential: token, end: () => rest.form('/token/revocation', { token }) }
  },
  async session(rest, user) {
    const opened = await rest.form('/token', {
      grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
      subject_token: await tokenOf(rest, user),
      subject_token_type: 'urn:ietf:params:oauth:token-type:access_token',
    })
    const token = String(opened['access_token'])
    return { credential: token, end: () => rest.form('/token/revocation', { token }) }
  },
  async user(rest, user) {
    const credential = await tokenOf(rest, user)
    return { credential, end: () => rest.ofApp('DELETE', `/users?externalUserId=${user}`) }
  },
}

function authorizeOf(url: string, secret: string) {
  let calls = 0
  return async (credential: string): Promise<unknown> => {
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
    }
    const response = await fetch(`${url}/authorize`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}` },
      body: JSON.stringify({ headers: { Authorization: [`Bearer ${credential}`] }, state }),
    })
    const { status }: { status: unknown } = JSON.parse(await response.text())
    return status
  }
}
