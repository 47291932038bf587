import { describe, expect, it } from 'vitest'
import { laterCall } from '../signer-bodies.ts'
import { type Harness, startHarness, until, vectorNow } from '../support.ts'
import { newSigningKey, sign } from './tokens.ts'

const key = await newSigningKey('f1')
const issuer = 'https://idp.example'
const trust = 'issuer:0198c2a4-7d1e-7b3a-9c5f-000000000001:1'

/** A token of an issuer that an app trusts, known to core. */
async function withToken(options: { seconds?: number; env?: Record<string, string> } = {}) {
  const { seconds = 3600, env = {} } = options
  const harness = await startHarness({ env })
  const claims = { iss: issuer, scope: undefined, token_use: undefined, exp: vectorNow + seconds }
  const token = await sign(key, claims, { typ: 'JWT' })
  harness.core.foreign.set(token, {
    identity: {
      clientId: 'tenant_a',
      externalUserId: 'user_42',
      userId: 'user-of-tenant_a:user_42',
      keyId: '',
      grants: [trust],
    },
    issuedAt: BigInt(vectorNow - 10),
    expiresAt: BigInt(vectorNow + seconds),
    issuer,
  })
  return { ...harness, token, claims, ask: () => decide(harness, token) }
}

const decide = async ({ authorize }: Harness, token: string) =>
  (await authorize(laterCall(token, { AuthID: '' }))).json

describe('a token of an issuer that an app trusts', () => {
  it('identifies the user named by core, and costs one lookup', async () => {
    const { ask, core } = await withToken()
    expect(await ask()).toMatchObject({
      status: 200,
      auth_id: 'tenant_a:user_42',
      identity: { issuer },
    })
    for (let i = 0; i < 5; i++) expect(await ask()).toMatchObject({ status: 200 })
    expect(core.calls.verifyForeignToken).toBe(1)
  })

  it('is looked up once for concurrent calls', async () => {
    const { ask, core } = await withToken()
    await Promise.all(Array.from({ length: 20 }, ask))
    expect(core.calls.verifyForeignToken).toBe(1)
  })

  it.each(['token', 'user', 'app', 'scope'] as const)(
    'is refused when its %s ends',
    async (kind) => {
      const { ask, core, token } = await withToken()
      expect(await ask()).toMatchObject({ status: 200 })
      core.foreign.delete(token)
      const ids = {
        token: trust,
        user: 'user-of-tenant_a:user_42',
        app: 'tenant_a',
        scope: 'tenant_a:sign:job',
      }
      core.invalidate(kind === 'user' ? 'user' : 'token', ids[kind])
      await until(async () => (await ask())['status'] === 401)
    },
  )

  it("is refused after its end, and looked up again after a key's lifetime", async () => {
    const short = await withToken({ seconds: 10 })
    expect(await short.ask()).toMatchObject({ status: 200 })
    short.core.foreign.clear()
    short.clock.seconds += 9
    expect(await short.ask()).toMatchObject({ status: 200 })
    short.clock.seconds += 1
    expect(await short.ask()).toMatchObject({ status: 401, code: 'invalid_token' })
    const long = await withToken({ env: { IDENTITY_TTL_SECONDS: '60' } })
    await long.ask()
    long.clock.seconds += 60
    await long.ask()
    expect(long.core.calls.verifyForeignToken).toBe(2)
  })

  it.each([
    ['token_issuer', 401, 'invalid_token'],
    ['token_audience', 401, 'invalid_token'],
    ['token_client', 401, 'invalid_token'],
    ['token_signature', 401, 'invalid_token'],
    ['insufficient_scope', 403, 'insufficient_scope'],
    ['invalid_identity', 403, 'invalid_identity'],
    ['issuer_unavailable', 503, 'authorization_unavailable'],
  ])('with the fault %s is refused with %d', async (fault, status, code) => {
    const harness = await withToken()
    const token = await sign(key, { ...harness.claims, jti: fault }, { typ: 'JWT' })
    harness.core.foreign.set(token, { fault })
    expect(await decide(harness, token)).toMatchObject({ status, code })
  })

  it('costs no second lookup for five seconds after a refusal', async () => {
    const harness = await withToken()
    const token = await sign(key, harness.claims, { typ: 'at+jwt' })
    for (let i = 0; i < 3; i++)
      expect(await decide(harness, token)).toMatchObject({ status: 401, code: 'invalid_token' })
    expect(harness.core.calls.verifyForeignToken).toBe(1)
    harness.clock.seconds += 5
    await decide(harness, token)
    expect(harness.core.calls.verifyForeignToken).toBe(2)
  })

  it('that no issuer could have written is not sent to core', async () => {
    const harness = await withToken()
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const claims = part({ iss: issuer, sub: 'user_42', exp: vectorNow + 60 })
    const forged = [
      `${part({ alg: 'none' })}.${claims}.`,
      `${part({ alg: 'HS256' })}.${claims}.AAAA`,
      `${part({ alg: 'RS256', typ: 'logout+jwt' })}.${claims}.AAAA`,
      `${part({ alg: 'RS256', crit: ['exp'] })}.${claims}.AAAA`,
      `${part({ alg: 'RS256', b64: false })}.${claims}.AAAA`,
      await sign(key, { ...harness.claims, exp: 1e300 }, { typ: 'JWT' }),
      await sign(key, { ...harness.claims, exp: vectorNow - 61 }, { typ: 'JWT' }),
      await sign(key, { ...harness.claims, exp: undefined }, { typ: 'JWT' }),
      await sign(key, { ...harness.claims, iss: undefined }, { typ: 'JWT' }),
      'a.b.c',
    ]
    for (const token of forged)
      expect(await decide(harness, token)).toMatchObject({ status: 401, code: 'invalid_token' })
    expect(harness.core.calls.verifyForeignToken).toBe(0)
  })

  it('is answered with 503 while core is unavailable, and accepted after that', async () => {
    const { ask, core } = await withToken()
    core.script.failing = true
    expect(await ask()).toMatchObject({ status: 503 })
    core.script.failing = false
    expect(await ask()).toMatchObject({ status: 200 })
  })

  it("is void if issued before its user's tokens were revoked, and refused for a deactivated user", async () => {
    const voided = await withToken()
    const tokensValidAfter = BigInt(vectorNow)
    voided.core.users.set('tenant_a:user_42', { micros: 5_000_000n, tokensValidAfter })
    expect(await voided.ask()).toMatchObject({ status: 401, code: 'invalid_token' })
    const inactive = await withToken()
    inactive.core.users.set('tenant_a:user_42', { micros: 5_000_000n, active: false })
    expect(await inactive.ask()).toMatchObject({ status: 403, code: 'user_inactive' })
  })
})
