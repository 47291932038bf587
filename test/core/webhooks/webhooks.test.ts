import { createPublicKey, verify as verifyEd25519 } from 'node:crypto'
import { Webhook } from 'standardwebhooks'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { CreateWebhookEndpointRequest } from '../../../proto/gen/ts-proto/tollgate/webhooks/v1/webhooks.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { logInTo, manage } from '../../support/web/people.ts'
import {
  type TestApp,
  type TestCore,
  day,
  outcome,
  refusal,
  second,
  startTestCore,
  until,
} from '../support.ts'
import { type Received, type Receiver, startReceiver, status } from './receiver.ts'

const minute = 60 * second

let core: TestCore
let app: TestApp
let receiver: Receiver
beforeAll(async () => {
  core = await startTestCore({ OUTBOUND_ALLOW: '127.0.0.1' })
})
afterAll(() => core.stop())
beforeEach(async () => {
  // The library compares timestamps with the system's clock.
  core.clock.set(new Date())
  app = await core.newApp()
  receiver = await startReceiver()
})
afterEach(() => receiver.stop())

const rpcs = () => core.asOperator()
async function create(request: Partial<CreateWebhookEndpointRequest> = {}, of: TestApp = app) {
  const { endpoint, secret } = await rpcs().createWebhookEndpoint({
    clientId: of.clientId,
    url: receiver.url,
    ...request,
  })
  if (secret !== undefined) registerSecret(secret)
  if (!endpoint) throw new Error('no endpoint')
  return { ...endpoint, secret }
}
const upsert = (externalUserId: string, more: { status?: string; email?: string } = {}) =>
  core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId, ...more })
const deliveriesOf = async (endpointId: string) =>
  (await rpcs().listWebhookDeliveries({ clientId: app.clientId, endpointId })).deliveries
const endpointOf = async (endpointId: string) =>
  (await rpcs().getWebhookEndpoint({ clientId: app.clientId, endpointId })).endpoint
const headersOf = ({ headers }: Received): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]))

