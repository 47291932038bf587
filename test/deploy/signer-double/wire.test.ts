import { describe, expect, it } from 'vitest'
import { payBody } from '../../../deploy/signer-double/client.ts'
import type { PayRequest } from '../../../deploy/signer-double/client.ts'
import { parseHeaderFlag } from '../../../deploy/signer-double/wire/go-headers.ts'
import { DEFAULT_ORCHESTRATOR } from '../../../deploy/signer-double/options.ts'
import { rational } from '../../../deploy/signer-double/wire/rational.ts'
import { answer, exchange, startDouble, startRawWebhook, startWebhook } from './support.ts'

const OK = '{"status":200,"auth_id":"acme:alice"}'
const ALLOWED = `HTTP/1.1 200 OK\r\nContent-Length: ${OK.length}\r\n\r\n${OK}`
const secret = parseHeaderFlag('Authorization:Bearer whsec_test')

/** A request with exactly these header lines, its JSON padded to the length in the example. */
function requestBytes(request: PayRequest, length: number, headers: readonly string[]): string {
  const body = payBody(request, DEFAULT_ORCHESTRATOR).padEnd(length, ' ')
  const head = ['POST /generate-live-payment HTTP/1.1', 'Host: signer:8935', ...headers]
  return `${head.join('\r\n')}\r\n\r\n${body}`
}

function idsOf(...ids: string[]): () => string {
  return () => ids.shift() ?? '00000000'
}

