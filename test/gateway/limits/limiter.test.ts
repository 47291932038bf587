import { describe, expect, it } from 'vitest'
import { createEnvReader } from '../../../core/lib/env.ts'
import { readEdgeConfig } from '../../../gateway/config.ts'
import { clientId } from '../../fakes/gateway-core/identity.ts'
import { asRecord } from '../support.ts'
import {
  basicOf,
  clock,
  from,
  harness,
  limitHeaders,
  limited,
  stopAfterEach,
  token,
} from './support.ts'

stopAfterEach()

describe('edge', () => {
  it('has its own limit per address, for usage and registration together', async () => {
    const builderEdge = { port: 0, url: 'https://edge.example', corsOrigins: [], perAddress: 2 }
    await limited({}, {}, { builderEdge })
    const { askEdge, builder } = harness
    const authorization = 'Bearer a.b.c'
    const path = `/api/v1/apps/${clientId}/usage?meter=fee_wei`
    const usage = () => askEdge('GET', path, { authorization })
    const register = () => askEdge('POST', '/api/v1/oidc/register', { authorization, json: {} })
    expect(limitHeaders(await usage())).toEqual(['2', '1', '30'])
    expect((await register()).status).toBe(201)
    for (const refused of [await usage(), await register()])
      expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '30'])
    expect(harness.core.names()).toEqual(['queryMeter', 'registerClient'])
    expect((await askEdge('GET', '/health')).status).toBe(200)
    expect((await builder.ask('GET', path, { authorization })).status).toBe(200)
    expect((await token()).status).toBe(200)
    clock.at += 30_000
    expect((await usage()).status).toBe(200)
  })
})

describe('user creation at the builder API', () => {
  it('has its own limit per client', async () => {
    await limited({ perClient: 2 })
    const create = (id: string) =>
      harness.builder.ask('POST', `/api/v1/apps/${clientId}/users`, {
        authorization: basicOf(id),
        json: { externalUserId: 'ada' },
      })
    for (let i = 0; i < 2; i++) expect((await create('m2m_1')).status).toBeLessThan(300)
    const refused = await create('m2m_1')
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '30'])
    expect((await create('m2m_2')).status).toBeLessThan(300)
    expect((await token()).status).toBe(200)
  })
})

describe('rate limit', () => {
  it('reports what is left, then returns 429 in the format of RFC 6749 until the minute ends', async () => {
    await limited({ perAddress: 3 })
    expect(limitHeaders(await token())).toEqual(['3', '2', '30'])
    expect(limitHeaders(await token())).toEqual(['3', '1', '30'])
    expect((await token()).status).toBe(200)
    const refused = await token()
    expect(refused.status).toBe(429)
    expect(refused.body).toMatchObject({
      error: 'temporarily_unavailable',
      error_description: 'too many requests; try again in 30 s',
    })
    expect(refused.headers.get('retry-after')).toBe('30')
    expect(limitHeaders(refused)).toEqual(['3', '0', '30'])
    expect(harness.core.calls).toHaveLength(3)
    clock.at += 30_000
    expect((await token()).status).toBe(200)
  })

  it('returns 429 on routes whose caller core checks, without calling core', async () => {
    await limited({ perAddress: 1 })
    const mint = () =>
      harness.ask('POST', `/api/v1/apps/${clientId}/users/ada/token`, {
        authorization: basicOf('m2m_1'),
        json: {},
      })
    expect((await mint()).status).toBe(200)
    harness.core.refuse('checkCaller', 'CREDENTIAL_INVALID')
    expect((await mint()).status).toBe(429)
    expect(harness.core.names()).toEqual(['mintUserToken'])
  })

  it('counts each kind of route separately, and ignores routes without a limit', async () => {
    await limited({ perAddress: 1 })
    expect((await token()).status).toBe(200)
    expect((await token()).status).toBe(429)
    const exchange = await harness.ask('POST', `/api/v1/apps/${clientId}/auth/api-key/token`, {
      authorization: 'Bearer svc_ak_x',
      json: {},
    })
    expect(exchange.status).toBe(200)
    const list = await harness.ask('GET', `/api/v1/apps/${clientId}/users`)
    expect([list.status, list.headers.get('ratelimit-limit')]).toEqual([200, null])
  })

  it('applies per client, by Basic and form', async () => {
    await limited({ perClient: 2 })
    expect((await token()).status).toBe(200)
    const form = await harness.ask('POST', '/api/v1/oidc/token', {
      form: 'grant_type=client_credentials&client_id=m2m_1&client_secret=svc_cs_x',
      authorization: null,
    })
    expect([form.status, ...limitHeaders(form)]).toEqual([200, '2', '0', '30'])
    expect((await token()).status).toBe(429)
    expect((await token({ id: 'm2m_2' })).status).toBe(200)
  })

  it('does not count refused requests for the client that they name', async () => {
    await limited({ perClient: 2 }, { trustedProxyHops: 1 })
    harness.core.refuse('issueMachineToken', 'CREDENTIAL_INVALID')
    for (let i = 0; i < 5; i++)
      expect((await token({ headers: { 'x-forwarded-for': '203.0.113.9' } })).status).toBe(401)
    harness.core.reset()
    expect((await token()).status).toBe(200)
  })

  it('has a lower limit of failures per client and address', async () => {
    await limited({ failuresPerClient: 2 }, { trustedProxyHops: 1 })
    harness.core.refuse('issueMachineToken', 'CREDENTIAL_INVALID')
    const statuses: number[] = []
    for (let i = 0; i < 3; i++) statuses.push((await from('203.0.113.9')).status)
    expect(statuses).toEqual([401, 401, 429])
    expect((await from('203.0.113.9', 'm2m_2')).status).toBe(401)
    // The named client can still authenticate elsewhere.
    harness.core.reset()
    expect((await from('203.0.113.8')).status).toBe(200)
  })

  it('is documented only on limited routes', async () => {
    await limited({})
    const paths = asRecord(harness.document['paths'])
    const responses = (path: string, method: string) =>
      Object.keys(asRecord(asRecord(asRecord(paths[path])[method])['responses']))
    expect(responses('/api/v1/oidc/token', 'post')).toContain('429')
    expect(responses('/api/v1/apps/{clientId}/users', 'get')).not.toContain('429')
  })
})

describe('edge settings', () => {
  it('can turn limits off, and are rejected when invalid', () => {
    expect(readEdgeConfig(createEnvReader({ RATE_LIMITS: 'off' })).limits).toBeNull()
    const env = createEnvReader({
      RATE_LIMITS: 'maybe',
      RATE_LIMIT_CLIENT: '0',
      TRUSTED_PROXY_HOPS: '-1',
      CORS_ORIGINS: 'https://a.example,a.example/x',
      INGEST_SHARED_SECRET: 'short',
    })
    readEdgeConfig(env)
    expect(env.problems.map((line) => line.split(' ')[0]).toSorted()).toEqual([
      'CORS_ORIGINS',
      'INGEST_SHARED_SECRET',
      'RATE_LIMITS',
      'RATE_LIMIT_CLIENT',
      'TRUSTED_PROXY_HOPS',
    ])
  })
})
