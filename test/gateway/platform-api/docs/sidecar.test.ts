import { Ajv } from 'ajv'
import { describe, expect, it } from 'vitest'
import {
  AuthorizeRequest,
  refusalCodes,
} from '../../../../gateway/platform-api/signer/decision-schemas.ts'
import { sidecarDocument } from '../../../../gateway/platform-api/docs/sidecar.ts'
import { limitExceeded, refusals } from '../../../../sidecar/decision/refusals.ts'
import { firstCall, laterCall } from '../../../sidecar/signer-bodies.ts'
import {
  type Harness,
  type Reply,
  secret,
  send,
  startHarness,
  until,
} from '../../../sidecar/support.ts'
import { asRecord, documentChecker } from '../../support.ts'

const check = await documentChecker(asRecord(JSON.parse(JSON.stringify(sidecarDocument))), {
  strict: true,
})

interface Sent {
  readonly method?: string
  readonly headers?: Record<string, string>
  readonly body?: string
}
const own: Record<string, string> = { authorization: `Bearer ${secret}` }

/** Sends a request and checks the answer against the document. */
async function ask({ sidecar }: Harness, path: string, sent: Sent = {}): Promise<Reply> {
  const { method = 'POST', headers = own, body = '' } = sent
  const reply = await send(`${sidecar.url}${path}`, { method, headers, body })
  const values = Object.entries(reply.headers).map(([name, value]): [string, string] => [
    name,
    String(value),
  ])
  const answer = { status: reply.transport, headers: new Headers(values), text: reply.text }
  check({ method, path, answer: { ...answer, body: reply.json } })
  return reply
}

const authorize = (harness: Harness, call: unknown, headers = own): Promise<Reply> =>
  ask(harness, '/authorize', {
    headers,
    body: typeof call === 'string' ? call : JSON.stringify(call),
  })

describe('sidecar document', () => {
  it('lists exactly the existing refusals with their statuses', () => {
    const written = [
      ...Object.values(refusals),
      limitExceeded('usd_per_day', 0),
      limitExceeded('max_price', 0),
    ].map(({ status, code }) => `${status} ${code}`)
    const documented = Object.entries(refusalCodes).flatMap(([status, codes]) =>
      codes.map((code) => `${status} ${code}`),
    )
    expect(documented.toSorted()).toEqual([...new Set(written)].toSorted())
  })

  it("accepts signers' requests", () => {
    const takes = new Ajv({ strict: false }).compile(AuthorizeRequest)
    for (const body of [
      firstCall(),
      laterCall('token'),
      { authorization: 'svc_ak_x', payload: firstCall() },
    ])
      expect(takes(body)).toBe(true)
    for (const body of [[], { headers: 'Authorization' }, { headers: { a: [1] } }])
      expect(takes(body)).toBe(false)
  })

  it('describes the decisions of a running sidecar', async () => {
    const harness = await startHarness({ env: { MAX_PRICE_LIVE_WEI: '1300' } })
    const statuses = new Set<unknown>()
    for (const call of [
      firstCall(),
      { headers: firstCall().headers },
      firstCall({ headers: { 'X-Tollgate-Explain': ['1'] } }),
      { authorization: 'sk_live_alice', payload: { state: firstCall().state } },
      firstCall({ key: 'sk_live_poor' }),
      firstCall({ key: 'sk_live_nobody' }),
      firstCall({ key: 'whatever' }),
      firstCall({ headers: { Authorization: [] } }),
      firstCall({ headers: { Authorization: ['Bearer a', 'Bearer b'] } }),
      firstCall({ state: { AuthID: 'acme:carol' } }),
      firstCall({ state: { StateID: '' } }),
      firstCall({ state: { Type: '' } }),
      `{"headers":{"a":["${'x'.repeat(1_100_000)}"]}}`,
    ]) {
      const { transport, json } = await authorize(harness, call)
      expect(transport).toBe(200)
      statuses.add(json['status'])
    }
    expect([...statuses]).toEqual(expect.arrayContaining([200, 400, 401, 403, 431, 483]))
    harness.core.stop()
    expect((await authorize(harness, firstCall({ key: 'sk_live_tenant' }))).json['status']).toBe(
      503,
    )
  })

  it('describes refusals of callers', async () => {
    const harness = await startHarness({ env: { WEBHOOK_GUESSES_PER_MINUTE: '1' } })
    expect((await authorize(harness, '[]')).transport).toBe(400)
    const event = JSON.stringify({ id: 'e-1', type: 'other', data: {} })
    const push = (headers: Record<string, string>, body = event) =>
      ask(harness, '/events', { headers, body })
    expect((await push({})).transport).toBe(401)
    expect((await authorize(harness, firstCall(), {})).transport).toBe(401)
    const stranger = await startHarness({ env: { WEBHOOK_GUESSES_PER_MINUTE: '1' } })
    const wrong = { authorization: 'Bearer wrong' }
    expect((await authorize(stranger, firstCall(), wrong)).transport).toBe(401)
    expect((await authorize(stranger, firstCall(), wrong)).transport).toBe(429)
    expect((await ask(stranger, '/events', { headers: wrong, body: event })).transport).toBe(429)
  })

  it('describes the pushes of a running sidecar', async () => {
    const harness = await startHarness()
    const push = (body: string, headers: Record<string, string> = own) =>
      ask(harness, '/events', { headers, body })
    const event = { id: 'e-1', type: 'create_signed_ticket', data: { auth_id: 'acme:alice' } }
    expect((await push(JSON.stringify(event))).transport).toBe(202)
    expect((await push(JSON.stringify([event, event]))).transport).toBe(202)
    expect((await push('')).transport).toBe(400)
    expect((await push('[{]')).transport).toBe(400)
    expect((await push(JSON.stringify(Array.from({ length: 1_001 }, () => 1)))).transport).toBe(413)
    expect((await push('{}', { ...own, 'content-encoding': 'gzip' })).transport).toBe(415)
    harness.core.stop()
    expect((await push(JSON.stringify(event))).transport).toBe(503)
  })

  it('describes its health', async () => {
    const harness = await startHarness()
    const get = (path: string) => ask(harness, path, { method: 'GET', headers: {} })
    expect((await get('/health')).transport).toBe(200)
    expect((await get('/healthz')).transport).toBe(200)
    await until(async () => (await get('/readyz')).transport === 200)
    expect((await get('/readyz')).json['status']).toBe('ok')
  })
})