describe('the webhook request on the wire', () => {
  it('has the head of the Go client and the body of a first live call', async () => {
    const raw = await startRawWebhook(ALLOWED)
    const double = await startDouble({
      webhook: { url: raw.url, headers: secret },
      ev: 50_000_000_000_000n,
      newHex: idsOf('9f86d081', '1a2b3c4d'),
    })
    const request = {
      type: 'live',
      app: 'acme/echo',
      manifestId: 'sess-01J7',
      orchestrator: { pricePerUnit: 12_000n },
    }
    await exchange(
      double.url,
      requestBytes(request, 1184, [
        'accept: application/json',
        'Accept-Encoding: identity',
        'authorization: Bearer sk_live_7Qp2mV9aXr4LtB8cYwZ0',
        'Connection: close',
        'Content-Length: 1184',
        'Content-Type: application/json',
        'User-Agent: livepeer-python-gateway/0.1',
      ]),
    )
    const body =
      '{"headers":{"Accept":["application/json"],"Accept-Encoding":["identity"],"Authorization":["Bearer sk_live_7Qp2mV9aXr4LtB8cYwZ0"],"Connection":["close"],"Content-Length":["1184"],"Content-Type":["application/json"],"User-Agent":["livepeer-python-gateway/0.1"]},"state":{"StateID":"9f86d081","PMSessionID":"0x2b1f6c0e5d7a49a8b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7081920","LastUpdate":"2026-09-14T10:15:30.123456789Z","OrchestratorAddress":"0x5be44e23041e93cdf9bcd5a0968524e104e38ae1","App":"acme/echo","AuthExpiry":0,"SenderNonce":1,"Balance":"49999999880000","InitialPricePerUnit":12000,"InitialPixelsPerUnit":1,"Type":"live","SequenceNumber":0,"AuthID":""}}'
    expect(raw.bytes()).toBe(
      [
        'POST /authorize HTTP/1.1',
        `Host: ${new URL(raw.url).host}`,
        'User-Agent: Go-http-client/1.1',
        `Content-Length: ${body.length}`,
        'Authorization: Bearer whsec_test',
        'Content-Type: application/json',
        'Accept-Encoding: gzip',
        '',
        body,
      ].join('\r\n'),
    )
  })

  it('contains a fractional balance, the local offset and an expired authorization', async () => {
    const webhook = await startWebhook()
    const now = 1_789_380_977_123_456_789n
    const double = await startDouble({
      webhook: { url: webhook.url },
      now: () => now,
      ev: 3_000_000_000n,
      utcOffsetMinutes: 120,
    })
    const hash = '0x9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab'
    const orchestrator = '0x847791cbf03be716a7fe9dc8c9affe17bd49ae5e'
    const state = double.seal({
      stateId: '4e07408b',
      pmSessionId: hash,
      lastUpdate: now - 5_123_456_789n,
      orchestratorAddress: orchestrator,
      authExpiry: 1_789_380_958n,
      senderNonce: 21n,
      balance: rational(496_005_900n, 7n),
      initialPricePerUnit: 300n,
      initialPixelsPerUnit: 7n,
      type: 'lv2v',
      sequenceNumber: 10n,
      authId: 'tenant_a:user_42',
    })
    webhook.script = answer('{"status":200,"auth_id":"tenant_a:user_42"}')
    const request: PayRequest = {
      state,
      type: 'lv2v',
      manifestId: '4b2f',
      orchestrator: { address: orchestrator, recipientRandHash: hash },
    }
    const response = await exchange(
      double.url,
      requestBytes(request, 2309, [
        'X-Request-ID: gw-8842',
        'user-agent: Go-http-client/1.1',
        'Content-Length: 2309',
        'x-forwarded-for: 203.0.113.7',
        'Authorization: Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlIiwic3ViIjoidXNlcl80MiJ9.c2ln',
        'Content-Type: application/json',
        'Accept-Encoding: gzip',
      ]).replace('HTTP/1.1\r\n', 'HTTP/1.0\r\n'),
    )
    expect(response).toContain('200 OK')
    expect(webhook.calls[0]?.body).toBe(
      '{"headers":{"Accept-Encoding":["gzip"],"Authorization":["Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlIiwic3ViIjoidXNlcl80MiJ9.c2ln"],"Content-Length":["2309"],"Content-Type":["application/json"],"User-Agent":["Go-http-client/1.1"],"X-Forwarded-For":["203.0.113.7"],"X-Request-Id":["gw-8842"]},"state":{"StateID":"4e07408b","PMSessionID":"0x9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab","LastUpdate":"2026-09-14T12:16:17.123456789+02:00","OrchestratorAddress":"0x847791cbf03be716a7fe9dc8c9affe17bd49ae5e","App":"","AuthExpiry":1789380958,"SenderNonce":23,"Balance":"6000/7","InitialPricePerUnit":300,"InitialPixelsPerUnit":7,"Type":"lv2v","SequenceNumber":11,"AuthID":"tenant_a:user_42"}}',
    )
  })

  it('keeps repeated, empty and hostile headers and escapes the same characters as Go', async () => {
    const webhook = await startWebhook(answer('{"status":200,"auth_id":"tenant_a:user_42"}'))
    const now = 1_789_380_990_123_456_789n
    const double = await startDouble({
      webhook: { url: webhook.url },
      now: () => now,
      ev: 2_500_000_000_000n,
    })
    const hash = '0xe7f6c011776e8db7cd330b54174fd76f7d0216b612387a5ffcfb81e6f0919683'
    const state = double.seal({
      stateId: 'ef2d127d',
      pmSessionId: hash,
      lastUpdate: now - 12_400_000_000n,
      app: 'acme/img2img',
      senderNonce: 2n,
      initialPricePerUnit: 2_500_000_000_000n,
      initialPixelsPerUnit: 1n,
      type: 'fixed',
      sequenceNumber: 1n,
      authId: 'tenant_a:user_42',
    })
    const request: PayRequest = {
      state,
      type: 'fixed',
      app: 'acme/img2img',
      manifestId: 'm-77',
      orchestrator: { recipientRandHash: hash },
    }
    await exchange(
      double.url,
      requestBytes(request, 1040, [
        'User-Agent: curl/8.5.0',
        'Accept: */*',
        'Authorization: Bearer sk_live_first',
        'authorization: Bearer sk_live_second',
        'Content-Type: application/json',
        'Content-Length: 1040',
        'Cookie: a=1',
        'cookie: b=2',
        'Signer-Auth-Id: tenant_evil:admin',
        'x-html: <&>',
        'X-Empty:',
      ]).replace('HTTP/1.1\r\n', 'HTTP/1.0\r\n'),
    )
    expect(webhook.calls[0]?.body).toBe(
      String.raw`{"headers":{"Accept":["*/*"],"Authorization":["Bearer sk_live_first","Bearer sk_live_second"],"Content-Length":["1040"],"Content-Type":["application/json"],"Cookie":["a=1","b=2"],"Signer-Auth-Id":["tenant_evil:admin"],"User-Agent":["curl/8.5.0"],"X-Empty":[""],"X-Html":["\u003c\u0026\u003e"]},"state":{"StateID":"ef2d127d","PMSessionID":"0xe7f6c011776e8db7cd330b54174fd76f7d0216b612387a5ffcfb81e6f0919683","LastUpdate":"2026-09-14T10:16:30.123456789Z","OrchestratorAddress":"0x5be44e23041e93cdf9bcd5a0968524e104e38ae1","App":"acme/img2img","AuthExpiry":0,"SenderNonce":3,"Balance":"0","InitialPricePerUnit":2500000000000,"InitialPixelsPerUnit":1,"Type":"fixed","SequenceNumber":2,"AuthID":"tenant_a:user_42"}}`,
    )
  })

  it('keeps every digit of a price above 2^53', async () => {
    const webhook = await startWebhook()
    const double = await startDouble({
      webhook: { url: webhook.url },
      ev: 10_000_000_000_000_001n,
      orchestrator: { pricePerUnit: 10_000_000_000_000_001n },
    })
    await double.pay({ type: 'fixed' })
    expect(webhook.calls[0]?.body).toContain('"InitialPricePerUnit":10000000000000001,')
  })

  it('spells names as Go does and replaces each byte that is not UTF-8', async () => {
    const webhook = await startWebhook()
    const double = await startDouble({ webhook: { url: webhook.url } })
    const headers = [
      ['X_Under', '\xc3\xbc'],
      ['x-BAD', '\xe2\x82'],
      ['x-sep', '\xe2\x80\xa8'],
    ] as const
    await double.pay({ type: 'fixed', headers, orchestrator: { pricePerUnit: 1n } })
    const body = webhook.calls[0]?.body
    expect(body).toContain('"X_under":["ü"]')
    expect(body).toContain('"X-Bad":["\ufffd\ufffd"]')
    expect(body).toContain(String.raw`"X-Sep":["\u2028"]`)
  })

  it('accepts a head far above the default of Node', async () => {
    const webhook = await startWebhook()
    const double = await startDouble({ webhook: { url: webhook.url }, ev: 100_000_000_000n })
    const result = await double.pay({ type: 'fixed', headers: [['Cookie', 'c'.repeat(200_000)]] })
    expect(result.status).toBe(200)
    expect(webhook.calls[0]?.body.length).toBeGreaterThan(200_000)
  })

  it('sorts configured headers, lets them replace Content-Type and ignores a Host', async () => {
    const webhook = await startWebhook()
    const flag = 'x-api-key: a:b c ,Content-Type:text/plain,Host:evil,nonsense,:empty,B:1,B:2'
    const headers = parseHeaderFlag(`${flag},X-Utf:ü`)
    const double = await startDouble({ webhook: { url: webhook.url, headers }, ev: 10n ** 11n })
    await double.pay({ type: 'fixed' })
    const [call] = webhook.calls
    expect(call?.rawHeaders).toEqual([
      'Host',
      new URL(webhook.url).host,
      'User-Agent',
      'Go-http-client/1.1',
      'Content-Length',
      `${Buffer.byteLength(call?.body ?? '')}`,
      'B',
      '2',
      'Content-Type',
      'text/plain',
      'X-Api-Key',
      'a:b c',
      'X-Utf',
      '\xc3\xbc',
      'Accept-Encoding',
      'gzip',
    ])
  })

  it('sends userinfo of the URL as Basic unless Authorization is configured', async () => {
    const webhook = await startWebhook()
    const url = webhook.url.replace('http://', 'http://me:s%20t@')
    const basic = await startDouble({ webhook: { url }, ev: 10n ** 11n })
    const bearer = await startDouble({ webhook: { url, headers: secret }, ev: 10n ** 11n })
    await basic.pay({ type: 'fixed' })
    await bearer.pay({ type: 'fixed' })
    const pair = Buffer.from('me:s t').toString('base64')
    expect(webhook.calls[0]?.rawHeaders).toContain(`Basic ${pair}`)
    expect(webhook.calls[1]?.rawHeaders).toContain('Bearer whsec_test')
  })
})
