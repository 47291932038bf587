import { describe, expect, it, onTestFinished } from 'vitest'
import {
  type Answer,
  type ForeignIssuer,
  type ForeignKey,
  startForeignIssuer,
} from '../../support/web/foreign-issuer.ts'
import { type Harness, startHarness, vectorNow } from '../support.ts'
import { laterCall } from '../signer-bodies.ts'
import { issuer, newSigningKey, sign } from './tokens.ts'

const key = await newSigningKey('k1')
const bob = { AuthID: '' }

async function withKey(env: Record<string, string> = {}): Promise<Harness> {
  const harness = await startHarness({ env })
  harness.core.script.jwks = { keys: [key.jwk] }
  return harness
}

const decide = async ({ authorize }: Harness, token: string) =>
  (await authorize(laterCall(token, bob))).json

describe('a token of our own issuer', () => {
  it('is accepted from a user or a signer only', async () => {
    const harness = await withKey()
    for (const token_use of ['user', 'signer']) {
      expect(await decide(harness, await sign(key, { token_use }))).toMatchObject({
        status: 200,
        auth_id: 'tenant_a:user_42',
      })
    }
    for (const token_use of ['machine', 'id', undefined]) {
      expect(await decide(harness, await sign(key, { token_use }))).toMatchObject({
        status: 401,
        code: 'invalid_token',
      })
    }
  })

  it.each<[string, Record<string, unknown>, object]>([
    ['another issuer', { iss: 'https://evil.example' }, {}],
    ['no issuer', { iss: undefined }, {}],
    ['another audience', { aud: 'tenant_a' }, {}],
    ['no expiry', { exp: undefined }, {}],
    ['a start in the future', { nbf: vectorNow + 120 }, {}],
    ['an invalid expiry', { exp: 1e300 }, {}],
    ['an invalid issue time', { iat: 1e300 }, {}],
    ['the type of an ID token', {}, { typ: 'JWT' }],
    ['an unencoded payload', {}, { b64: false }],
    ['an unknown key', {}, { kid: 'k9' }],
  ])('is refused with %s', async (_what, claims, header) => {
    const harness = await withKey()
    expect(await decide(harness, await sign(key, claims, header))).toMatchObject({
      status: 401,
      code: 'invalid_token',
    })
  })

  it('is accepted with a slash after the issuer', async () => {
    const harness = await withKey()
    expect(
      await decide(harness, await sign(key, { iss: `${issuer}/`, aud: `${issuer}/` })),
    ).toMatchObject({ status: 200 })
  })

  it('is refused with a wrong signature or algorithm', async () => {
    const harness = await withKey()
    const token = await sign(key)
    const other = await newSigningKey('k1')
    expect(await decide(harness, await sign(other))).toMatchObject({ status: 401 })
    const [, payload] = token.split('.')
    const none = `${Buffer.from('{"alg":"none","typ":"at+jwt"}').toString('base64url')}.${payload}.`
    expect(await decide(harness, none)).toMatchObject({ status: 401 })
    expect(await decide(harness, 'a.b.c')).toMatchObject({ status: 401 })
  })

  it('requires the scope sign:job', async () => {
    const harness = await withKey()
    for (const scope of [undefined, '', 'openid', 'sign:jobs', 'xsign:job']) {
      expect(await decide(harness, await sign(key, { scope }))).toMatchObject({
        status: 403,
        code: 'insufficient_scope',
      })
    }
    expect(await decide(harness, await sign(key, { scope: ['sign:job'] }))).toMatchObject({
      status: 200,
    })
  })

  it('identifies its app by client_id, for any azp, and never by its audience', async () => {
    const harness = await withKey({ CLAIM_CLIENT_ID: 'team' })
    for (const azp of [undefined, 'tenant_a', 'dyn_0123456789abcdef01234567'])
      for (const team of [undefined, 'tenant_b'])
        expect(
          await decide(harness, await sign(key, { azp, team, token_use: 'user' })),
        ).toMatchObject({ status: 200, auth_id: 'tenant_a:user_42' })
    const nameless = await sign(key, { client_id: undefined })
    expect(await decide(harness, nameless)).toMatchObject({ status: 403, code: 'invalid_identity' })
    const userless = await sign(key, { external_user_id: undefined })
    expect(await decide(harness, userless)).toMatchObject({ status: 403, code: 'invalid_identity' })
  })

  it('is accepted from a self-registered client by default', async () => {
    const harness = await withKey()
    const token = await sign(key, { azp: 'dyn_0123456789abcdef01234567', token_use: 'user' })
    expect(await decide(harness, token)).toMatchObject({
      status: 200,
      auth_id: 'tenant_a:user_42',
    })
  })

  it("is void if issued before its user's tokens were revoked, even when cached", async () => {
    const harness = await withKey()
    const token = await sign(key)
    expect(await decide(harness, token)).toMatchObject({ status: 200 })
    harness.core.users.set('tenant_a:user_42', {
      micros: 5_000_000n,
      tokensValidAfter: BigInt(vectorNow - 9),
    })
    harness.clock.seconds += 11
    expect(await decide(harness, token)).toMatchObject({ status: 401, code: 'invalid_token' })
    expect(await decide(harness, await sign(key, { iat: vectorNow }))).toMatchObject({
      status: 200,
    })
  })

  it('is refused with 403 when its user was deactivated', async () => {
    const harness = await withKey()
    harness.core.users.set('tenant_a:user_42', { micros: 5_000_000n, active: false })
    expect(await decide(harness, await sign(key))).toMatchObject({
      status: 403,
      code: 'user_inactive',
    })
  })

  it('may be signed with ES256', async () => {
    const harness = await startHarness()
    const ec = await newSigningKey('e1', 'ES256')
    harness.core.script.jwks = { keys: [ec.jwk] }
    expect(await decide(harness, await sign(ec))).toMatchObject({ status: 200 })
  })
})

