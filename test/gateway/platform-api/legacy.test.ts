import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { clientId } from '../../fakes/gateway-core/identity.ts'
import { type Harness, asRecord, publicUrl, startHarness } from '../support.ts'

const secret = 'ingest-secret-of-at-least-32-characters'
let harness: Harness
let closed: Harness
beforeAll(async () => {
  harness = await startHarness({ edge: { ingestSecret: secret } })
  closed = await startHarness()
})
afterAll(() => Promise.all([harness.stop(), closed.stop()]))
beforeEach(() => harness.core.reset())

/** Returns every operation of the document that is not deprecated, as `METHOD /path`. */
const operationsOf = (document: Record<string, unknown>): string[] =>
  Object.entries(asRecord(document['paths'])).flatMap(([path, item]) =>
    Object.entries(asRecord(item))
      .filter(([, operation]) => !asRecord(operation)['deprecated'])
      .map(([method]) => `${method.toUpperCase()} ${path}`),
  )

const app = `/api/v1/apps/${clientId}`
const session = { cookie: `__Host-tollgate_session=${'s'.repeat(43)}` }

describe('removed route', () => {
  it.each([
    ['POST', '/api/signer/generate-live-payment', 'signer_proxy_deprecated', 'signer/routing'],
    ['POST', '/api/signer/sign-orchestrator-info', 'signer_proxy_deprecated', 'signer/routing'],
    ['POST', '/api/signer/sign-byoc-job', 'signer_proxy_deprecated', 'signer/routing'],
    ['GET', '/api/signer/discover-orchestrators', 'signer_proxy_deprecated', 'signer/routing'],
    ['POST', `${app}/usage/signed-tickets`, 'signed_ticket_http_ingest_deprecated', 'event stream'],
    ['POST', `${app}/users/ada/credits`, 'route_gone', 'allowances'],
    ['POST', '/api/v1/subscriptions', 'local_subscription_api_deprecated', 'users'],
    ['DELETE', '/api/v1/subscriptions', 'local_subscription_api_deprecated', 'users'],
  ])(
    '%s %s returns 410 for any input, with the replacement',
    async (...[method, path, code, instead]) => {
      for (const input of [
        { authorization: null },
        { authorization: 'Basic broken' },
        ...(method === 'GET' ? [] : [{ text: '{', headers: { 'content-type': 'text/plain' } }]),
      ]) {
        const { status, headers, body } = await harness.ask(method, path, input)
        expect([status, headers.get('deprecation'), headers.get('content-type')]).toEqual([
          410,
          'true',
          'application/problem+json; charset=utf-8',
        ])
        expect(body).toMatchObject({
          code,
          error: code,
          status: 410,
          type: `${publicUrl}/problems/${code.replaceAll('_', '-')}`,
          error_description: body['detail'],
        })
        const operations = operationsOf(harness.document)
        for (const operation of Object.values(asRecord(body['migration'])))
          expect(operations).toContain(operation)
        expect(body['detail']).toContain(instead)
      }
      expect(harness.core.calls).toEqual([])
    },
  )
})

describe('GET /api/v1/subscriptions', () => {
  it('returns an empty list with an explanation to a session', async () => {
    const { status, headers, body } = await harness.ask('GET', '/api/v1/subscriptions', {
      authorization: null,
      headers: session,
    })
    expect([status, headers.get('deprecation')]).toEqual([200, 'true'])
    expect(body).toEqual({ subscriptions: [], deprecation: expect.stringContaining('allowances') })
  })

  it('returns 401 to other callers', async () => {
    harness.core.refuse('checkCaller', 'TOKEN_INVALID')
    expect((await harness.ask('GET', '/api/v1/subscriptions')).status).toBe(401)
    expect(
      (await harness.ask('GET', '/api/v1/subscriptions', { authorization: null, headers: session }))
        .status,
    ).toBe(401)
  })
})

describe('POST /api/v1/ingest/events', () => {
  const url = '/api/v1/ingest/events'
  const event = {
    id: 'e-1',
    type: 'create_signed_ticket',
    data: { auth_id: `${clientId}:ada`, request_id: 'r-1' },
  }
  const send = (json: unknown, authorization: string | null = `Bearer ${secret}`) =>
    harness.ask('POST', url, { json, authorization })

  it('returns its interpretation of an event without storing it', async () => {
    const { status, body } = await send(event)
    expect(status).toBe(200)
    expect(body).toEqual({
      ok: true,
      diagnostic: true,
      ingested: false,
      duplicate: false,
      requestId: 'r-1',
      clientId,
      externalUserId: 'ada',
      correlation_id: expect.any(String),
    })
    expect(harness.core.names()).toEqual(['findApp'])
    const flat = await send({
      type: 'create_signed_ticket',
      client_id: clientId,
      usage_subject: 'bob',
      id: 'e-2',
    })
    expect(flat.body).toMatchObject({ externalUserId: 'bob', requestId: 'e-2' })
  })

  it.each([
    ['another type', { ...event, type: 'x' }, 'type must be create_signed_ticket'],
    ['no client', { ...event, data: { request_id: 'r' } }, 'client_id is required'],
    [
      'no user',
      { ...event, data: { client_id: clientId } },
      'usage_subject or external_user_id is required',
    ],
    ['no id', { type: event.type, data: { auth_id: 'a:b' } }, 'request_id or id is required'],
    ['a body that is not an object', [1], 'the body must be a JSON object'],
  ])('returns 400 for %s', async (_, json, detail) => {
    expect((await send(json)).body).toMatchObject({ status: 400, detail })
  })

  it('returns 404 for an unknown app', async () => {
    harness.core.refuse('findApp', 'NOT_FOUND')
    expect((await send(event)).status).toBe(404)
  })

  it.each([null, 'Bearer wrong', `Basic ${secret}`, 'Bearer undefined'])(
    'returns 401 for %s, before reading the body',
    async (authorization) => {
      expect((await send('not an object', authorization)).status).toBe(401)
      expect(harness.core.calls).toEqual([])
    },
  )

  it('refuses every request when no secret is set', async () => {
    for (const authorization of [null, 'Bearer undefined', 'Bearer ', `Bearer ${secret}`]) {
      expect((await closed.ask('POST', url, { json: event, authorization })).status).toBe(401)
    }
  })
})

describe('GET …/users/{externalUserId}/credits', () => {
  it('returns the allowance under its old path, and links the new one', async () => {
    const { status, headers, body } = await harness.ask('GET', `${app}/users/a%2Fb/credits`)
    expect([status, headers.get('deprecation')]).toEqual([200, 'true'])
    expect(headers.get('link')).toBe(
      `<${publicUrl}${app}/users/a%2Fb/allowances>; rel="successor-version"`,
    )
    expect(body).toEqual((await harness.ask('GET', `${app}/users/a%2Fb/allowances`)).body)
  })
})
