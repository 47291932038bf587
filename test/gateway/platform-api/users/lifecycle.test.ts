import { once } from 'node:events'
import { type Server, createServer } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterEach, describe, expect, it } from 'vitest'
import { currentValue } from '../../../../core/lib/settings/reloadable.ts'
import { createEnvReader } from '../../../../core/lib/env.ts'
import { createLog, silentLog } from '../../../../core/lib/log.ts'
import { createMetrics } from '../../../../core/lib/metrics.ts'
import { readGatewayConfig } from '../../../../gateway/config.ts'
import { startGateway } from '../../../../gateway/server.ts'
import type { Webhook } from '../../../../gateway/platform-api/signer/webhook.ts'
import { clientId } from '../../../fakes/gateway-core/identity.ts'
import {
  type Harness,
  basic,
  publicUrl,
  quietEdge,
  serviceToken,
  startHarness,
} from '../../support.ts'

let harness: Harness | undefined
afterEach(async () => {
  await harness?.stop()
  harness = undefined
})

async function holdPort(): Promise<{ server: Server; port: number }> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  return { server, port: typeof address === 'object' && address ? address.port : 0 }
}

const configFor = (target: string, platformPort = 0) => ({
  host: '127.0.0.1',
  platformPort,
  builderPort: 0,
  publicUrl,
  tokenAlg: 'RS256',
  core: { target, token: serviceToken, deadlineMs: 300 },
  edge: quietEdge,
})

describe('settings', () => {
  it('have defaults, except for the secret', () => {
    const env = createEnvReader({})
    const { core, edge, ...config } = readGatewayConfig(env)
    const { connections } = edge
    const present = {
      ...config,
      core: { ...core, token: currentValue(core.token), tokens: undefined },
      edge: {
        ...edge,
        limits: currentValue(edge.limits),
        ingestSecret: currentValue(edge.ingestSecret),
        connections: {
          max: currentValue(connections.max),
          maxPerAddress: currentValue(connections.maxPerAddress),
        },
      },
    }
    expect(present).toEqual({
      host: '127.0.0.1',
      platformPort: 8080,
      builderPort: 8081,
      publicUrl: 'http://localhost:8080',
      tokenAlg: 'RS256',
      validateV2: false,
      loginProvider: undefined,
      core: { target: '127.0.0.1:50051', token: '', deadlineMs: 5000 },
      edge: {
        limits: {
          perAddress: 6000,
          perClient: 6000,
          loginPerAddress: 60,
          failuresPerAddress: 60,
          failuresPerClient: 20,
        },
        redisUrl: undefined,
        trustedProxyHops: 0,
        corsOrigins: [],
        ingestSecret: undefined,
        connections: { max: 10_000, maxPerAddress: 1_000 },
      },
    })
    expect(env.problems).toEqual([
      expect.stringMatching(
        /^CORE_TOKEN must have at least 32 characters, or set CORE_TOKEN_GATEWAY/,
      ),
    ])
    expect(env.settings.every(({ meaning }) => meaning.endsWith('.'))).toBe(true)
  })

  it('are all rejected at once', () => {
    const env = createEnvReader({
      PLATFORM_PORT: 'x',
      CORE_TARGET: 'http://core',
      PUBLIC_URL: 'ftp://x',
      GATEWAY_DEADLINE_MS: '1',
      CORE_TOKEN: 'short',
    })
    readGatewayConfig(env)
    expect(env.problems.map((line) => line.split(' ')[0]).sort()).toEqual([
      'CORE_TARGET',
      'CORE_TOKEN',
      'GATEWAY_DEADLINE_MS',
      'PLATFORM_PORT',
      'PUBLIC_URL',
    ])
  })
})

describe('gateway', () => {
  it('follows the readiness of core, and is unavailable when core refuses its token', async () => {
    harness = await startHarness()
    expect(await harness.gateway.ready()).toEqual({ core: 'ok' })
    harness.core.answer('getReadiness', {
      parts: [
        { name: 'database', state: 'unavailable' },
        { name: 'openmeter', state: 'degraded' },
        { name: 'kafka', state: 'a state of a later version' },
      ],
    })
    expect(await harness.gateway.ready()).toEqual({
      core: 'ok',
      database: 'unavailable',
      openmeter: 'degraded',
      kafka: 'degraded',
    })
    for (const reason of ['SERVICE_TOKEN_INVALID', 'SERVICE_ROLE_FORBIDDEN'] as const) {
      harness.core.refuse('getReadiness', reason)
      expect(await harness.gateway.ready()).toEqual({ core: 'unavailable' })
      harness.core.refuse('listUsers', reason)
      const refused = await harness.ask('GET', `/api/v1/apps/${clientId}/users`)
      expect([refused.status, refused.body['code']]).toEqual([503, 'service_token_invalid'])
    }
    harness.core.stop()
    expect(await harness.gateway.ready()).toEqual({ core: 'unavailable' })
    expect((await harness.ask('GET', `/api/v1/apps/${clientId}/users`)).status).toBe(503)
    expect((await harness.ask('GET', '/health')).status).toBe(200)
  })

  it('waits for core only until its deadline', async () => {
    harness = await startHarness({}, 200)
    harness.core.hang('listUsers')
    const began = Date.now()
    const { status, headers } = await harness.ask('GET', `/api/v1/apps/${clientId}/users`)
    expect([status, headers.get('retry-after')]).toEqual([503, '1'])
    expect(Date.now() - began).toBeGreaterThanOrEqual(190)
  })

  it('starts and stops without core, more than once', async () => {
    const gateway = await startGateway(configFor('127.0.0.1:1'), {
      log: silentLog(),
      metrics: createMetrics('gateway'),
    })
    expect((await fetch(`${gateway.platformUrl}/health`)).status).toBe(200)
    await Promise.all([gateway.stop(), gateway.stop()])
    await expect(fetch(`${gateway.platformUrl}/health`)).rejects.toThrow('fetch failed')
  })

  it('reports the setting of an occupied port, and leaves nothing open', async () => {
    const { server, port } = await holdPort()
    const starting = startGateway(configFor('127.0.0.1:1', port), {
      log: silentLog(),
      metrics: createMetrics('gateway'),
    })
    await expect(starting).rejects.toThrow(
      `port ${port} on 127.0.0.1 is already in use; set PLATFORM_PORT to another port`,
    )
    server.close()
  })

  it('finishes a running request before it stops, and aborts after 3 s', async () => {
    let release: (() => void) | undefined
    const arrived = Promise.withResolvers<void>()
    const webhook: Webhook = (_, response) => {
      release = () => response.end('{"late":true}')
      arrived.resolve()
    }
    harness = await startHarness({ webhook })
    const post = () =>
      fetch(`${harness?.gateway.platformUrl}/webhooks/remote-signer`, {
        method: 'POST',
        body: '{}',
      })
    const running = post()
    await arrived.promise
    const stopped = harness.gateway.stop()
    release?.()
    expect(await (await running).json()).toEqual({ late: true })
    await stopped

    const other = await startHarness({ webhook: () => arrived.resolve() })
    const stuck = fetch(`${other.gateway.platformUrl}/webhooks/remote-signer`, {
      method: 'POST',
      body: '{}',
    })
    const cut = stuck.then(
      () => 'answered',
      () => 'cut',
    )
    await new Promise((resolve) => setTimeout(resolve, 50))
    const began = Date.now()
    await other.stop()
    expect(Date.now() - began).toBeLessThan(3000)
    expect(await cut).toBe('cut')
  })
})

