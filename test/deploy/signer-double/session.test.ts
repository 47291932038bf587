import { describe, expect, it } from 'vitest'
import type { PayRequest } from '../../../deploy/signer-double/client.ts'
import { DEFAULT_ORCHESTRATOR } from '../../../deploy/signer-double/options.ts'
import type { SignerDoubleOptions } from '../../../deploy/signer-double/options.ts'
import type { SessionState } from '../../../deploy/signer-double/payment/state.ts'
import {
  answer,
  decode,
  exchange,
  messageOf,
  parsed,
  startDouble,
  startWebhook,
  stateOf,
  T0,
} from './support.ts'

const FEE = 100n
const NOW = T0 / 1_000_000_000n

/** Starts a double with one ticket per call, and seals the state of a running session. */
async function session(
  body: string,
  state: Partial<SessionState> = {},
  options: SignerDoubleOptions = {},
) {
  const webhook = await startWebhook(answer(body))
  const double = await startDouble({
    ev: FEE,
    orchestrator: { pricePerUnit: FEE },
    webhook: { url: webhook.url },
    ...options,
  })
  const sealed = double.seal({
    type: 'fixed',
    sequenceNumber: 4n,
    ...state,
  })
  const base = { type: 'fixed', manifestId: 'm', state: sealed }
  const pay = (request: PayRequest = {}) => double.pay({ ...base, ...request })
  return { webhook, double, sealed, pay }
}

describe('a cached authorization', () => {
  it('is requested again one second after its expiry', async () => {
    const { webhook, pay } = await session('{"status":200}', { authExpiry: NOW - 1n })
    await pay()
    expect(webhook.calls).toHaveLength(1)
    expect(webhook.calls[0]?.body).toContain(`"AuthExpiry":${NOW - 1n},`)
  })

  it.each([NOW, NOW + 1n, NOW * 1000n])('is valid up to its expiry %i', async (authExpiry) => {
    const { webhook, pay } = await session('{"status":403}', { authExpiry })
    expect((await pay()).status).toBe(200)
    expect(webhook.calls).toEqual([])
  })

  it.each([0n, -1n])('is never valid for an expiry of %i', async (authExpiry) => {
    const { webhook, pay } = await session('{"status":200}', { authExpiry })
    await pay()
    expect(webhook.calls).toHaveLength(1)
  })

  it("follows the signer's clock, and is replaced by every webhook call", async () => {
    const { webhook, double, pay } = await session(`{"status":200,"expiry":${NOW + 5n}}`)
    const first = await pay()
    double.advance(5)
    const state = stateOf(await pay({ state: stateOf(first) }))
    expect(decode(state)).toContain(`"AuthExpiry":${NOW + 5n},`)
    double.advance(1)
    webhook.script = answer('{"status":200}')
    const third = await pay({ state })
    expect(webhook.calls).toHaveLength(2)
    expect(decode(stateOf(third))).toContain('"AuthExpiry":0,')
  })

  it('is always requested when a session begins', async () => {
    const { webhook, double } = await session('{"status":200,"expiry":99999999999}')
    await double.pay({ type: 'fixed' })
    await double.pay({ type: 'fixed' })
    expect(webhook.calls).toHaveLength(2)
  })
})

