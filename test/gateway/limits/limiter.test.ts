import { randomUUID } from 'node:crypto'
import { isIP } from 'node:net'
import * as fc from 'fast-check'
import { Redis } from 'ioredis'
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  inject,
  it,
  onTestFinished,
} from 'vitest'
import { fingerprint } from '../../../core/lib/crypto.ts'
import { createEnvReader } from '../../../core/lib/env.ts'
import { createLog, silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { toNetwork } from '../../../core/lib/network/addresses.ts'
import { readAddress, parseAddress } from '../../../gateway/limits/address.ts'
import { createCounters } from '../../../gateway/limits/counters.ts'
import { type EdgeConfig, readEdgeConfig } from '../../../gateway/http/config.ts'
import type { LimitSettings } from '../../../gateway/limits/config.ts'
import { startProxy } from '../../core/support.ts'
import { type Rpc, clientId } from '../../fakes/gateway-core.ts'
import { createSignedValues } from '../../../gateway/auth/signed-values.ts'
import {
  type Answer,
  type Harness,
  asRecord,
  publicUrl,
  serviceToken,
  startHarness,
} from '../support.ts'

let harness: Harness
/** Shared by several tests. */
let shared: Harness | undefined
afterEach(async () => {
  if (harness !== shared) await harness?.stop()
})

const wide: LimitSettings = {
  perAddress: 100,
  perClient: 100,
  loginPerAddress: 100,
  failuresPerAddress: 100,
  failuresPerClient: 100,
}
const halfPast = Date.parse('2026-03-10T12:00:30.000Z')
let at = halfPast

async function limited(
  limits: Partial<LimitSettings>,
  edge: Partial<EdgeConfig> = {},
): Promise<Harness> {
  at = halfPast
  harness = await startHarness({
    now: () => new Date(at),
    edge: { limits: { ...wide, ...limits }, ...edge },
  })
  return harness
}

const basicOf = (id: string) => `Basic ${Buffer.from(`${id}:svc_cs_x`).toString('base64')}`
const token = (more: { headers?: Record<string, string>; id?: string } = {}) =>
  harness.ask('POST', '/api/v1/oidc/token', {
    form: 'grant_type=client_credentials',
    authorization: basicOf(more.id ?? 'm2m_1'),
    headers: more.headers ?? {},
  })
const from = (address: string, id = 'm2m_1') =>
  token({ id, headers: { 'x-forwarded-for': address } })
const limitHeaders = ({ headers }: { headers: Headers }) =>
  ['limit', 'remaining', 'reset'].map((name) => headers.get(`ratelimit-${name}`))

describe('edge', () => {
  it('has its own limit per address, for usage and registration together', async () => {
    at = halfPast
    harness = await startHarness({
      now: () => new Date(at),
      edge: { limits: wide },
      builderEdge: { port: 0, url: 'https://edge.example', corsOrigins: [], perAddress: 2 },
    })
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
    at += 30_000
    expect((await usage()).status).toBe(200)
  })
})

describe('user creation at the builder API', () => {
  it('has its own limit per client', async () => {
    at = halfPast
    harness = await startHarness({
      now: () => new Date(at),
      edge: { limits: { ...wide, perClient: 2 } },
    })
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

describe('wrong credentials', () => {
  const secret = 'ingest-secret-of-at-least-32-characters'
  const usage = `/api/v1/apps/${clientId}/usage`
  const event = { type: 'create_signed_ticket', auth_id: `${clientId}:ada`, request_id: 'r-1' }
  const exchange = {
    grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
    subject_token_type: 'urn:ietf:params:oauth:token-type:access_token',
  }
  type Attempt = (credential: string) => Promise<Answer>

  const ingest: Attempt = (text) =>
    harness.ask('POST', '/api/v1/ingest/events', { authorization: `Bearer ${text}`, json: event })
  const readUsage: Attempt = (text) => harness.ask('GET', usage, { authorization: basicOf(text) })
  const readOwnUsage: Attempt = (text) =>
    harness.builder.ask('GET', `${usage}?meter=fee_wei`, { authorization: `Bearer sk_${text}` })
  const exchangeKey: Attempt = (text) =>
    harness.builder.ask('POST', `/api/v1/apps/${clientId}/oidc/token`, {
      authorization: null,
      form: new URLSearchParams({ ...exchange, subject_token: `sk_${text}` }).toString(),
    })
  const refuseNothing = (): void => {}
  const refuseCaller = (rpc: Rpc) => (): void => harness.core.refuse(rpc, 'CREDENTIAL_INVALID')
  const refuseSubject = (): void => harness.core.refuse('exchangeBuilderToken', 'GRANT_INVALID')

  it.each<[string, Attempt, { right: string; wrong: number; refuse: () => void }]>([
    ['the ingest secret', ingest, { right: secret, wrong: 401, refuse: refuseNothing }],
    [
      'M2M secrets for usage',
      readUsage,
      { right: 'm2m_1', wrong: 401, refuse: refuseCaller('queryUsage') },
    ],
    [
      'keys for usage',
      readOwnUsage,
      { right: 'right', wrong: 401, refuse: refuseCaller('queryMeter') },
    ],
    ['keys at the exchange', exchangeKey, { right: 'right', wrong: 400, refuse: refuseSubject }],
  ])('of %s are limited by address, without refusing the right one', async (...row) => {
    const [, attempt, { right, wrong, refuse }] = row
    await limited({ failuresPerAddress: 2 }, { ingestSecret: secret })
    expect((await attempt(right)).status).toBe(200)
    refuse()
    for (const guess of ['a', 'b']) expect((await attempt(guess)).status).toBe(wrong)
    const refused = await attempt('c')
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '30'])
    harness.core.reset()
    expect((await attempt(right)).status).toBe(200)
    at += 30_000
    refuse()
    expect((await attempt('d')).status).toBe(wrong)
  })

  it('are refused unread after many failures, and right ones are not counted', async () => {
    await limited({ failuresPerClient: 2, perAddress: 1, perClient: 1 })
    for (let i = 0; i < 5; i++) expect((await readUsage('m2m_2')).status).toBe(200)
    harness.core.refuse('queryUsage', 'CREDENTIAL_INVALID')
    for (let i = 0; i < 2; i++) expect((await readUsage('m2m_1')).status).toBe(401)
    const asked = harness.core.calls.length
    expect((await readUsage('m2m_1')).status).toBe(429)
    expect(harness.core.calls).toHaveLength(asked)
  })
})

describe('JWT', () => {
  const usage = `/api/v1/apps/${clientId}/usage?meter=fee_wei`
  const few = { failuresPerAddress: 2, failuresPerClient: 2 }
  const askUsage = (text: string) =>
    harness.builder.ask('GET', usage, { authorization: `Bearer ${text}` })
  const startWithEdge = async (redisUrl?: string) => {
    at = halfPast
    harness = await startHarness({
      now: () => new Date(at),
      edge: { limits: { ...wide, ...few }, redisUrl },
      builderEdge: { port: 0, url: 'https://edge.example', corsOrigins: [], perAddress: 100 },
    })
  }

  it('is not counted on a route that limits only wrong credentials', async () => {
    await limited(few)
    harness.core.refuse('queryMeter', 'TOKEN_INVALID')
    for (const text of ['a.b.1', 'a.b.2', 'a.b.3', 'a.b.4', 'a.b.4', 'a.b.4', 'a.b.4'])
      expect([text, (await askUsage(text)).status]).toEqual([text, 401])
    for (const key of ['sk_a', 'sk_b']) expect((await askUsage(key)).status).toBe(401)
    expect((await askUsage('sk_c')).status).toBe(429)
  })

  it('counts as a failure on other routes, and is known after it worked', async () => {
    await startWithEdge()
    const ask = (text: string) => harness.askEdge('GET', usage, { authorization: `Bearer ${text}` })
    expect((await ask('a.b.known')).status).toBe(200)
    harness.core.refuseWhen(
      'queryMeter',
      ({ authorization }) => !authorization.endsWith('.known'),
      'TOKEN_INVALID',
    )
    const statuses: number[] = []
    for (const text of ['a.b.1', 'a.b.2', 'a.b.3']) statuses.push((await ask(text)).status)
    expect(statuses).toEqual([401, 401, 429])
    const atOnce = await Promise.all(Array.from({ length: 10 }, () => ask('a.b.known')))
    expect(new Set(atOnce.map(({ status }) => status))).toEqual(new Set([200]))
    harness.core.reset()
    harness.core.refuse('queryMeter', 'TOKEN_INVALID')
    expect((await ask('a.b.known')).status).toBe(401)
    expect((await ask('a.b.known')).status).toBe(429)
  })

  it('counts when the credential is a fixed secret, which may look like one', async () => {
    await limited(few, { ingestSecret: 'ingest.secret.of-at-least-32-characters' })
    const statuses: number[] = []
    for (const text of ['a.b.1', 'a.b.2', 'a.b.3', 'ingest.secret.of-at-least-32-characters']) {
      const authorization = `Bearer ${text}`
      const json = { type: 'create_signed_ticket', auth_id: `${clientId}:ada`, request_id: 'r-1' }
      const answer = await harness.ask('POST', '/api/v1/ingest/events', { authorization, json })
      statuses.push(answer.status)
    }
    expect(statuses).toEqual([401, 401, 429, 200])
  })

  it.each([inject('parts').redisUrl ?? []].flat())('is not stored in %s', async (redisUrl) => {
    await startWithEdge(redisUrl)
    const redis = new Redis(redisUrl)
    onTestFinished(() => redis.disconnect())
    const askEdge = (text: string) =>
      harness.askEdge('GET', usage, { authorization: `Bearer ${text}` })
    const isStored = (text: string) =>
      redis.exists(`tollgate:known:${fingerprint(`/api/v1/apps/:clientId/usage Bearer ${text}`)}`)
    const storesKey = async () => {
      const key = `sk_${randomUUID()}`
      await askUsage(key)
      return isStored(key)
    }
    // The gateway stores keys once it is connected.
    await expect.poll(storesKey, { timeout: 10_000 }).toBe(1)
    const jwts = ['usage', 'edge'].map((name) => `a.b.${name}-${randomUUID()}`)
    const [ofUsage = '', ofEdge = ''] = jwts
    const answers = [await askUsage(ofUsage), await askEdge(ofEdge)]
    expect(answers.map(({ status }) => status)).toEqual([200, 200])
    await expect.poll(storesKey).toBe(1)
    expect(await Promise.all(jwts.map(isStored))).toEqual([0, 0])
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
    at += 30_000
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

  it('applies to guesses at an account, per address and over all of them', async () => {
    await limited({ failuresPerClient: 2, failuresPerAddress: 3 }, { trustedProxyHops: 1 })
    harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
    const page = `${harness.gateway.platformUrl}/login`
    const form = (await fetch(page)).headers.getSetCookie()[0]?.split(';')[0] ?? ''
    const logIn = async (address: string, email = 'ada@example.com') =>
      (
        await fetch(page, {
          method: 'POST',
          body: new URLSearchParams({
            email,
            password: 'wrong',
            csrf_token: form.split('=')[1] ?? '',
          }),
          headers: { cookie: form, origin: publicUrl, 'x-forwarded-for': address },
        })
      ).status
    expect([
      await logIn('203.0.113.1'),
      await logIn('203.0.113.1'),
      await logIn('203.0.113.1', ' Ada@example.com'),
    ]).toEqual([401, 401, 429])
    expect([
      await logIn('203.0.113.2'),
      await logIn('203.0.113.3'),
      await logIn('203.0.113.4', 'ADA@EXAMPLE.COM'),
    ]).toEqual([401, 429, 429])
    expect(await logIn('203.0.113.3', 'bob@example.com')).toBe(401)
  })

  describe('logins to one account', () => {
    const page = () => `${harness.gateway.platformUrl}/login`
    const formCookie = async () =>
      (await fetch(page())).headers.getSetCookie()[0]?.split(';')[0] ?? ''
    const send = (form: string, more: { address?: string; email?: string; cookie?: string } = {}) =>
      fetch(page(), {
        method: 'POST',
        redirect: 'manual',
        body: new URLSearchParams({
          email: more.email ?? 'ada@example.com',
          password: 'x',
          csrf_token: form.split('=')[1] ?? '',
        }),
        headers: {
          cookie: [form, more.cookie ?? ''].filter(Boolean).join('; '),
          origin: publicUrl,
          'x-forwarded-for': more.address ?? '203.0.113.1',
        },
      })
    const deviceCookie = (answer: Response) =>
      answer.headers
        .getSetCookie()
        .find((line) => line.startsWith('__Host-tollgate_device='))
        ?.split(';')[0] ?? ''
    const noOther = { loginPerAddress: 100_000, failuresPerAddress: 100_000 }

    it('counts parallel attempts before they are checked', async () => {
      await limited({ ...noOther, failuresPerClient: 20 }, { trustedProxyHops: 1 })
      harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
      const form = await formCookie()
      const answers = await Promise.all(Array.from({ length: 200 }, () => send(form)))
      const statuses = Map.groupBy(answers, ({ status }) => status)
      expect([statuses.get(401)?.length, statuses.get(429)?.length]).toEqual([20, 180])
      expect(harness.core.names().filter((name) => name === 'logIn')).toHaveLength(20)
    })

    it('makes strangers wait increasingly long, but not forever', async () => {
      await limited({ ...noOther, failuresPerClient: 2 }, { trustedProxyHops: 1 })
      at = Date.parse('2026-03-10T12:00:00.000Z')
      harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
      const form = await formCookie()
      const admitted: number[] = []
      const waits: number[] = []
      for (let second = 0; second < 60; second++) {
        const answer = await send(form)
        if (answer.status === 401) admitted.push(second)
        waits.push(Number(answer.headers.get('retry-after')))
        at += 1_000
      }
      expect(Math.max(...waits)).toBe(29)
      expect(admitted).toEqual([0, 1, 2, 4, 5, 10, 20, 30])
      expect((await send(form)).status).toBe(401)
    })

    it('admits a person from a browser that has logged in before', async () => {
      await limited(
        { loginPerAddress: 12, failuresPerAddress: 6, failuresPerClient: 3 },
        { trustedProxyHops: 1 },
      )
      const form = await formCookie()
      const cookie = deviceCookie(await send(form, { email: 'ADA@example.com' }))
      expect(cookie).not.toBe('')
      harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
      for (const address of ['203.0.113.1', '203.0.113.2', '203.0.113.3'])
        for (let i = 0; i < 12; i++) await send(form, { address })
      expect((await send(form)).status).toBe(429)
      expect((await send(form, { address: '203.0.113.9' })).status).toBe(429)
      harness.core.reset()
      expect((await send(form, { cookie })).status).toBe(303)
      expect((await send(form, { cookie, email: 'bob@example.com' })).status).toBe(429)
      expect((await send(form, { cookie: `${cookie}x` })).status).toBe(429)
    })

    it('lets all known browsers of an account share the same places', async () => {
      await limited(noOther, { trustedProxyHops: 1 })
      const form = await formCookie()
      const logInAs = async (email: string, cookie = '') => {
        const answer = await send(form, { email, cookie })
        const request = asRecord(harness.core.calls.findLast(({ rpc }) => rpc === 'logIn')?.request)
        const { source, isKnownDevice } = request
        return { cookie: deviceCookie(answer), place: { source, isKnownDevice } }
      }
      const emails = ['ada@example.com', 'ADA@example.com', 'bob@example.com']
      const stranger = (await logInAs('ada@example.com')).place
      const places: { source: unknown; isKnownDevice: unknown }[] = []
      for (const email of emails) {
        const { cookie } = await logInAs(email)
        places.push((await logInAs(email, cookie)).place)
      }
      expect(stranger.isKnownDevice).toBe(false)
      expect(places.map(({ isKnownDevice }) => isKnownDevice)).toEqual([true, true, true])
      const [first, second, ofBob] = places.map(({ source }) => source)
      expect([second === first, ofBob === first]).toEqual([true, false])
    })

    it('rejects a cookie that is forged, of another account or for another purpose', async () => {
      await limited({ ...noOther, failuresPerClient: 2 }, { trustedProxyHops: 1 })
      const form = await formCookie()
      const [name = '', value = ''] = deviceCookie(await send(form)).split('=')
      const [encoded = '', expiresAt = '', mac = ''] = value.split('.')
      const inner = Buffer.from(encoded, 'base64url').toString()
      const bobs = deviceCookie(await send(form, { email: 'bob@example.com' })).split('=')[1] ?? ''
      const [bobsText = '', , bobsMac = ''] = bobs.split('.')
      const secret = { secret: serviceToken, purpose: 'login state' }
      const forged = [
        `${encoded}.${Number(expiresAt) + 1}.${mac}`,
        `${encoded}.${expiresAt}`,
        `${encoded}.${expiresAt}.`,
        `${encoded}.${expiresAt}.${mac}.${mac}`,
        `${encoded}.${expiresAt}.${bobsMac}`,
        `${bobsText}.${expiresAt}.${mac}`,
        bobs,
        createSignedValues(secret).sign(inner, 3_600),
        createSignedValues({ ...secret, secret: 'x'.repeat(32), purpose: 'device cookie' }).sign(
          inner,
          3_600,
        ),
      ]
      harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
      while ((await send(form)).status !== 429);
      for (const each of forged)
        expect([each, (await send(form, { cookie: `${name}=${each}` })).status]).toEqual([
          each,
          429,
        ])
      // One of two cookies with the same name may be planted.
      const twice = `${name}=${value}; ${name}=${value}`
      expect((await send(form, { cookie: twice })).status).toBe(429)
      expect((await send(form, { cookie: `${name}=${value}` })).status).toBe(401)
    })

    it('treats a browser with an expired cookie as a stranger', async () => {
      await limited({ ...noOther, failuresPerClient: 1 }, { trustedProxyHops: 1 })
      at = Date.parse('2026-03-10T12:00:00.000Z')
      const form = await formCookie()
      const cookie = deviceCookie(await send(form))
      harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
      at += 180 * 86_400_000
      expect([(await send(form)).status, (await send(form, { cookie })).status]).toEqual([401, 429])
    })

    it('also limits a browser that has logged in before', async () => {
      await limited({ ...noOther, failuresPerClient: 3 }, { trustedProxyHops: 1 })
      const form = await formCookie()
      const cookie = deviceCookie(await send(form))
      harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
      const statuses: number[] = []
      for (let i = 0; i < 5; i++) statuses.push((await send(form, { cookie })).status)
      expect(statuses).toEqual([401, 401, 401, 429, 429])
    })
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

describe('address of a request', () => {
  const request = (forwarded: string | undefined, remoteAddress = '10.0.0.1') => ({
    raw: { socket: { remoteAddress }, headers: { 'x-forwarded-for': forwarded } },
  })

  it.each([
    [0, '203.0.113.1', '10.0.0.1'],
    [1, '198.51.100.1, 203.0.113.1', '203.0.113.1'],
    [2, 'made up, 198.51.100.1, 203.0.113.1', '198.51.100.1'],
    [3, '198.51.100.1, 203.0.113.1', '198.51.100.1'],
    [1, undefined, '10.0.0.1'],
    [1, 'nonsense', '10.0.0.1'],
    [1, '203.0.113.1:5678', '203.0.113.1'],
    [1, '[2001:db8:1:2::5]:443', '2001:db8:1:2::/64'],
    [1, '"[2001:db8:1:2::5]"', '2001:db8:1:2::/64'],
    [1, 'fe80::1%eth0', 'fe80:0:0:0::/64'],
    [1, '203.0.113.1:https', '10.0.0.1'],
    [1, '[203.0.113.1', '10.0.0.1'],
    [1, '999.0.113.1:80', '10.0.0.1'],
    [1, 'unknown', '10.0.0.1'],
    [1, '2001:db8:1:2::5', '2001:db8:1:2::/64'],
  ])('behind %i trusted proxies with X-Forwarded-For %s is %s', (hops, forwarded, expected) => {
    expect(readAddress(request(forwarded), hops)).toBe(expected)
  })

  it.each([
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['2001:0db8:0000:0042::1', '2001:db8:0:42::/64'],
    ['::1', '0:0:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['2001:db8::', '2001:db8:0:0::/64'],
    ['::ffff:c000:201', '192.0.2.1'],
    ['0:0:0:0:0:FFFF:192.0.2.1', '192.0.2.1'],
    ['64:ff9b::192.0.2.1', '64:ff9b:0:0::/64'],
  ])('%s counts as %s', (address, expected) => {
    expect(toNetwork(address)).toBe(expected)
  })
})

describe('address in X-Forwarded-For', () => {
  const v4 = fc.ipV4()
  const port = fc.option(fc.integer({ min: 0, max: 65_535 }), { nil: undefined })
  const at = (text: string, portNumber: number | undefined): string =>
    portNumber === undefined ? text : `${text}:${portNumber}`

  it('is read with and without port, brackets and zone', () => {
    fc.assert(
      fc.property(v4, port, (address, portNumber) => {
        expect(parseAddress(at(address, portNumber))).toBe(address)
      }),
    )
    fc.assert(
      fc.property(fc.ipV6(), port, fc.constantFrom('', '%eth0', '%25eth0'), (address, n, zone) => {
        expect(parseAddress(at(`[${address}${zone}]`, n))).toBe(address)
        expect(parseAddress(address + zone)).toBe(address)
      }),
    )
  })

  it('is the one that the trusted proxy wrote, after any client input', () => {
    const invented = fc.array(
      fc.oneof(
        fc.string(),
        v4,
        fc.ipV6(),
        fc.constantFrom(
          'unknown',
          '_hidden',
          '"[2001:db8::1]:80"',
          'for=192.0.2.1',
          '::ffff:1.2.3.4',
        ),
      ),
      { maxLength: 60 },
    )
    const hop = fc.oneof(v4, fc.ipV6())
    fc.assert(
      fc.property(invented, fc.tuple(hop, port), fc.boolean(), (before, [address, n], asLines) => {
        const written =
          isIP(address) === 6 && n !== undefined ? `[${address}]:${n}` : at(address, n)
        const header = asLines ? [...before, written] : [...before, written].join(', ')
        const request = {
          raw: { socket: { remoteAddress: '10.0.0.1' }, headers: { 'x-forwarded-for': header } },
        }
        expect(readAddress(request, 1)).toBe(toNetwork(address))
        expect(readAddress(request, 0)).toBe('10.0.0.1')
        for (const hops of [2, 5]) expect(readAddress(request, hops)).not.toBe('')
      }),
    )
  })

  it('counts an IPv6 address by its first 64 bits in any spelling', () => {
    fc.assert(
      fc.property(fc.ipV6(), (address) => {
        const { hostname } = new URL(`http://[${address}]`)
        expect(toNetwork(hostname.slice(1, -1))).toBe(toNetwork(address))
      }),
    )
  })

  it('returns undefined for anything else', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        const address = parseAddress(text)
        expect(address === undefined || isIP(address) > 0).toBe(true)
      }),
    )
  })

  it('is reported once and counted when no proxy is configured', async () => {
    const lines: string[] = []
    const log = createLog({ level: 'warn', name: 'gateway' }, { write: (line) => lines.push(line) })
    const metrics = createMetrics('gateway')
    harness = await startHarness({ log, metrics })
    for (let i = 0; i < 3; i++)
      await harness.ask('GET', '/health', { headers: { 'x-forwarded-for': '203.0.113.9' } })
    expect(lines.filter((line) => line.includes('TRUSTED_PROXY_HOPS'))).toHaveLength(1)
    expect(await metrics.metrics()).toMatch(/tollgate_gateway_forwarded_ignored_total\S* 3/)
  })
})

const now = () => new Date(at)

/** Tries a client secret; `right` is the one that core accepts. */
const guess = (id: string, secret: string, address = '203.0.113.9') =>
  harness.ask('POST', '/api/v1/oidc/token', {
    form: 'grant_type=client_credentials',
    authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`,
    headers: { 'x-forwarded-for': address },
  })
const right = 'svc_cs_right'
const onlyRight = () =>
  harness.core.refuseWhen(
    'issueMachineToken',
    ({ authorization }) => !atob(authorization.replace('Basic ', '')).endsWith(`:${right}`),
    'CREDENTIAL_INVALID',
  )
function countsOf(answers: readonly { status: number }[]): Record<number, number> {
  const counts: Record<number, number> = {}
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1
  return counts
}
const many = <T>(count: number, run: (i: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => run(i)))

// Counters of this process and, if available, in Redis.
describe.each([undefined, ...[inject('parts').redisUrl ?? []].flat()])(
  'parallel guesses, with counters in %s',
  (redisUrl) => {
    const few = { failuresPerClient: 20, failuresPerAddress: 60 }
    const settings = { ...few, perAddress: 100_000, perClient: 100_000 }
    let id: string
    beforeAll(async () => {
      shared = await limited(settings, { trustedProxyHops: 1, redisUrl })
    })
    afterAll(async () => {
      await shared?.stop()
      shared = undefined
    })
    // Counts in Redis outlive a test, so each test has its own minute and client.
    beforeEach(() => {
      if (shared) harness = shared
      at += 60_000 * (1 + Math.floor(Math.random() * 1e8))
      id = `m2m_${randomUUID()}`
      harness.core.reset()
      onlyRight()
    })

    it('count before they are checked: a thousand for one client count as a thousand', async () => {
      const answers = await many(1_000, (i) => guess(id, `wrong-${i}`))
      expect(countsOf(answers)).toEqual({ 401: 20, 429: 980 })
      expect(harness.core.calls).toHaveLength(20)
      expect(Number(answers.at(-1)?.headers.get('retry-after'))).toBeGreaterThan(0)
    })

    it('with the same wrong secret count like others', async () => {
      const answers = await many(200, () => guess(id, 'wrong'))
      expect(countsOf(answers)).toEqual({ 401: 20, 429: 180 })
    })

    it('under new names have to wait, without locking out others at their address', async () => {
      const [answers, others] = await Promise.all([
        many(300, (i) => guess(`${id}_${i}`, 'wrong')),
        many(20, (i) => guess(`${id}_new_${i}`, right)),
      ])
      expect(countsOf(others)).toEqual({ 200: 20 })
      // Guesses checked together with right secrets may also have to wait.
      expect(countsOf(answers)[401]).toBeLessThanOrEqual(60)
      expect(countsOf(answers)[429]).toBeGreaterThanOrEqual(240)
      expect(answers.every(({ status }) => status === 401 || status === 429)).toBe(true)
      expect((await guess(`${id}_later`, right)).status).toBe(200)
    })

    it('never refuse a credential that has worked, at that address or under that name', async () => {
      expect((await guess(id, right)).status).toBe(200)
      await many(100, (i) => guess(id, `wrong-${i}`))
      expect(countsOf(await many(50, () => guess(id, right)))).toEqual({ 200: 50 })
    })

    it('admit a right credential for any number of concurrent requests', async () => {
      expect(countsOf(await many(200, () => guess(id, right)))).toEqual({ 200: 200 })
    })

    it('count a credential again once it is refused', async () => {
      expect((await guess(id, right)).status).toBe(200)
      harness.core.refuse('issueMachineToken', 'CREDENTIAL_INVALID')
      const answers = await many(30, () => guess(id, right))
      expect(answers.every(({ status }) => status === 401 || status === 429)).toBe(true)
      expect((await guess(id, right)).status).toBe(429)
    })
  },
)

describe('parallel requests', () => {
  it("are counted before they are processed; guesses do not reduce others' limits", async () => {
    await limited(
      { perAddress: 150, perClient: 10, failuresPerClient: 20, failuresPerAddress: 60 },
      { trustedProxyHops: 1 },
    )
    onlyRight()
    await many(200, (i) => guess('m2m_1', `wrong-${i}`))
    expect((await guess('m2m_2', right)).status).toBe(200)
    expect(countsOf(await many(100, () => guess('m2m_2', right)))).toEqual({ 200: 9, 429: 91 })
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

describe('counters', () => {
  it('of this process reset when the minute ends', async () => {
    const counters = createCounters({ redisUrl: undefined, log: silentLog(), now })
    expect([
      await counters.add('x'),
      await counters.add('x'),
      await counters.read('x'),
      await counters.read('y'),
    ]).toEqual([1, 2, 2, 0])
    at += 60_000
    expect(await counters.read('x')).toBe(0)
  })

  it('keep a longer window until its end', async () => {
    at = halfPast
    const counters = createCounters({ redisUrl: undefined, log: silentLog(), now })
    const reserve = async () => (await counters.reserve('x', 600)).sum
    expect([await reserve(), counters.resetSeconds(600)]).toEqual([1, 570])
    at += 569_000
    expect(await reserve()).toBe(2)
    at += 1_000
    expect(await reserve()).toBe(1)
  })
})

// Without Redis these tests are not defined, so they are not reported as skipped.
describe.each([inject('parts').redisUrl ?? []].flat())('counters at %s', (redisUrl) => {
  it('are shared through Redis, and each key expires', async () => {
    const name = `test-${Math.random()}`
    const [one, two] = [0, 1].map(() => createCounters({ redisUrl, log: silentLog(), now }))
    const probe = new Redis(redisUrl)
    await probe.ping()
    // Each counter is local until it is connected.
    const early = `${name}-early`
    await expect
      .poll(async () => (await one?.add(early)) !== undefined && (await two?.read(early)), {
        timeout: 10_000,
      })
      .toBeGreaterThan(0)
    await one?.add(name)
    const before = Number(await two?.read(name))
    expect(await one?.add(name)).toBe(before + 1)
    const [key = ''] = await probe.keys(`tollgate:limit:*:${name}`)
    expect(await probe.ttl(key)).toBeGreaterThan(0)
    await one?.reserve(`${name}-long`, 600)
    expect((await two?.reserve(`${name}-long`, 600))?.sum).toBe(2)
    const [long = ''] = await probe.keys(`tollgate:limit:*:${name}-long`)
    expect(await probe.ttl(long)).toBeGreaterThan(600)
    for (const each of [one, two]) each?.stop()
    probe.disconnect()
  })

  it('continue in this process while Redis hangs, and wait for it at most once a second', async () => {
    const { hostname, port } = new URL(redisUrl)
    const proxy = await startProxy({ host: hostname, port: Number(port) })
    const counters = createCounters({
      redisUrl: `redis://127.0.0.1:${proxy.port}`,
      log: silentLog(),
      now,
    })
    const name = `test-${Math.random()}`
    await expect.poll(() => counters.add(name)).toBeGreaterThan(0)
    const seen = await counters.read(name)
    proxy.mode('hang')
    const began = performance.now()
    for (let i = 1; i <= 20; i++) expect(await counters.add(name)).toBe(seen + i)
    expect(performance.now() - began).toBeLessThan(600)
    counters.stop()
    proxy.stop()
  })
})
