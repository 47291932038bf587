import { stat } from 'node:fs/promises'
import { createLocalJWKSet, jwtVerify } from 'jose'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import {
  ethRate,
  microsDown,
  microsUp,
  parseDecimal18,
  computePrice,
  usdAttos,
  wei,
} from '../../core/lib/money.ts'
import { basic } from '../../deploy/cli/client.ts'
import { quickstartPath } from '../../deploy/local/data-dir.ts'
import { directSink } from '../../deploy/signer-double/events/direct-sink.ts'
import { type SignerDouble, createSignerDouble } from '../../deploy/signer-double/signer-double.ts'
import { kafkaSink } from '../../deploy/signer-double/events/sinks.ts'
import { type TestService, startTestService } from '../support/deployment/service.ts'
import { eventually } from '../support/waiting.ts'

const rate = ethRate(parseDecimal18('3000') ?? 0n)
/** Returns the wei worth `count` cents at 3000 USD for one ETH. */
const cents = (count: bigint) => (count * 10_000_000_000_000_000n * 10n ** 18n) / rate

let running: TestService
let signer: SignerDouble

beforeAll(async () => {
  running = await startTestService()
  const { adminUrl, sidecarUrl, webhookSecret: secret } = running.service.quickstart
  await vi.waitUntil(async () => {
    const parts = await (await fetch(`${adminUrl}/readyz`)).text()
    return parts.includes('"rate":"ok"') && !/degraded|unavailable/.test(parts)
  }, 20_000)
  const sink =
    running.topic === null
      ? directSink({ url: sidecarUrl, secret })
      : kafkaSink((running.env['KAFKA_BROKERS'] ?? '').split(','), running.topic)
  const startedAt = BigInt(Date.now()) * 1_000_000n
  signer = createSignerDouble({
    ev: cents(5n),
    now: () => startedAt,
    sinks: [sink],
    faults: { duplicate: 0.1, reorder: 0.1 },
    webhook: { url: `${sidecarUrl}/authorize`, headers: [['Authorization', `Bearer ${secret}`]] },
  })
  await signer.start()
})

afterAll(async () => {
  await signer?.stop()
  await running?.stop()
})

async function call(
  method: string,
  path: string,
  options: { body?: unknown; headers?: Record<string, string> } = {},
) {
  const { platformUrl, m2mClientId, m2mClientSecret } = running.service.quickstart
  const response = await fetch(platformUrl + path, {
    method,
    headers: {
      authorization: basic(m2mClientId, m2mClientSecret),
      ...(options.body === undefined ? {} : { 'content-type': 'application/json' }),
      ...options.headers,
    },
    body: options.body === undefined ? null : JSON.stringify(options.body),
  })
  return { status: response.status, headers: response.headers, body: parse(await response.text()) }
}

// Untyped: each test checks the fields that it reads.
const parse = (text: string) => JSON.parse(text)

const app = () => `/api/v1/apps/${running.service.quickstart.clientId}`
const builder = () => `/api/v1/builder/apps/${running.service.quickstart.clientId}`

async function provision(user: string): Promise<string> {
  expect((await call('POST', `${app()}/users`, { body: { externalUserId: user } })).status).toBe(
    201,
  )
  const key = await call('POST', `${app()}/users/${user}/keys`)
  expect(key.status).toBe(201)
  return key.body.apiKey
}

/**
 * Pays in one live session, five simulated seconds apart, until the signer refuses or after `calls`
 * calls.
 */
async function payLive(key: string, options: { calls: number; manifestId: string }) {
  let state: Awaited<ReturnType<SignerDouble['pay']>>['state']
  for (let paid = 0; paid < options.calls; paid++) {
    const answer = await signer.pay({
      type: 'live',
      manifestId: options.manifestId,
      headers: [['Authorization', `Bearer ${key}`]],
      orchestrator: { pricePerUnit: cents(5n) },
      ...(state ? { state } : {}),
    })
    signer.advance(5)
    if (answer.status !== 200) return { paid, refusal: answer }
    state = answer.state
  }
  return { paid: options.calls, refusal: null }
}

const balanceOf = async (user: string) =>
  (await call('GET', `${builder()}/usage/balance?externalUserId=${user}`)).body
const usageOf = async (user: string) =>
  (await call('GET', `${builder()}/usage?groupBy=pipeline_model&userId=${user}`)).body
const costOf = (user: string) =>
  usdAttos(
    signer
      .stats()
      .tickets.filter((ticket) => ticket.authId.endsWith(`:${user}`))
      .reduce((sum, ticket) => sum + computePrice(wei(ticket.fee), rate), 0n),
  )