describe('embedded webhook', () => {
  it('gets the request with its body unread', async () => {
    const seen: string[] = []
    const refusal = { status: 401, reason: 'missing credential', code: 'missing_credential' }
    harness = await startHarness({
      webhook: async (request, response) => {
        seen.push(request.headers['content-type'] ?? '', await text(request))
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(refusal))
      },
    })
    const body = '{not json'
    const answer = await harness.ask('POST', '/webhooks/remote-signer', {
      text: body,
      headers: { 'content-type': 'odd', 'x-correlation-id': 'w1' },
    })
    expect([answer.status, answer.body, seen]).toEqual([200, refusal, ['odd', body]])
    expect(answer.headers.get('x-correlation-id')).toBe('w1')
  })

  it('returns 500 without details when it fails', async () => {
    harness = await startHarness({
      webhook: async () => {
        throw new Error('secret detail')
      },
    })
    const answer = await harness.ask('POST', '/webhooks/remote-signer', { json: {} })
    expect([answer.status, answer.text.includes('secret')]).toEqual([500, false])
  })
})

describe('logs and metrics', () => {
  it.each([
    ['info', []],
    ['debug', ['/api/v1/oidc/jwks', '/.well-known/openid-configuration']],
  ])('include answers with public documents at level %s', async (level, routes) => {
    const lines: string[] = []
    const log = createLog({ level, name: 'gateway' }, { write: (line) => void lines.push(line) })
    harness = await startHarness({ log })
    for (const path of ['/api/v1/oidc/jwks', '/.well-known/openid-configuration'])
      await harness.ask('GET', path, { authorization: null })
    const logged = () =>
      lines
        .map((each) => JSON.parse(each))
        .flatMap(({ msg, route }) => (msg === 'request' ? [route] : []))
        .filter((route) => route !== '/api/v1/openapi.json')
    await expect.poll(logged).toEqual(routes)
    expect(await harness.metrics.metrics()).toMatch(
      /http_duration_seconds_count\{[^}]*route="\/api\/v1\/oidc\/jwks"[^}]*\} 1/,
    )
  })

  it('contain route templates, never user input', async () => {
    const lines: string[] = []
    const log = createLog(
      { level: 'info', name: 'gateway' },
      { write: (line) => void lines.push(line) },
    )
    harness = await startHarness({ log })
    const path = `/api/v1/apps/${clientId}/users`
    harness.core.refuse('deactivateUser', 'NOT_FOUND')
    await harness.ask('DELETE', `${path}?externalUserId=ada@example.com`, {
      headers: { 'x-correlation-id': 'seen' },
    })
    await harness.ask('POST', '/api/v1/oidc/token', {
      form: 'grant_type=client_credentials&client_secret=hush&client_id=me',
      authorization: null,
    })
    const line = lines
      .map((each) => JSON.parse(each))
      .find(({ correlationId }) => correlationId === 'seen')
    expect(line).toMatchObject({
      msg: 'request',
      route: '/api/v1/apps/:clientId/users',
      method: 'DELETE',
      status: 404,
      reason: 'NOT_FOUND',
      clientId,
      ms: expect.any(Number),
    })
    for (const secret of ['ada@example.com', 'hush', basic, serviceToken, 'a.b.c'])
      expect(lines.join('')).not.toContain(secret)
    const samples = (await harness.metrics.metrics())
      .split('\n')
      .filter(
        (sample) =>
          sample.startsWith('tollgate_gateway_http_duration_seconds_count') &&
          sample.includes('DELETE'),
      )
    expect(samples).toEqual([
      'tollgate_gateway_http_duration_seconds_count{process="gateway",route="/api/v1/apps/:clientId/users",method="DELETE",status="404"} 1',
    ])
  })
})