describe('a delivery', () => {
  it('is verified by the library of the Standard Webhooks specification', async () => {
    const { id, secret = '' } = await create()
    await upsert('ada')
    await until(() => receiver.received.length === 1)
    const [received] = receiver.received
    if (!received) throw new Error('nothing was received')
    const payload = new Webhook(secret).verify(received.body, headersOf(received))
    expect(payload).toEqual({
      type: 'user.created',
      timestamp: core.clock.now().toISOString(),
      data: { externalUserId: 'ada', endUserId: expect.any(String), status: 'active' },
    })
    expect(received.eventId).toMatch(/^evt_[0-9a-f]{32}$/)
    expect(received.path).toBe('/hooks')
    expect(() =>
      new Webhook(secret).verify(received.body.replace('ada', 'bob'), headersOf(received)),
    ).toThrow('No matching signature found')
    await until(async () => (await deliveriesOf(id))[0]?.status === 'delivered')
    expect(await deliveriesOf(id)).toEqual([
      expect.objectContaining({
        eventId: received.eventId,
        eventType: 'user.created',
        attempts: 1,
        lastStatus: 204,
        body: received.body,
      }),
    ])
  })

  it('is signed with Ed25519 if the endpoint wants it', async () => {
    const { secrets, secret } = await create({ signing: 'ed25519' })
    expect(secret).toBeUndefined()
    const publicKey = secrets[0]?.publicKey ?? ''
    expect(publicKey).toMatch(/^whpk_[A-Za-z0-9+/]{43}=$/)
    await upsert('ada')
    await until(() => receiver.received.length === 1)
    const [received] = receiver.received
    if (!received) throw new Error('nothing was received')
    const x = Buffer.from(publicKey.slice(5), 'base64').toString('base64url')
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' })
    const headers = headersOf(received)
    const content = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${received.body}`
    const [version, signature = ''] = (headers['webhook-signature'] ?? '').split(',')
    expect(version).toBe('v1a')
    const isValid = (text: string): boolean =>
      verifyEd25519(null, Buffer.from(text), key, Buffer.from(signature, 'base64'))
    expect(isValid(content)).toBe(true)
    expect(isValid(`${content} `)).toBe(false)
  })

  it('carries signatures of the old and the new secret during the overlap', async () => {
    const { id, secret: old = '' } = await create()
    const rotation = { clientId: app.clientId, endpointId: id, overlapSeconds: 3_600 }
    const { secret = '', endpoint } = await rpcs().rotateWebhookSecret(rotation)
    registerSecret(secret)
    expect(endpoint?.secrets.map(({ expiresAt }) => expiresAt !== undefined)).toEqual([false, true])
    await upsert('ada')
    await until(() => receiver.received.length === 1)
    const verify = (text: string, at: number) => {
      const received = receiver.received[at]
      if (!received) throw new Error('nothing was received')
      return new Webhook(text).verify(received.body, headersOf(received))
    }
    expect(verify(old, 0)).toEqual(verify(secret, 0))
    await rpcs().rotateWebhookSecret({ ...rotation, overlapSeconds: 0 })
    await upsert('bob')
    await until(() => receiver.received.length === 2)
    for (const text of [old, secret])
      expect(() => verify(text, 1)).toThrow('No matching signature found')
  })

  it('is attempted again on the schedule with the same id, and fails after three days', async () => {
    receiver.answer(status(500, 'out of\u0007 order'))
    const { id } = await create()
    await upsert('ada')
    await until(async () => (await deliveriesOf(id))[0]?.lastStatus === 500)
    const [first] = await deliveriesOf(id)
    expect(first).toMatchObject({ status: 'pending', attempts: 1, lastResponse: 'out of  order' })
    expect(first?.lastError).toBe('the endpoint answered 500')
    const waitMs = new Date(first?.nextAttemptAt ?? 0).getTime() - core.clock.now().getTime()
    expect(waitMs).toBeGreaterThanOrEqual(4_500)
    expect(waitMs).toBeLessThanOrEqual(5_000)
    const pauses = [
      5 * second,
      5 * minute,
      30 * minute,
      ...[2, 5, 10, 14, 20, 20].map((h) => h * 60 * minute),
    ]
    for (const [index, pause] of pauses.entries()) {
      core.clock.advance(pause)
      await until(async () => (await deliveriesOf(id))[0]?.attempts === index + 2)
      await until(async () => {
        const [row] = await deliveriesOf(id)
        return (
          row?.status === 'failed' || (row?.nextAttemptAt ?? '') > core.clock.now().toISOString()
        )
      })
      // An attempt of this row is under way until its lease; the recorded pause is what follows.
      await until(async () => {
        const { rows } = await core.sql.query<{ open: boolean }>(
          'select leased_until is not null as open from webhook_endpoints where id = $1',
          [id],
        )
        return rows[0]?.open === false
      })
    }
    expect((await deliveriesOf(id))[0]).toMatchObject({ status: 'failed', attempts: 10 })
    expect(new Set(receiver.received.map(({ eventId }) => eventId)).size).toBe(1)
    expect(receiver.received).toHaveLength(10)
  })

  it('is refused by redirects, huge answers and private addresses', async () => {
    const other = await startReceiver()
    receiver.answer(status(307, '', { location: other.url }))
    const { id } = await create()
    await upsert('ada')
    await until(async () => (await deliveriesOf(id))[0]?.lastStatus === 307)
    expect((await deliveriesOf(id))[0]?.lastError).toBe(
      'the endpoint answered 307; redirects are not followed',
    )
    expect(other.received).toEqual([])
    other.stop()
    receiver.answer(status(200, 'x'.repeat(70_000)))
    core.clock.advance(5 * second)
    await until(async () => (await deliveriesOf(id))[0]?.attempts === 2)
    await until(async () =>
      /answered more than 65536 bytes/.test((await deliveriesOf(id))[0]?.lastError ?? ''),
    )
    // The name resolves to an address that the operator did not list.
    await core.sql.query('update webhook_endpoints set url = $1 where id = $2', [
      'https://169.254.169.254/latest',
      id,
    ])
    core.clock.advance(5 * minute)
    await until(async () =>
      /is not a public address/.test((await deliveriesOf(id))[0]?.lastError ?? ''),
    )
    expect((await deliveriesOf(id))[0]?.lastStatus).toBeUndefined()
  })
})

describe('an endpoint', () => {
  it('receives only its types', async () => {
    await create({ eventTypes: ['user.deactivated', 'key.created'] })
    await upsert('ada')
    const { keyId } = await core
      .as(app.basic)
      .createKey({ clientId: app.clientId, externalUserId: 'ada', label: 'laptop' })
    await upsert('ada', { email: 'ada@example.com' })
    await core.as(app.basic).deactivateUser({ clientId: app.clientId, externalUserId: 'ada' })
    await until(() => receiver.received.length === 2)
    expect(receiver.types().toSorted()).toEqual(['key.created', 'user.deactivated'])
    const created = receiver.received.find(({ type }) => type === 'key.created')
    expect(created?.data).toEqual({ externalUserId: 'ada', keyId, label: 'laptop' })
  })

  it('is disabled by the answer 410, and works again when activated', async () => {
    receiver.answer(status(410))
    const { id } = await create()
    await upsert('ada')
    await until(async () => (await endpointOf(id))?.status === 'disabled')
    expect(await endpointOf(id)).toMatchObject({ disabledReason: 'gone' })
    const { rows } = await core.sql.query<{ details: object }>(
      "select details from audit_log where action = 'webhook_endpoint_disabled' and details ->> 'endpointId' = $1",
      [id],
    )
    expect(rows).toEqual([{ details: { endpointId: id, reason: 'gone' } }])
    const which = { clientId: app.clientId, endpointId: id }
    expect((await refusal(rpcs().pingWebhookEndpoint(which))).message).toBe(
      'the webhook endpoint is disabled; activate it first',
    )
    await upsert('bob')
    receiver.answer(status(200))
    const active = await rpcs().updateWebhookEndpoint({ ...which, status: 'active' })
    expect(active.endpoint?.disabledReason).toBeUndefined()
    const { delivery } = await rpcs().pingWebhookEndpoint(which)
    await until(() => receiver.types().includes('webhook.ping'))
    expect(receiver.received.at(-1)).toMatchObject({
      eventId: delivery?.eventId,
      data: { endpointId: id },
    })
  })

  it('is disabled after five days without a success', async () => {
    receiver.answer(status(503))
    const { id } = await create()
    await upsert('ada')
    await until(async () => (await endpointOf(id))?.failingSince !== undefined)
    core.clock.advance(4 * day)
    await upsert('bob')
    await until(async () => (await deliveriesOf(id)).every(({ attempts }) => attempts > 0))
    expect((await endpointOf(id))?.status).toBe('active')
    core.clock.advance(day + second)
    await upsert('eve')
    await until(async () => (await endpointOf(id))?.status === 'disabled')
    expect(await endpointOf(id)).toMatchObject({ disabledReason: 'failing' })
  })

  it('replays one delivery, and all failed ones since a time', async () => {
    const { id } = await create()
    const which = { clientId: app.clientId, endpointId: id }
    await upsert('ada')
    await upsert('bob')
    await until(
      async () => (await deliveriesOf(id)).filter((d) => d.status === 'delivered').length === 2,
    )
    const [newest] = await deliveriesOf(id)
    await rpcs().replayWebhookDeliveries({ ...which, deliveryId: newest?.id ?? '' })
    await until(() => receiver.received.length === 3)
    expect(receiver.received[2]?.eventId).toBe(newest?.eventId)
    await core.sql.query(
      "update webhook_deliveries set status = 'failed', due_at = null where endpoint_id = $1",
      [id],
    )
    const failedSince = new Date(core.clock.now().getTime() - minute).toISOString()
    expect(await rpcs().replayWebhookDeliveries({ ...which, failedSince })).toEqual({ replayed: 2 })
    await until(() => receiver.received.length === 5)
    expect(await rpcs().replayWebhookDeliveries({ ...which, failedSince: '2030-01-01' })).toEqual({
      replayed: 0,
    })
  })

  it('lists deliveries in pages and by filters', async () => {
    const { id } = await create()
    for (const name of ['a', 'b', 'c']) {
      core.clock.advance(1)
      await upsert(name)
    }
    await until(async () => (await deliveriesOf(id)).length === 3)
    const which = { clientId: app.clientId, endpointId: id }
    const names: unknown[] = []
    let cursor: string | undefined
    do {
      const page = await rpcs().listWebhookDeliveries({ ...which, limit: 2, cursor })
      names.push(...page.deliveries.map(({ body }) => JSON.parse(body).data.externalUserId))
      cursor = page.nextCursor
    } while (cursor !== undefined)
    expect(names.toSorted()).toEqual(['a', 'b', 'c'])
    const count = async (filter: object) =>
      (await rpcs().listWebhookDeliveries({ ...which, ...filter })).deliveries.length
    expect(await count({ eventType: 'user.created' })).toBe(3)
    expect(await count({ eventType: 'key.created' })).toBe(0)
    expect(await count({ status: 'failed' })).toBe(0)
    expect(await count({ since: '2100-01-01' })).toBe(0)
    expect(await outcome(count({ status: 'odd' }))).toBe('REQUEST_INVALID')
    expect(await outcome(count({ since: 'soon' }))).toBe('REQUEST_INVALID')
    expect(await outcome(count({ cursor: 'x' }))).toBe('REQUEST_INVALID')
  })

  it.each([
    ['', 'url is required'],
    ['ftp://example.com', 'url must be an https URL'],
    ['not a url', 'url is not a URL'],
    ['https://a:b@example.com', 'url must hold no credentials'],
    ['http://example.com/', 'url must be an https URL'],
    ['https://example.com/#part', 'url must have no fragment'],
    [
      'https://10.0.0.1/',
      'url is not a public address; the operator lists others in OUTBOUND_ALLOW',
    ],
    ['https://[::1]/', 'url is not a public address; the operator lists others in OUTBOUND_ALLOW'],
    [`https://example.com/${'x'.repeat(1_024)}`, 'url must have at most 1024 characters'],
  ])('refuses the address %s', async (url, message) => {
    const error = await refusal(create({ url }))
    expect(error.reason).toBe('REQUEST_INVALID')
    expect(error.message).toContain(message)
  })

  it('refuses unknown types and signings, long notes and long overlaps', async () => {
    const { id } = await create()
    const which = { clientId: app.clientId, endpointId: id }
    const calls = [
      create({ eventTypes: ['user.exploded'] }),
      create({ signing: 'rsa' }),
      create({ description: 'x'.repeat(201) }),
      rpcs().updateWebhookEndpoint({ ...which, status: 'odd' }),
      rpcs().rotateWebhookSecret({ ...which, overlapSeconds: 604_801 }),
      rpcs().rotateWebhookSecret({ ...which, overlapSeconds: -1 }),
      rpcs().replayWebhookDeliveries(which),
      rpcs().replayWebhookDeliveries({ ...which, deliveryId: 'x', failedSince: '2026-01-01' }),
      rpcs().replayWebhookDeliveries({ ...which, failedSince: 'yesterday' }),
    ]
    expect(await Promise.all(calls.map(outcome))).toEqual(calls.map(() => 'REQUEST_INVALID'))
  })

  it('is limited to twenty per app, and its secrets to five', async () => {
    const results = await Promise.all(Array.from({ length: 22 }, () => outcome(create())))
    expect(results.filter((result) => result === 'OK')).toHaveLength(20)
    expect(results.filter((result) => result === 'CONFLICT')).toHaveLength(2)
    const { endpoints } = await rpcs().listWebhookEndpoints({ clientId: app.clientId })
    const which = { clientId: app.clientId, endpointId: endpoints[0]?.id ?? '' }
    const rotations: string[] = []
    for (let i = 0; i < 5; i++) rotations.push(await outcome(rpcs().rotateWebhookSecret(which)))
    expect(rotations).toEqual(['OK', 'OK', 'OK', 'OK', 'CONFLICT'])
  })

  it("is invisible to other apps' callers", async () => {
    const { id } = await create()
    const other = await core.newApp()
    const foreign = { clientId: other.clientId, endpointId: id }
    const calls = [
      core.as(other.basic).getWebhookEndpoint(foreign),
      core.as(other.basic).listWebhookDeliveries(foreign),
      core.as(other.basic).getWebhookEndpoint({ ...foreign, clientId: app.clientId }),
      rpcs().updateWebhookEndpoint({ ...foreign, status: 'disabled' }),
      rpcs().deleteWebhookEndpoint(foreign),
      rpcs().rotateWebhookSecret(foreign),
      rpcs().pingWebhookEndpoint(foreign),
      rpcs().replayWebhookDeliveries({ ...foreign, failedSince: '2026-01-01' }),
      rpcs().getWebhookEndpoint({ clientId: app.clientId, endpointId: 'x' }),
    ]
    expect(await Promise.all(calls.map(outcome))).toEqual(calls.map(() => 'NOT_FOUND'))
    expect((await core.as(other.basic).listWebhookEndpoints(foreign)).endpoints).toEqual([])
    await upsert('ada')
    await core.as(other.basic).upsertUser({ clientId: other.clientId, externalUserId: 'bob' })
    await until(() => receiver.received.length === 1)
    expect(receiver.received[0]?.data['externalUserId']).toBe('ada')
    expect(
      (await core.as(app.basic).listWebhookEndpoints({ clientId: app.clientId })).endpoints,
    ).toHaveLength(1)
  })

  it('returns its secret again only for a repeated Idempotency-Key', async () => {
    const first = await create({ idempotencyKey: 'once' })
    const again = await create({ idempotencyKey: 'once' })
    expect(again).toEqual(first)
    expect(await outcome(create({ idempotencyKey: 'once', description: 'other' }))).toBe(
      'IDEMPOTENCY_CONFLICT',
    )
    expect(JSON.stringify(await endpointOf(first.id))).not.toContain(first.secret)
    const { rows } = await core.sql.query<{ sealed: Buffer }>(
      'select sealed_secret as sealed from webhook_secrets where endpoint_id = $1',
      [first.id],
    )
    const bytes = Buffer.from((first.secret ?? '').slice('whsec_'.length), 'base64')
    expect(bytes).toHaveLength(32)
    expect(rows.map(({ sealed }) => sealed.includes(bytes))).toEqual([false])
  })

  it('is deleted with its app', async () => {
    const { id } = await create()
    const { token } = await logInTo(core, app, 'owner')
    await manage(core, { session: token }).deleteApp({ clientId: app.clientId })
    const { rows } = await core.sql.query('select 1 from webhook_endpoints where id = $1', [id])
    expect(rows).toEqual([])
  })

  it('is deleted with its deliveries', async () => {
    const { id } = await create()
    await upsert('ada')
    await until(() => receiver.received.length === 1)
    await rpcs().deleteWebhookEndpoint({ clientId: app.clientId, endpointId: id })
    const { rows } = await core.sql.query(
      'select 1 from webhook_deliveries where endpoint_id = $1 union all select 1 from webhook_secrets where endpoint_id = $1',
      [id],
    )
    expect(rows).toEqual([])
  })
})