describe('a signed job', () => {
  it('is authorised until the allowance is used up, then refused with 483, and authorised after a grant', async () => {
    const key = await provision('ada')
    const first = await payLive(key, { calls: 100, manifestId: 'm-ada' })
    expect(first.refusal).toMatchObject({ status: 483 })
    expect(first.refusal?.body).toContain('insufficient balance')
    // Five dollars at a quarter each: the sidecar's own count refuses in time, the stream would be
    // late.
    expect(first.paid).toBeGreaterThanOrEqual(18)
    expect(first.paid).toBeLessThanOrEqual(20)
    await signer.flush()
    await eventually(
      () => usageOf('ada'),
      (usage) => usage.totals.requestCount >= first.paid,
    )

    const granted = await call('POST', `${app()}/users/ada/allowances`, {
      body: { amountUsdMicros: '1000000' },
    })
    expect(granted.status).toBe(200)
    expect(await payLive(key, { calls: 2, manifestId: 'm-ada-2' })).toMatchObject({
      paid: 2,
      refusal: null,
    })
  })

  it('is metered and charged once, despite duplicate and reordered events', async () => {
    await signer.flush()
    const signed = signer.stats().signed
    const usage = await eventually(
      () => usageOf('ada'),
      (read) => read.totals.requestCount >= signed.tickets,
    )
    expect(usage.totals).toMatchObject({
      requestCount: signed.tickets,
      totalFeeWei: signed.fee.toString(),
      networkFeeUsdMicros: microsUp(costOf('ada')).toString(),
      unpricedCount: 0,
    })
    expect(usage.byPipelineModel).toMatchObject([
      { pipeline: 'live', requestCount: signed.tickets },
    ])
    const balance = await balanceOf('ada')
    expect(balance).toMatchObject({
      lifetimeGrantedUsdMicros: '6000000',
      consumedUsdMicros: microsUp(costOf('ada')).toString(),
    })
    const withoutOverage = 6n * 10n ** 18n - costOf('ada')
    expect(BigInt(balance.balanceUsdMicros)).toBeGreaterThanOrEqual(
      microsDown(usdAttos(withoutOverage)),
    )
  })

  it('is refused for a revoked key and for a deactivated user', async () => {
    const key = await provision('bob')
    expect(await payLive(key, { calls: 1, manifestId: 'm-bob' })).toMatchObject({ paid: 1 })
    const { keys } = (await call('GET', `${app()}/users/bob/keys`)).body
    expect((await call('DELETE', `${app()}/users/bob/keys?keyId=${keys[0].keyId}`)).status).toBe(
      200,
    )
    const revoked = await eventually(
      () => payLive(key, { calls: 1, manifestId: 'm-bob-2' }),
      (done) => done.refusal !== null,
    )
    expect(revoked.refusal).toMatchObject({ status: 401 })

    const second = (await call('POST', `${app()}/users/bob/keys`)).body.apiKey
    expect(await payLive(second, { calls: 1, manifestId: 'm-bob-3' })).toMatchObject({ paid: 1 })
    expect((await call('DELETE', `${app()}/users?externalUserId=bob`)).body).toMatchObject({
      success: true,
      status: 'inactive',
    })
    const ended = await eventually(
      () => payLive(second, { calls: 1, manifestId: 'm-bob-4' }),
      (done) => done.refusal !== null,
    )
    expect([401, 403]).toContain(ended.refusal?.status)
  })

  it('is authorised by a user token, which any JWT library can verify', async () => {
    await provision('eve')
    const { body: token } = await call('POST', `${app()}/users/eve/token`, { body: {} })
    const { issuer, platformUrl } = running.service.quickstart
    const discovery = await fetch(`${platformUrl}/api/v1/oidc/.well-known/openid-configuration`)
    expect(parse(await discovery.text()).issuer).toBe(issuer)
    const jwks = createLocalJWKSet(
      parse(await (await fetch(`${platformUrl}/api/v1/oidc/jwks`)).text()),
    )
    const { payload } = await jwtVerify(token.access_token, jwks, {
      issuer,
      audience: issuer,
      typ: 'at+jwt',
    })
    expect(payload).toMatchObject({ external_user_id: 'eve', token_use: 'user', scope: 'sign:job' })
    expect(await payLive(token.access_token, { calls: 2, manifestId: 'm-eve' })).toMatchObject({
      paid: 2,
    })
    const own = await fetch(`${platformUrl}/api/v1/user/usage/balance`, {
      headers: { authorization: `Bearer ${token.access_token}` },
    })
    expect(await own.json()).toMatchObject({ hasAccess: true })
  })
})

describe('the service after a restart', () => {
  it('keeps its credentials and its data, and its quickstart file is readable only by the owner', async () => {
    const before = running.service.quickstart
    const balance = await balanceOf('ada')
    const { quickstart } = await running.restart()
    expect(quickstart).toMatchObject({
      clientId: before.clientId,
      m2mClientId: before.m2mClientId,
      m2mClientSecret: before.m2mClientSecret,
      ownerEmail: before.ownerEmail,
      webhookSecret: before.webhookSecret,
    })
    expect(await balanceOf('ada')).toEqual(balance)
    const { mode } = await stat(quickstartPath(running.service.dataDir))
    expect(mode & 0o777).toBe(0o600)
  })
})
