import { randomUUID } from 'node:crypto'
import { Redis } from 'ioredis'
import { describe, expect, inject, it, onTestFinished } from 'vitest'
import { fingerprint } from '../../../core/lib/crypto.ts'
import type { Rpc } from '../../fakes/gateway-core/gateway-core.ts'
import { clientId } from '../../fakes/gateway-core/identity.ts'
import type { Answer } from '../support.ts'
import { basicOf, clock, harness, limited, stopAfterEach } from './support.ts'

stopAfterEach()

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
    clock.at += 30_000
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
    const builderEdge = { port: 0, url: 'https://edge.example', corsOrigins: [], perAddress: 100 }
    await limited(few, { redisUrl }, { builderEdge })
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