describe('the keys of our own issuer', () => {
  it('are loaded once for concurrent calls, and again for an unknown kid after ten seconds', async () => {
    const harness = await withKey()
    const tokens = await Promise.all(
      Array.from({ length: 20 }, (_, i) => sign(key, { jti: String(i) })),
    )
    await Promise.all(tokens.map((token) => decide(harness, token)))
    expect(harness.core.calls.getJwks).toBe(1)
    const next = await newSigningKey('k2')
    harness.core.script.jwks = { keys: [key.jwk, next.jwk] }
    const token = await sign(next)
    expect(await decide(harness, token)).toMatchObject({ status: 401 })
    expect(harness.core.calls.getJwks).toBe(1)
    harness.clock.seconds += 10
    expect(await decide(harness, token)).toMatchObject({ status: 200 })
    expect(harness.core.calls.getJwks).toBe(2)
  })

  it('cause a fault when they cannot be loaded, not an invalid token', async () => {
    const harness = await withKey()
    harness.core.script.failing = true
    expect(await decide(harness, await sign(key))).toMatchObject({
      status: 503,
      code: 'authorization_unavailable',
    })
    harness.core.script.failing = false
    expect(await decide(harness, await sign(key))).toMatchObject({ status: 200 })
  })
})

describe('a token of a foreign issuer', () => {
  async function startIssuer(key: ForeignKey) {
    const idp = await startForeignIssuer([key])
    onTestFinished(idp.stop)
    return idp
  }
  /** A long answer: padded with white space, which JSON allows. */
  const long =
    (document: object): Answer =>
    (_, response) =>
      response.end(JSON.stringify(document).padEnd(65_537))

  it('is verified with the keys of its discovery document', async () => {
    const foreign = await newSigningKey('f1')
    const idp = await startIssuer(foreign)
    const harness = await withKey({ JWT_ISSUER: `${idp.url}/`, JWT_AUDIENCE: 'tollgate' })
    const claims = { iss: idp.url, aud: 'tollgate', token_use: undefined }
    expect(await decide(harness, await sign(foreign, claims))).toMatchObject({
      status: 200,
      auth_id: 'tenant_a:user_42',
      identity: { issuer: idp.url },
    })
    expect(await decide(harness, await sign(foreign, { ...claims, aud: idp.url }))).toMatchObject({
      status: 401,
    })
    expect(await decide(harness, await sign(key, { iss: idp.url, aud: 'tollgate' }))).toMatchObject(
      { status: 401 },
    )
    expect(await decide(harness, await sign(key))).toMatchObject({ status: 200 })
  })

  it('may have the types that identity providers write; our own must have at+jwt', async () => {
    const foreign = await newSigningKey('f1')
    const idp = await startIssuer(foreign)
    const harness = await withKey({ JWT_ISSUER: idp.url, JWT_AUDIENCE: 'tollgate' })
    const claims = { iss: idp.url, aud: 'tollgate', token_use: undefined }
    for (const [typ, foreignStatus, ownStatus] of [
      [undefined, 200, 401],
      ['JWT', 200, 401],
      ['at+jwt', 200, 200],
      ['application/at+jwt', 200, 200],
      ['logout+jwt', 401, 401],
      ['dpop+jwt', 401, 401],
    ] as const) {
      const answers = [
        await decide(harness, await sign(foreign, claims, { typ })),
        await decide(harness, await sign(key, {}, { typ })),
      ]
      expect([typ, ...answers.map(({ status }) => status)]).toEqual([typ, foreignStatus, ownStatus])
    }
  })

  it.each<[string, (idp: ForeignIssuer) => Record<string, Answer>]>([
    ['is unavailable', () => ({ '': (_, response) => response.writeHead(500).end() })],
    [
      'returns an oversized discovery document',
      ({ url }) => ({ configuration: long({ issuer: url, jwks_uri: `${url}/keys` }) }),
    ],
    ['returns an oversized key set', ({ state }) => ({ keys: long(state) })],
    [
      'redirects',
      ({ url }) => ({
        keys: (_, response) => response.writeHead(302, { location: `${url}/more/keys` }).end(),
      }),
    ],
    ['never completes its response', () => ({ keys: (_, response) => response.write('{') })],
  ])('is answered with 503 while its issuer %s', async (_what, answersOf) => {
    const foreign = await newSigningKey('f1')
    const idp = await startIssuer(foreign)
    idp.state.answers = answersOf(idp)
    const harness = await withKey({ JWT_ISSUER: idp.url })
    const token = await sign(foreign, { iss: idp.url, aud: idp.url })
    expect(await decide(harness, token)).toMatchObject({
      status: 503,
      code: 'authorization_unavailable',
    })
  })

  it('identifies its user by a verified e-mail address only', async () => {
    const foreign = await newSigningKey('f1')
    const idp = await startIssuer(foreign)
    const harness = await withKey({ JWT_ISSUER: idp.url, CLAIM_USAGE_SUBJECT: 'email' })
    const tokenOf = (verified: unknown) => {
      const claims = { email: 'user_42', external_user_id: undefined, email_verified: verified }
      return sign(foreign, { iss: idp.url, aud: idp.url, ...claims })
    }
    expect(await decide(harness, await tokenOf(true))).toMatchObject({
      status: 200,
      auth_id: 'tenant_a:user_42',
    })
    for (const word of [undefined, false, 'true'])
      expect(await decide(harness, await tokenOf(word))).toMatchObject({ status: 401 })
  })

  it('is accepted ten seconds after an outage of its issuer', async () => {
    const foreign = await newSigningKey('f1')
    const idp = await startIssuer(foreign)
    idp.state.answers = { '': (_, response) => response.writeHead(500).end() }
    const harness = await withKey({ JWT_ISSUER: idp.url })
    const token = await sign(foreign, { iss: idp.url, aud: idp.url })
    expect(await decide(harness, token)).toMatchObject({ status: 503 })
    idp.state.answers = {}
    harness.clock.seconds += 10
    expect(await decide(harness, token)).toMatchObject({ status: 200 })
  })

  it.each([
    ['names no app', { azp: undefined, client_id: undefined }],
    ['names no user', { external_user_id: undefined }],
    ['names the owner of an app', { external_user_id: 'owner:0198c2a4' }],
    ['names a user of our own login', { external_user_id: 'user:0198c2a4' }],
    ['names a user with a bidirectional control character', { external_user_id: 'a\u202eb' }],
    ['is for another audience', { aud: 'api://shop' }],
  ])('that %s is verified by core, which knows the trusts of apps', async (_what, claims) => {
    const foreign = await newSigningKey('f1')
    const idp = await startIssuer(foreign)
    const harness = await withKey({ JWT_ISSUER: idp.url })
    const all = { iss: idp.url, aud: idp.url, token_use: undefined, ...claims }
    const token = await sign(foreign, all)
    expect(await decide(harness, token)).toMatchObject({ status: 401 })
    expect(harness.core.calls.verifyForeignToken).toBe(1)
    const other = await sign(foreign, { ...all, jti: 'other' })
    harness.core.foreign.set(other, {
      identity: {
        clientId: 'tenant_a',
        externalUserId: 'user_42',
        userId: 'user-of-tenant_a:user_42',
        keyId: '',
        grants: [],
      },
      issuedAt: BigInt(vectorNow - 10),
      expiresAt: BigInt(vectorNow + 3600),
      issuer: idp.url,
    })
    expect(await decide(harness, other)).toMatchObject({
      status: 200,
      auth_id: 'tenant_a:user_42',
    })
    const forged = await sign(await newSigningKey('f1'), all)
    expect(await decide(harness, forged)).toMatchObject({ status: 401 })
    expect(harness.core.calls.verifyForeignToken).toBe(2)
  })

  it('is verified with one of the first 64 keys of its issuer', async () => {
    const foreign = await newSigningKey('f1')
    const idp = await startIssuer(foreign)
    const others = Array.from({ length: 64 }, (_, i) => ({ ...key.jwk, kid: `other-${i}` }))
    idp.state.keys = [...others, foreign.jwk]
    const harness = await withKey({ JWT_ISSUER: idp.url })
    const token = await sign(foreign, { iss: idp.url, aud: idp.url })
    expect(await decide(harness, token)).toMatchObject({ status: 401 })
    idp.state.keys = [...others.slice(1), foreign.jwk]
    harness.clock.seconds += 10
    expect(await decide(harness, token)).toMatchObject({ status: 200 })
  })

  it('costs its issuer one load in ten seconds, and fails after an hour without keys', async () => {
    const foreign = await newSigningKey('f1')
    const idp = await startIssuer(foreign)
    const harness = await withKey({ JWT_ISSUER: idp.url })
    const claims = { iss: idp.url, aud: idp.url }
    expect(await decide(harness, await sign(foreign, claims))).toMatchObject({ status: 200 })
    harness.clock.seconds += 10
    for (let i = 0; i < 5; i++)
      expect(await decide(harness, await sign(foreign, claims, { kid: `k-${i}` }))).toMatchObject({
        status: 401,
      })
    expect(idp.state.requests.filter((path) => path === '/keys')).toHaveLength(2)
    idp.state.answers = { '': (_, response) => response.writeHead(500).end() }
    for (const [seconds, status] of [
      [3_599, 200],
      [11, 503],
    ] as const) {
      harness.clock.seconds += seconds
      const late = await sign(foreign, { ...claims, exp: harness.clock.seconds + 60 })
      expect(await decide(harness, late)).toMatchObject({ status })
    }
  })
})