describe('the identity of a session', () => {
  it('is bound by the webhook and kept', async () => {
    const { double, pay } = await session('{"status":200,"auth_id":"acme:alice"}')
    const result = await pay({ headers: [['Signer-Auth-Id', 'evil']] })
    expect(decode(stateOf(result))).toContain('"AuthID":"acme:alice"')
    expect(double.stats().tickets[0]?.authId).toBe('acme:alice')
  })

  it('is bound by the header when the webhook returns no identity', async () => {
    const { double, pay } = await session('{"status":200,"auth_id":""}')
    await pay({ headers: [['signer-auth-id', 'from-header']] })
    expect(double.stats().tickets[0]?.authId).toBe('from-header')
  })

  it('stays empty without an identity, and stays bound when a later answer has no identity', async () => {
    const { double, pay, sealed } = await session('{"status":200}', { authId: 'acme:bob' })
    await pay()
    await double.pay({ type: 'fixed' })
    expect(double.stats().tickets.map(({ authId }) => authId)).toEqual(['acme:bob', ''])
    expect(decode(sealed)).toContain('"AuthID":"acme:bob"')
  })

  it('must not change: leaves neither state nor ticket', async () => {
    const eve = '{"status":200,"auth_id":"acme:eve"}'
    const { double, pay } = await session(eve, { authId: 'acme:bob' })
    const result = await pay()
    expect([result.status, result.state]).toEqual([500, undefined])
    expect(messageOf(result.body)).toBe('Internal Server Error')
    expect(double.stats().signed.tickets).toBe(0)
  })

  it('must not change through the header while the webhook is skipped', async () => {
    const cached = { authId: 'acme:bob', authExpiry: NOW + 60n }
    const { pay } = await session('{"status":200}', cached)
    expect((await pay({ headers: [['Signer-Auth-Id', 'acme:bob']] })).status).toBe(200)
    expect((await pay({ headers: [['Signer-Auth-Id', 'acme:eve']] })).status).toBe(500)
  })
})

describe('a price ceiling of the webhook', () => {
  const ceiling = (price: string, currency = 'wei', unit = 'fixed'): string =>
    `{"status":200,"maxPrice":{"price":${price},"currency":"${currency}","unit":"${unit}"}}`

  it.each([
    [ceiling('100'), 200],
    [ceiling('"100"'), 200],
    [ceiling('100.0'), 200],
    [ceiling('1e2'), 200],
    [ceiling('100', ' WEI '), 200],
    [ceiling('99'), 481],
    [ceiling('99.999'), 481],
    [ceiling('100', 'usd'), 502],
    [ceiling('100', 'wei', 'seconds'), 502],
    [ceiling('0'), 502],
    [ceiling('-5'), 502],
    [ceiling('1e999999999'), 502],
    ['{"status":200,"maxPrice":{}}', 502],
    [ceiling('100', 'wei', 'hour'), 502],
    [ceiling('"abc"'), 500],
  ])('%s answers %i', async (body, status) => {
    const { double, pay } = await session(body)
    expect((await pay()).status).toBe(status)
    expect(double.stats().signed.tickets).toBe(status === 200 ? 1 : 0)
  })

  const units = [
    ['live', 'seconds'],
    ['lv2v', '720p-pixel-seconds'],
  ]

  it.each(units)('of type %s is in %s', async (type, unit) => {
    const { double } = await session(ceiling('1', 'wei', unit), {}, { ev: 10n ** 9n })
    expect((await double.pay({ type, orchestrator: { pricePerUnit: 1n } })).status).toBe(200)
  })

  it('cannot apply to an untyped session, and is ignored while cached', async () => {
    const { double } = await session(ceiling('100', 'wei', ''), {})
    expect((await double.pay({ type: '', inPixels: 1n })).status).toBe(502)
    const cached = await session(ceiling('1'), { authExpiry: NOW })
    expect((await cached.pay()).status).toBe(200)
  })
})

