import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { silentLog } from '../../core/lib/log.ts'
import { createMetrics } from '../../core/lib/metrics.ts'
import { GrantType, TokenType } from '../../proto/oauth.ts'
import { type Sidecar, startSidecar } from '../../sidecar/server.ts'
import { second, serviceToken } from '../core/support.ts'
import { type Real, type RealApp, startReal } from '../gateway/real.ts'
import { asRecord } from '../gateway/support.ts'
import { laterCall } from '../sidecar/signer-bodies.ts'
import { configOf, post, secret } from '../sidecar/support.ts'
import { type Realm, createRealm } from '../support/run/keycloak.ts'

/**
 * HTTP status that each endpoint returns for a token; at the sidecar, the status for the signer's
 * caller.
 */
interface Doors {
  readonly builder: number
  readonly platform: number
  readonly usage: number
  readonly sidecar: number
}
const all = (status: number): Doors => ({
  builder: status,
  platform: status,
  usage: status,
  sidecar: status,
})
const refused: Doors = { builder: 400, platform: 400, usage: 401, sidecar: 401 }

let real: Real
let sidecar: Sidecar
let app: RealApp
let realm: Realm
let otherRealm: Realm
beforeAll(async () => {
  const [started, ...realms] = await Promise.all([
    startReal({ OUTBOUND_ALLOW: '127.0.0.1', RATE_MAX_AGE_SECONDS: '86400' }),
    createRealm(),
    createRealm(),
  ])
  real = started
  ;[realm, otherRealm] = realms
  await moveToToday()
  app = await real.newApp('shop')
  const settings = { CORE_TARGET: real.core.core.target, CORE_TOKEN: serviceToken }
  sidecar = await startSidecar(configOf(settings), {
    log: silentLog(),
    metrics: createMetrics('sidecar'),
    now: real.core.clock.now,
  })
})
afterAll(async () => {
  await sidecar.stop()
  await otherRealm.remove()
  await real.stop()
})
beforeEach(() => real.core.clock.advance(second))

/**
 * Keycloak issues tokens for the current date, so the clock and the price of one ETH must be
 * current, too.
 */
async function moveToToday(): Promise<void> {
  const { clock, sql } = real.core
  clock.set(new Date())
  await sql.query(
    `insert into rates (usd_attos_per_eth, source, observed_at, created_at) values (3000 * 10::numeric ^ 18, 'test', $1, $1)`,
    [clock.now()],
  )
}

const send = async (url: string, init: RequestInit) => {
  const response = await fetch(url, init)
  return { status: response.status, body: asRecord(await response.json()) }
}

