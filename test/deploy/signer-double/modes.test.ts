import { describe, expect, it } from 'vitest'
import type { Mode } from '../../../deploy/signer-double/dialect.ts'
import type { SignerDoubleOptions } from '../../../deploy/signer-double/options.ts'
import { answer, allow, parsed, startDouble, startWebhook, stateOf, T0 } from './support.ts'
import type { Script } from './support.ts'

const NOW = T0 / 1_000_000_000n

async function start(mode: Mode, script: Script = allow, more: SignerDoubleOptions = {}) {
  const webhook = await startWebhook(script)
  const headers = [['Authorization', 'Bearer whsec_test']] as const
  const double = await startDouble({
    mode,
    orchestrator: { pricePerUnit: 100n },
    webhook: { url: webhook.url, headers },
    ...more,
  })
  return { webhook, double }
}

describe('go-livepeer 0.8.11', () => {
  it('has no app, type or maxPrice', async () => {
    const script = answer('{"status":200,"auth_id":"a","maxPrice":{"price":1}}')
    const { webhook, double } = await start('go-v0.8.11', script)
    expect((await double.pay({ type: '', inPixels: 1n, app: 'x' })).status).toBe(200)
    expect((await double.pay({ type: 'live' })).status).toBe(400)
    await double.flush()
    expect(webhook.calls[0]?.body).not.toMatch(/"App"|"Type"/)
    const [ticket] = parsed(double.events)
    expect(ticket?.data).toMatchObject({ cost_per_pixel: '100.0000000000', pixels: 1 })
    expect(Object.keys(ticket?.data ?? {})).not.toContain('app')
    expect(Object.keys(ticket?.data ?? {})).not.toContain('cost')
  })

  it("sends the webhook a slightly later time than the event's", async () => {
    let ticks = T0
    const { webhook, double } = await start('go-v0.8.11', allow, { now: () => (ticks += 1000n) })
    await double.pay({ type: '', inPixels: 1n })
    await double.flush()
    const body: { state: { LastUpdate: string } } = JSON.parse(webhook.calls[0]?.body ?? '')
    const time = parsed(double.events)[0]?.data['current_time']
    expect(body.state.LastUpdate > `${time}`).toBe(true)
  })
})

describe('the successor signer', () => {
  it('adds members to state and event, uses long ids and a flat error envelope', async () => {
    const { webhook, double } = await start('node')
    await double.pay({ type: 'fixed', manifestId: 'm-1' })
    await double.flush()
    const body = webhook.calls[0]?.body
    expect(body).toMatch(/"AuthID":"","AuthPolicy":"","AuthMaxPrice":null,"ManifestID":"m-1"}}$/)
    expect(body).toMatch(/"StateID":"[0-9a-f]{32}"/)
    const [ticket] = parsed(double.events)
    expect(ticket?.data['computed_fee_usd']).toBeNull()
    expect(ticket?.data['payer_address']).toMatch(/^0x[0-9a-fA-F]{40}$/)
    expect(ticket?.data['request_id']).toMatch(/^[0-9a-f]{32}$/)
    const refused = await double.pay({ type: 'nonsense' })
    expect(refused.body).toBe('{"error":"unknown payment type: nonsense"}\n')
  })

  it('answers 502 when the webhook fails, redirects or refuses outside 400-599', async () => {
    const { webhook, double } = await start('node', answer('nonsense'))
    expect((await double.pay({ type: 'fixed' })).status).toBe(502)
    webhook.script = (_call, response) => {
      response.writeHead(307, { Location: '/moved' })
      response.end()
    }
    expect((await double.pay({ type: 'fixed' })).status).toBe(502)
    expect(webhook.calls).toHaveLength(2)
    webhook.script = answer('{"status":302}')
    expect((await double.pay({ type: 'fixed' })).status).toBe(502)
    webhook.script = answer('{"status":483,"reason":"poor"}')
    expect((await double.pay({ type: 'fixed' })).body).toBe('{"error":"poor"}\n')
  })

  it('answers 403 when the identity changes', async () => {
    const { double } = await start('node')
    const state = double.seal({ type: 'fixed', authId: 'acme:bob' })
    expect((await double.pay({ type: 'fixed', manifestId: 'm', state })).status).toBe(403)
  })

  it('calls the webhook again in the second of the expiry', async () => {
    const { webhook, double } = await start('node', answer(`{"status":200,"expiry":${NOW + 2n}}`))
    const first = await double.pay({ type: 'fixed', manifestId: 'm' })
    const again = { type: 'fixed', manifestId: 'm', state: stateOf(first) }
    double.advance(1)
    await double.pay(again)
    expect(webhook.calls).toHaveLength(1)
    double.advance(1)
    await double.pay(again)
    expect(webhook.calls).toHaveLength(2)
  })

  it('uses a cached permission only with the same webhook and headers', async () => {
    const { webhook, double } = await start('node')
    const policy = { authExpiry: NOW + 60n, authPolicy: 'another' }
    const state = double.seal({ type: 'fixed', ...policy })
    await double.pay({ type: 'fixed', manifestId: 'm', state })
    expect(webhook.calls).toHaveLength(1)
  })

  it('keeps the price ceiling while the permission is cached', async () => {
    const maxPrice = '{"price":100,"currency":"wei","unit":"fixed"}'
    const body = `{"status":200,"expiry":${NOW + 60n},"maxPrice":${maxPrice}}`
    const { webhook, double } = await start('node', answer(body))
    const first = await double.pay({ type: 'fixed', manifestId: 'm' })
    const again = { type: 'fixed', manifestId: 'm', state: stateOf(first) }
    expect((await double.pay(again)).status).toBe(200)
    expect((await double.pay({ ...again, orchestrator: { pricePerUnit: 101n } })).status).toBe(481)
    expect(webhook.calls).toHaveLength(1)
  })
})
