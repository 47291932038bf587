import { describe, expect, it } from 'vitest'
import { rational } from '../../../deploy/signer-double/wire/rational.ts'
import type { SignedState } from '../../../deploy/signer-double/payment/state.ts'
import { answer, fixedPrice, parsed, startDouble, startWebhook, stateOf, T0 } from './support.ts'

const NOW = 1_789_380_977_123_456_789n

/**
 * Makes `calls` fixed calls of one session. Returns their ticket counts, or the statuses of
 * refusals.
 */
async function play(fee: bigint, calls: number): Promise<(string | number)[]> {
  const double = await startDouble(fixedPrice(fee))
  let state: SignedState | undefined
  const outcome: number[] = []
  for (let i = 0; i < calls; i += 1) {
    const carried = state === undefined ? {} : { state }
    const result = await double.pay({ type: 'fixed', manifestId: 'm', ...carried })
    state = result.state ?? state
    const ticket = double.stats().tickets.at(-1)
    outcome.push(result.status === 200 ? Number(ticket?.numTickets) : result.status)
  }
  return outcome
}

describe('credit at a ticket value of 100', () => {
  it('charges twice for a fee of 10 and never advances', async () => {
    expect(await play(10n, 6)).toEqual([1, 1, 482, 482, 482, 482])
  })

  it('pays three times for a fee of 60', async () => {
    expect(await play(60n, 6)).toEqual([1, 1, 1, 482, 482, 482])
  })

  it('never runs out for a fee of 250', async () => {
    expect(await play(250n, 6)).toEqual([3, 2, 3, 2, 3, 2])
  })

  it('refuses a call that takes more than 100 tickets', async () => {
    expect(await play(10_000n, 1)).toEqual([100])
    expect(await play(10_001n, 1)).toEqual([400])
  })
})

