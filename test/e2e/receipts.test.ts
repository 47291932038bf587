import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { basic } from '../../deploy/cli/client.ts'
import { directSink } from '../../deploy/signer-double/events/direct-sink.ts'
import { kafkaSink } from '../../deploy/signer-double/events/sinks.ts'
import { type SignerDouble, createSignerDouble } from '../../deploy/signer-double/signer-double.ts'
import { verifyReceipt } from '../support/usage/receipt-verifier.ts'
import { type TestService, startTestService } from '../support/deployment/service.ts'
import { eventually } from '../support/waiting.ts'

let running: TestService
let signer: SignerDouble
let receipt: string
let eventId: string

beforeAll(async () => {
  running = await startTestService()
  const { sidecarUrl, webhookSecret: secret } = running.service.quickstart
  const sink =
    running.topic === null
      ? directSink({ url: sidecarUrl, secret })
      : kafkaSink((running.env['KAFKA_BROKERS'] ?? '').split(','), running.topic)
  signer = createSignerDouble({
    sinks: [sink],
    webhook: { url: `${sidecarUrl}/authorize`, headers: [['Authorization', `Bearer ${secret}`]] },
  })
  await signer.start()
  await call('POST', `${app()}/users`, { body: { externalUserId: 'ada' } })
  const { body: key } = await call('POST', `${app()}/users/ada/keys`)
  const headers = [['Authorization', `Bearer ${key.apiKey}`]] as const
  const paid = await signer.pay({ type: 'live', manifestId: 'm-ada', headers })
  if (paid.status !== 200) throw new Error(`the signer has answered ${paid.status}`)
  await signer.flush()
  const items = await eventually(
    async () => (await call('GET', `${builder()}/usage/requests`)).body.items,
    (all) => all.length > 0,
  )
  eventId = items[0].eventId
  receipt = (await call('GET', `${builder()}/usage/requests/${eventId}/receipt`)).body.receipt
})
afterAll(async () => {
  await signer?.stop()
  await running?.stop()
})

async function call(
  method: string,
  path: string,
  options: { body?: unknown; form?: Record<string, string>; authorization?: string } = {},
) {
  const { platformUrl, m2mClientId, m2mClientSecret } = running.service.quickstart
  const { body, form, authorization = basic(m2mClientId, m2mClientSecret) } = options
  const response = await fetch(path.startsWith('http') ? path : platformUrl + path, {
    method,
    headers: {
      authorization,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    body: form ? new URLSearchParams(form) : body === undefined ? null : JSON.stringify(body),
  })
  return { status: response.status, body: parse(await response.text()) }
}

// Untyped: each test checks the fields that it reads.
const parse = (text: string) => JSON.parse(text)

const app = () => `/api/v1/apps/${running.service.quickstart.clientId}`
const builder = () => `/api/v1/builder/apps/${running.service.quickstart.clientId}`
const oidc = '/api/v1/oidc'

describe('a receipt', () => {
  it('is returned only to its app, on the same day with a provisional root', async () => {
    const path = `${builder()}/usage/requests/${eventId}/receipt`
    const { status, body } = await call('GET', path)
    expect(status).toBe(200)
    expect(body).toMatchObject({ provisional: true, proof: { treeSize: 1, leafIndex: 0 } })
    expect(body.jwks).toMatchObject({ keys: [{ use: 'sig' }] })
    await verifyReceipt(body, body.jwks)
    expect((await call('GET', body.jwksUri)).body.keys).toContainEqual(body.jwks.keys[0])
    const [head, claims] = String(body.receipt)
      .split('.')
      .map((part) => Buffer.from(part, 'base64url').toString())
    expect(parse(head ?? '')).toMatchObject({ typ: 'tollgate-receipt+jwt' })
    expect(parse(claims ?? '')).toMatchObject({ externalUserId: 'ada', ticket: { eventId } })
    const other = path.replace(/app_\w+/, 'app_0123456789abcdef01234567')
    expect((await call('GET', other)).status).toBe(404)
    expect((await call('GET', path.replace(eventId, randomUUID()))).status).toBe(404)
    const roots = await call('GET', `${builder()}/usage/roots?from=2026-01-01`)
    expect(roots.body).toMatchObject({ roots: [], jwks: { keys: [] } })
    for (const query of ['from=2026-02-30', 'limit=0', 'limit=367', 'to=tomorrow', 'day=1'])
      expect([query, (await call('GET', `${builder()}/usage/roots?${query}`)).status]).toEqual([
        query,
        400,
      ])
  })

  it('is rejected wherever a token is accepted', async () => {
    const bearer = `Bearer ${receipt}`
    const asBearer = { authorization: bearer }
    // As a machine token, as a user token and at userinfo.
    expect((await call('GET', `${builder()}/usage/roots`, asBearer)).status).toBe(401)
    expect((await call('GET', '/api/v1/user/usage/requests', asBearer)).status).toBe(401)
    expect((await call('GET', `${oidc}/userinfo`, asBearer)).status).toBe(401)
    const introspection = await call('POST', `${oidc}/token/introspection`, {
      form: { token: receipt },
    })
    expect(introspection).toEqual({ status: 200, body: { active: false } })
    // As the subject of an exchange.
    const exchange = await call('POST', `${app()}/oidc/token`, {
      form: {
        grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
        subject_token: receipt,
        subject_token_type: 'urn:ietf:params:oauth:token-type:access_token',
      },
    })
    expect(exchange.status).toBe(400)
    expect(exchange.body).toMatchObject({ error: 'invalid_grant' })
    // At the sidecar.
    const paid = await signer.pay({
      type: 'live',
      manifestId: 'm-receipt',
      headers: [['Authorization', bearer]],
    })
    expect(paid.status).toBe(401)
  })
})
