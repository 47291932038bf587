import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import type { GetDecisionResponse } from '../../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import { type Sidecar, startSidecar } from '../../../sidecar/server.ts'
import {
  type Proxy,
  type TestApp,
  type TestCore,
  basicOf,
  outcome,
  serviceToken,
  startProxy,
  startTestCore,
  until,
} from '../../core/support.ts'
import { keepLog, registerSecret } from '../../support/run/secrecy.ts'
import { firstCall } from '../signer-bodies.ts'
import { type Reply, configOf, post, secret } from '../support.ts'

let core: TestCore
let app: TestApp
let proxy: Proxy
let sidecar: Sidecar
beforeAll(async () => {
  // Owners' accounts include nothing.
  core = await startTestCore({ STARTER_USD_MICROS: '0' })
  app = await core.newApp({ starterUsdMicros: '1000000' })
  proxy = await startProxy({ host: '127.0.0.1', port: core.core.port })
  const config = configOf({
    CORE_TARGET: `127.0.0.1:${proxy.port}`,
    CORE_TOKEN: serviceToken,
    PUBLIC_URL: 'https://svc.example',
    SIDECAR_ID: 'explained',
  })
  sidecar = await startSidecar(config, {
    log: createLog({ level: 'info', name: 'sidecar' }, { write: keepLog }),
    metrics: createMetrics('sidecar'),
    now: core.clock.now,
  })
})
afterAll(async () => {
  await sidecar.stop()
  proxy.stop()
  await core.stop()
})

/** Creates a user of the app, with a key. */
async function newKey(
  externalUserId: string,
  { clientId, basic }: Pick<TestApp, 'clientId' | 'basic'> = app,
): Promise<{ apiKey: string; keyId: string }> {
  const m2m = core.as(basic)
  await m2m.upsertUser({ clientId, externalUserId })
  const { apiKey, keyId } = await m2m.createKey({ clientId, externalUserId })
  return { apiKey: registerSecret(apiKey), keyId }
}

const ask = (apiKey: string, state: object = {}): Promise<Reply> =>
  post(
    `${sidecar.url}/authorize`,
    JSON.stringify(
      firstCall({ key: apiKey, state: { LastUpdate: core.clock.now().toISOString(), ...state } }),
    ),
    { authorization: `Bearer ${secret}` },
  )

const idOf = ({ json }: Reply): string => String(json['decision'])

/** Returns core's explanation of a refusal, as soon as core has the record. */
async function explanationOf(reply: Reply): Promise<GetDecisionResponse> {
  const decisionId = idOf(reply)
  await until(async () => (await outcome(core.asOperator().getDecision({ decisionId }))) === 'OK')
  const answer = await core.asOperator().getDecision({ decisionId })
  // The harness searches the kept log for secrets.
  keepLog(JSON.stringify(answer))
  return answer
}

describe('a refusal by a sidecar with a real core', () => {
  it("shows key, bound and balance to the app's client only", async () => {
    const { apiKey, keyId } = await newKey('ada')
    const reply = await ask(apiKey, { InitialPricePerUnit: 1_000_000_000_000_000 })
    expect(reply.json).toMatchObject({ status: 483, code: 'insufficient_balance' })
    const { decision, explanation } = await explanationOf(reply)
    expect(decision).toMatchObject({
      sidecarId: 'explained',
      rule: 'insufficient_balance',
      credential: { kind: 'api_key', id: keyId, clientId: app.clientId, source: 'core' },
      money: { remainingUsdNanos: '1000000000', usdPerEth: '3000' },
    })
    expect(Number(decision?.money?.boundUsdNanos)).toBeGreaterThanOrEqual(30_000_000_000)
    expect(explanation).toContain('A call is refused when its bound exceeds the available money.')

    const { clientId, basic } = app
    const read = { clientId, decisionId: idOf(reply) }
    expect((await core.as(basic).getDecision(read)).decision).toEqual(decision)
    const other = await core.newApp()
    expect(await outcome(core.as(other.basic).getDecision(read))).toBe('NOT_FOUND')
    const own = { ...read, clientId: other.clientId }
    expect(await outcome(core.as(other.basic).getDecision(own))).toBe('NOT_FOUND')
  })

  it('shows the age of a cached identity', async () => {
    const { apiKey } = await newKey('ben')
    expect((await ask(apiKey)).json['status']).toBe(200)
    core.clock.advance(3_000)
    const reply = await ask(apiKey, { AuthID: 'somebody:else' })
    const { decision } = await explanationOf(reply)
    expect(decision).toMatchObject({
      rule: 'other_identity',
      credential: { source: 'memory', ageMs: 3_000 },
    })
  })

  it("names the account of the app's owner, without core for a second", async () => {
    const request = { name: 'Owned', ownerEmail: 'dora@example.com', isCustomer: true }
    const owned = await core.as().createApp({ ...request, starterUsdMicros: '1000000' })
    const { clientId, m2mClientId, m2mClientSecret } = owned
    const of = { clientId, basic: basicOf(m2mClientId, m2mClientSecret) }
    const { apiKey } = await newKey('dora', of)
    const reply = await ask(apiKey)
    expect(reply.json).toMatchObject({
      status: 483,
      code: 'owner_debt_ceiling_reached',
      reason: expect.stringContaining("the account of the app's owner"),
    })
    const { decision, explanation } = await explanationOf(reply)
    expect(decision).toMatchObject({ rule: 'owner_debt_ceiling_reached' })
    expect(String(explanation)).toContain("The account of the app's owner pays")
    await core.sql.query(
      `update billing_settings set is_platform_owned = true from clients c
       where c.app_id = billing_settings.app_id and c.client_id = $1`,
      [clientId],
    )
    expect((await ask(apiKey)).json).toMatchObject({ code: 'owner_debt_ceiling_reached' })
  })

  it('is explained later, when core was unavailable', async () => {
    const { apiKey } = await newKey('cleo')
    proxy.mode('refuse')
    const reply = await ask(apiKey)
    expect(reply.json).toMatchObject({ status: 503, code: 'authorization_unavailable' })
    proxy.mode('pass')
    const { decision } = await explanationOf(reply)
    expect(decision).toMatchObject({ rule: 'authorization_unavailable', status: 503 })
  })
})