describe('create_signed_ticket', () => {
  it('has the bytes of the first live call', async () => {
    const webhook = await startWebhook()
    const ids = ['9f86d081', '1a2b3c4d']
    const double = await startDouble({
      webhook: { url: webhook.url },
      ev: 50_000_000_000_000n,
      newHex: () => ids.shift() ?? '',
      newId: () => '7b0c2b3e-3f0e-4a53-9a0c-6f1c8b1f2a11',
    })
    webhook.script = (_call, response) => {
      double.advance(0.008)
      response.end('{"status":200,"auth_id":"acme:alice"}')
    }
    const orchestrator = { pricePerUnit: 12_000n, url: 'https://orch.example:8935' }
    await double.pay({ type: 'live', app: 'acme/echo', manifestId: 'sess-01J7', orchestrator })
    await double.flush()
    expect(double.events[1]).toBe(
      '{"id":"7b0c2b3e-3f0e-4a53-9a0c-6f1c8b1f2a11","type":"create_signed_ticket","timestamp":"1789380930131","gateway":"","data":{"app":"acme/echo","auth_id":"acme:alice","billable_secs":10,"computed_fee":"120000","cost":"12000.0000000000","current_time":"2026-09-14T10:15:30.123456789Z","current_time_unix":1789380930123,"manifest_id":"sess-01J7","num_tickets":1,"orch_address":"0x5bE44e23041E93CDF9bCd5A0968524e104e38ae1","orch_url":"https://orch.example:8935","pipeline":"live","pixels":0,"pm_session_id":"0x2b1f6c0e5d7a49a8b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7081920","previous_time":"2026-09-14T10:15:30.123456789Z","previous_time_unix":1789380930123,"request_id":"1a2b3c4d","sequence_number":0,"session_balance":"49999999880000","session_id":"9f86d081","session_status":"new"}}',
    )
  })

  it('has the bytes of a continuing lv2v call, 141653333 px at 300/7 wei', async () => {
    const webhook = await startWebhook(answer('{"status":200,"auth_id":"tenant_a:user_42"}'))
    const double = await startDouble({
      webhook: { url: webhook.url },
      now: () => NOW,
      ev: 3_000_000_000n,
      utcOffsetMinutes: 120,
      newHex: () => '9e8d7c6b',
      newId: () => '0d0f5b0a-8d9e-4c38-8a55-0f4d0c0e7711',
    })
    const hash = '0x9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab'
    const address = '0x847791cbf03be716a7fe9dc8c9affe17bd49ae5e'
    const state = double.seal({
      stateId: '4e07408b',
      pmSessionId: hash,
      lastUpdate: NOW - 5_123_456_789n,
      orchestratorAddress: address,
      senderNonce: 21n,
      balance: rational(496_005_900n, 7n),
      initialPricePerUnit: 300n,
      initialPixelsPerUnit: 7n,
      type: 'lv2v',
      sequenceNumber: 10n,
    })
    const orchestrator = {
      address,
      recipientRandHash: hash,
      url: 'https://o2.example:8935',
      pricePerUnit: 300n,
      pixelsPerUnit: 7n,
    }
    await double.pay({ state, type: 'lv2v', manifestId: '4b2f', orchestrator })
    await double.flush()
    expect(double.events[1]).toBe(
      '{"id":"0d0f5b0a-8d9e-4c38-8a55-0f4d0c0e7711","type":"create_signed_ticket","timestamp":"1789380977123","gateway":"","data":{"app":"","auth_id":"tenant_a:user_42","billable_secs":5.123456789,"computed_fee":"6070857129","cost":"42.8571428571","current_time":"2026-09-14T10:16:17.123456789Z","current_time_unix":1789380977123,"manifest_id":"4b2f","num_tickets":2,"orch_address":"0x847791cBF03be716A7fe9Dc8c9Affe17Bd49Ae5e","orch_url":"https://o2.example:8935","pipeline":"live-video-to-video","pixels":141653333,"pm_session_id":"0x9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab","previous_time":"2026-09-14T10:16:12Z","previous_time_unix":1789380972000,"request_id":"9e8d7c6b","sequence_number":11,"session_balance":"857","session_id":"4e07408b","session_status":"continuing"}}',
    )
  })

  it('bills a partial second as a whole one at the first price and reports the new price', async () => {
    const double = await startDouble({ ev: 10n })
    const state = stateOf(await double.pay({ type: 'live', orchestrator: { pricePerUnit: 10n } }))
    double.advance(5.003)
    await double.pay({ type: 'live', state, manifestId: 'm', orchestrator: { pricePerUnit: 7n } })
    await double.flush()
    const [, second] = parsed(double.events)
    expect(second?.data).toMatchObject({
      billable_secs: 5.003,
      computed_fee: '60',
      cost: '7.0000000000',
      pixels: 0,
    })
  })

  it('prepays 60 seconds of lv2v and bills the pixels of an untyped caller', async () => {
    const double = await startDouble({ ev: 1_000_000_000n })
    await double.pay({ type: 'lv2v', orchestrator: { pricePerUnit: 1n } })
    const thirds = { pricePerUnit: 1n, pixelsPerUnit: 3n }
    await double.pay({ type: '', inPixels: 5n, orchestrator: thirds })
    await double.flush()
    const [video, untyped] = parsed(double.events)
    expect(video?.data).toMatchObject({
      billable_secs: 60,
      pixels: 1_658_880_000,
      computed_fee: '1658880000',
    })
    expect(untyped?.data).toMatchObject({
      billable_secs: 0,
      pixels: 0,
      computed_fee: '2',
      pipeline: '',
    })
  })

  it.each([
    [1n, 2n, '1'],
    [1n, 3n, '0'],
    [5n, 3n, '2'],
    [10_000_000_000_000_001n, 1n, '10000000000000001'],
  ])('rounds a fee of %i/%i half away from zero', async (pricePerUnit, pixelsPerUnit, fee) => {
    const orchestrator = { pricePerUnit, pixelsPerUnit }
    const double = await startDouble({ ev: 10n ** 16n, orchestrator })
    await double.pay({ type: 'fixed' })
    await double.flush()
    expect(parsed(double.events)[0]?.data['computed_fee']).toBe(fee)
    expect(double.stats().signed.fee).toBe(BigInt(fee))
  })
})

describe('create_new_payment', () => {
  it('is sent before the webhook is called and has the request id of the ticket', async () => {
    const webhook = await startWebhook()
    const double = await startDouble({ webhook: { url: webhook.url }, ev: 50_000_000_000_000n })
    webhook.script = (_call, response) => {
      expect(double.stats().events.emitted).toBe(1)
      response.end('{"status":200}')
    }
    const orchestrator = { pricePerUnit: 12_000n, url: 'https://orch.example:8935?a=1&b=<2>' }
    await double.pay({ type: 'live', manifestId: 'sess-01J7', orchestrator })
    await double.flush()
    const [created] = parsed(double.events, 'create_new_payment')
    const [ticket] = parsed(double.events)
    expect(Object.keys(created?.data ?? {})).toEqual(Object.keys(created?.data ?? {}).toSorted())
    expect(created?.data).toMatchObject({
      faceValue: '0.0005 ETH',
      winProb: '0.1000000000',
      price: '12000.000 wei/pixel',
      numTickets: '1',
      manifestID: 'sess-01J7',
      requestID: ticket?.data['request_id'],
    })
    expect(double.events[0]).toContain(String.raw`?a=1\u0026b=\u003c2\u003e`)
    expect(created?.timestamp).toBe(`${T0 / 1_000_000n}`)
  })
})