describe('the checks before the webhook', () => {
  const maxPrice = (price: number | string) => ({ price, currency: 'wei', unit: 'fixed' })

  it.each<[string, PayRequest, number]>([
    ['an unknown type', { type: 'batch' }, 400],
    ["another type than the session's", { type: 'live' }, 400],
    ["another app than the session's", { app: 'other' }, 400],
    ['another orchestrator', { orchestrator: { address: `0x${'11'.repeat(20)}` } }, 400],
    ['a state without a manifest id', { manifestId: '' }, 400],
    ['a state without signature', { state: { State: 'e30=', Sig: '' } }, 400],
    ['no price', { orchestrator: { pricePerUnit: 0n } }, 400],
    ['a price per zero pixels', { orchestrator: { pixelsPerUnit: 0n } }, 400],
    ['no ticket parameters', { orchestrator: { recipientRandHash: '0x' } }, 400],
    ['a malformed maxPrice', { maxPrice: { price: 1, currency: 'usd', unit: 'fixed' } }, 400],
    ['a maxPrice of the wrong type', { maxPrice: 5 }, 400],
    ['a maxPrice below the price', { maxPrice: maxPrice(99) }, 481],
    ['a maxPrice equal to the price', { maxPrice: maxPrice('100') }, 200],
  ])('answer for %s', async (_name, request, status) => {
    const { webhook, double, pay } = await session('{"status":200}')
    expect((await pay(request)).status).toBe(status)
    expect(webhook.calls).toHaveLength(status === 200 ? 1 : 0)
    expect(double.stats().events.emitted).toBe(status === 200 ? 2 : 0)
  })

  it('refuse a tampered state', async () => {
    const { sealed, pay } = await session('{"status":200}')
    const forged = Buffer.from(decode(sealed).replace('"Balance":"0"', '"Balance":"9"'))
    const state = { ...sealed, State: forged.toString('base64') }
    expect((await pay({ state })).status).toBe(400)
  })

  it('answer 482 when the credit suffices', async () => {
    const { webhook, pay } = await session('{"status":200}', { balance: { n: 100n, d: 1n } })
    expect((await pay()).status).toBe(482)
    expect(webhook.calls).toEqual([])
  })

  it('answer 480 at nonce 500 until new ticket parameters arrive', async () => {
    const { webhook, double, pay } = await session('{"status":200}', { senderNonce: 500n })
    const refused = await pay()
    expect(refused.status).toBe(480)
    expect(refused.headers['livepeer-orchestrator-url']).toBe(DEFAULT_ORCHESTRATOR.url)
    expect(webhook.calls).toEqual([])
    const fresh = { recipientRandHash: `0x${'ab'.repeat(32)}` }
    const state = stateOf(await pay({ orchestrator: fresh }))
    expect(decode(state)).toContain('"SenderNonce":1,')
    double.demandRefresh()
    expect((await pay({ state })).status).toBe(480)
  })

  it.each([
    '',
    '{',
    '[]',
    '{}',
    '{"orchestrator":5}',
    '{"orchestrator":"!!"}',
    '{"orchestrator":"CP8="}',
  ])('answer 400 for the body %s', async (body) => {
    const { double } = await session('{"status":200}')
    const head = 'POST /generate-live-payment HTTP/1.1\r\nHost: x\r\nConnection: close'
    const length = `Content-Length: ${body.length}`
    const answered = await exchange(double.url, `${head}\r\n${length}\r\n\r\n${body}`)
    expect(answered).toContain('400 Bad Request')
    expect(answered).toContain('{"error":{"message":"')
  })
})

describe('a state', () => {
  it('may be sent twice and then signs twice with one sequence number', async () => {
    const { webhook, double, pay } = await session('{"status":200,"auth_id":"acme:alice"}')
    await pay()
    double.advance(1)
    await pay()
    await double.flush()
    expect(webhook.calls).toHaveLength(2)
    const [first, second] = parsed(double.events)
    expect([first?.data['sequence_number'], second?.data['sequence_number']]).toEqual([5, 5])
    expect(first?.id).not.toBe(second?.id)
    expect(first?.data['current_time']).not.toBe(second?.data['current_time'])
  })

  it('numbers the calls of a session from 0 and counts its tickets', async () => {
    const { double } = await session('{"status":200}')
    let state = stateOf(await double.pay({ type: 'fixed' }))
    for (let i = 0; i < 2; i += 1) {
      double.advance(1)
      state = stateOf(await double.pay({ type: 'fixed', manifestId: 'm', state }))
    }
    const tickets = double.stats().tickets
    expect(tickets.map(({ sequenceNumber }) => sequenceNumber)).toEqual([0n, 1n, 2n])
    expect(new Set(tickets.map(({ sessionId }) => sessionId)).size).toBe(1)
    expect(decode(state)).toContain('"SenderNonce":3,')
  })
})