/** Calls the app's trusted issuer routes with its owner's session. */
const manage = (path: string, body: object) =>
  send(`${real.url}/api/v1/apps/${app.clientId}/trusted-issuers${path}`, {
    method: 'POST',
    headers: { ...app.session, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })

const check = async (token: string) => (await manage('/check', { token })).body

/** Sends the token as the subject token of an exchange at `url`. */
const exchange = (url: string, token: string, type: string = TokenType.accessToken) =>
  send(`${url}/api/v1/apps/${app.clientId}/oidc/token`, {
    method: 'POST',
    body: new URLSearchParams({
      grant_type: GrantType.tokenExchange,
      subject_token: token,
      subject_token_type: type,
    }),
  })

const readUsage = (token: string) =>
  send(`${real.builderUrl}/api/v1/apps/${app.clientId}/usage?meter=network_fee_usd_micros`, {
    headers: { authorization: `Bearer ${token}` },
  })

const authorize = async (token: string) => {
  const call = laterCall(token, { AuthID: '', LastUpdate: real.core.clock.now().toISOString() })
  const { json } = await post(`${sidecar.url}/authorize`, JSON.stringify(call), {
    authorization: `Bearer ${secret}`,
  })
  return json
}

async function knock(token: string): Promise<Doors> {
  const [builder, platform, usage, answer] = await Promise.all([
    exchange(real.builderUrl, token),
    exchange(real.url, token, TokenType.jwt),
    readUsage(token),
    authorize(token),
  ])
  return {
    builder: builder.status,
    platform: platform.status,
    usage: usage.status,
    sidecar: Number(answer['status']),
  }
}

/**
 * The tests depend on each other: the clock only moves forward, and the last one removes the realm.
 */
describe('a realm of Keycloak', () => {
  it('is rejected by an app that does not trust it', async () => {
    expect(await knock(await realm.userToken())).toEqual(refused)
  })

  it("is trusted by issuer and client, and the check reports the token's user", async () => {
    const rules = {
      issuer: realm.issuer,
      clientClaim: 'azp',
      clientValues: ['shop-web', 'brief-web'],
      userClaim: 'preferred_username',
    }
    const trusted = await manage('', rules)
    expect(trusted.status).toBe(201)
    const checked = await check(await realm.userToken())
    expect(checked).toMatchObject({
      accepted: true,
      trustedIssuerId: trusted.body['id'],
      externalUserId: 'ada',
    })
    expect(rulesBroken(checked)).toEqual([])
  })

  it('gives access to its user and to a service account at every endpoint', async () => {
    const token = await realm.userToken()
    expect(await knock(token)).toEqual(all(200))
    expect(await exchange(real.builderUrl, token)).toMatchObject({
      body: { token_type: 'Bearer', expires_in: 300, scope: 'sign:job', has_access: true },
    })
    expect((await readUsage(token)).body).toMatchObject({
      actor: 'ada',
      subjects: [`${app.clientId}:ada`],
    })
    expect(await authorize(token)).toMatchObject({
      auth_id: `${app.clientId}:ada`,
      identity: { issuer: realm.issuer },
    })
    const service = await realm.serviceToken()
    expect(await authorize(service)).toMatchObject({
      auth_id: `${app.clientId}:service-account-shop-web`,
    })
    expect(await knock(service)).toEqual(all(200))
  })

  it("gives no access to another client's or another realm's token", async () => {
    const other = await realm.userToken('other-web')
    expect(await knock(other)).toEqual(refused)
    expect(rulesBroken(await check(other))).toEqual(['client'])
    expect(await knock(await otherRealm.userToken())).toEqual(refused)
  })

  it('gives no access to an expired token', async () => {
    const brief = await realm.userToken('brief-web')
    expect(await knock(brief)).toEqual(all(200))
    // Clocks may differ by a minute.
    real.core.clock.set(new Date((Number(partOf(brief, 1)['exp']) + 61) * second))
    expect(await knock(brief)).toEqual(refused)
    expect(rulesBroken(await check(brief))).toEqual(['expiry'])
  })

  it('rotates its keys, and tokens of the old and the new key stay valid', async () => {
    const old = await realm.userToken()
    expect(await knock(old)).toEqual(all(200))
    await realm.rotateKeys()
    const fresh = await realm.userToken()
    expect(kidOf(fresh)).not.toBe(kidOf(old))
    // An unknown key causes at most one load in ten seconds.
    real.core.clock.advance(10 * second)
    expect(await knock(fresh)).toEqual(all(200))
    expect(await knock(old)).toEqual(all(200))
  })

  it('is served from cached keys for an hour after it disappears, then is unavailable', async () => {
    const token = await realm.userToken()
    expect(await knock(token)).toEqual(all(200))
    await realm.remove()
    real.core.clock.advance(1800 * second)
    expect(await knock(token)).toEqual(all(200))
    real.core.clock.advance(1900 * second)
    expect(await knock(token)).toEqual(all(503))
    expect(rulesBroken(await check(token))).toEqual(['signature'])
  })
})

const kidOf = (token: string): unknown => partOf(token, 0)['kid']

/** The JWT's header (0) or claims (1). */
const partOf = (token: string, index: 0 | 1): Record<string, unknown> =>
  asRecord(JSON.parse(Buffer.from(token.split('.')[index] ?? '', 'base64url').toString()))

/** The rules of a check that the token breaks. */
function rulesBroken(check: Record<string, unknown>): unknown[] {
  const rules = Array.isArray(check['rules']) ? check['rules'].map(asRecord) : []
  expect(rules).not.toEqual([])
  return rules.filter(({ passed }) => passed === false).map(({ rule }) => rule)
}
