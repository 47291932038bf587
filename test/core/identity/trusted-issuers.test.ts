import { randomUUID } from 'node:crypto'
import { SignJWT } from 'jose'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { TrustRules } from '../../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import {
  type ForeignIssuer,
  newForeignKey,
  signForeign,
  startForeignIssuer,
} from '../../support/foreign-issuer.ts'
import { type ProviderShape, providers } from '../../support/foreign-providers.ts'
import { type Managing, logInTo, manage } from '../../support/people.ts'
import { registerSecret } from '../../support/secrecy.ts'
import {
  type TestApp,
  type TestCore,
  begin,
  issuer as ownIssuer,
  outcome,
  refusal,
  startTestCore,
} from '../support.ts'

const keys = { RS256: await newForeignKey('k1'), ES256: await newForeignKey('e1', 'ES256') }
const stranger = await newForeignKey('k1')

let core: TestCore
let app: TestApp
let owner: Managing
let idp: ForeignIssuer
/** Differs per test, because a port may be reused. */
let base: string
beforeAll(async () => {
  core = await startTestCore({ OUTBOUND_ALLOW: '127.0.0.1' })
})
afterAll(() => core.stop())
beforeEach(async () => {
  core.clock.set(begin)
  idp = await startForeignIssuer([keys.RS256, keys.ES256])
  base = `${idp.url}/${randomUUID()}`
  app = await core.newApp()
  owner = await ownerOf(app)
})
afterEach(() => idp.stop())

const ownerOf = async (of: TestApp): Promise<Managing> =>
  manage(core, { session: (await logInTo(core, of, 'owner')).token })

const rulesOf = (rules: Partial<TrustRules>): TrustRules => ({
  issuer: `${base}/tenant`,
  audiences: [],
  clientClaim: '',
  clientValues: [],
  userClaim: '',
  userPrefix: '',
  jwksUri: '',
  ...rules,
})
const webClient = { clientClaim: 'azp', clientValues: ['web'] }
const trust = async (rules: Partial<TrustRules>, of: TestApp = app, by: Managing = owner) => {
  const { issuer } = await by.addTrustedIssuer({ clientId: of.clientId, rules: rulesOf(rules) })
  return issuer?.id ?? ''
}

const seconds = (): number => Math.floor(core.clock.now().getTime() / 1000)
const claimsOf = (more: Readonly<Record<string, unknown>> = {}) => ({
  iss: `${base}/tenant`,
  sub: 'ada',
  azp: 'web',
  iat: seconds() - 5,
  exp: seconds() + 3600,
  ...more,
})
const token = (
  more: Readonly<Record<string, unknown>> = {},
  header: Readonly<Record<string, unknown>> = {},
) => signForeign(keys.RS256, claimsOf(more), { typ: 'JWT', ...header })

const exchange = (subjectToken: string, of: TestApp = app) =>
  core.as().exchangeToken({
    clientId: of.clientId,
    grantType: GrantType.tokenExchange,
    subjectToken,
    subjectTokenType: TokenType.jwt,
  })
/** Verifies like a sidecar. Returns the fault, or the user. */
const verify = async (text: string): Promise<string> => {
  const { fault, identity } = await core.as().verifyForeignToken({ token: text })
  return fault || `${identity?.clientId}:${identity?.externalUserId}`
}
/** Returns the outcome of an exchange, of a sidecar's verification, and of `check`. */
async function doors(text: string) {
  const { check } = await owner.checkForeignToken({ clientId: app.clientId, token: text })
  const exchanged = await outcome(exchange(text))
  return { exchange: exchanged, sidecar: await verify(text), accepted: check?.accepted }
}
const userCount = async (): Promise<number> =>
  (await core.as(app.basic).listUsers({ clientId: app.clientId })).users.length

describe('a token in the form of a known provider', () => {
  const tokenOf = ({ alg, claims, header, path }: ProviderShape, more = {}) =>
    signForeign(
      keys[alg],
      { iss: `${base}${path}`, iat: seconds(), exp: seconds() + 3600, ...claims, ...more },
      header,
    )

  it.each(providers)('identifies its user at every endpoint: $name', async (provider) => {
    const { path, pinsKeys = false, user, others } = provider
    const jwksUri = pinsKeys ? `${base}${path}/keys` : ''
    await trust({ issuer: `${base}${path}`, jwksUri, ...provider.trust })
    const text = await tokenOf(provider)
    expect(await doors(text)).toEqual({
      exchange: 'OK',
      sidecar: `${app.clientId}:${user}`,
      accepted: true,
    })
    const { users } = await core.as(app.basic).listUsers({ clientId: app.clientId })
    expect(users.map(({ externalUserId }) => externalUserId)).toEqual([user])
    expect(await doors(await tokenOf(provider, others))).toMatchObject({
      exchange: 'GRANT_INVALID',
      accepted: false,
    })
  })
})

describe('a foreign token', () => {
  it('is exchanged for a signer token of its app that does not outlive it', async () => {
    await trust(webClient)
    const answer = await exchange(await token({ exp: seconds() + 40 }))
    expect(answer).toMatchObject({ tokenType: 'Bearer', expiresIn: 40, scope: 'sign:job' })
    expect(answer.session).toMatchObject({ hasAccess: true })
    const long = await exchange(await token({ exp: seconds() + 86_400 }))
    expect(long.expiresIn).toBe(300)
    // It is valid within the clock tolerance, but a token issued for it would already have expired.
    expect(await outcome(exchange(await token({ exp: seconds() - 30 })))).toBe('GRANT_INVALID')
  })

  const refused: readonly (readonly [
    what: string,
    claims: Record<string, unknown>,
    header: Record<string, unknown>,
    fault: string,
  ])[] = [
    ['another issuer', { iss: 'https://evil.example' }, {}, 'token_issuer'],
    ['an unencoded payload', {}, { b64: false }, 'token_form'],
    ['no issuer', { iss: undefined }, {}, 'token_issuer'],
    ['an issuer that is not text', { iss: 7 }, {}, 'token_issuer'],
    ['another audience', { aud: 'https://other.example' }, {}, 'token_audience'],
    [
      'an audience that starts like ours',
      { aud: 'https://api.example.evil' },
      {},
      'token_audience',
    ],
    ['no audience', { aud: undefined }, {}, 'token_audience'],
    ["another app's client", { azp: 'other' }, {}, 'token_client'],
    ['a client in upper case', { azp: 'WEB' }, {}, 'token_client'],
    ['no client', { azp: undefined }, {}, 'token_client'],
    ['a client that is not text', { azp: { web: true } }, {}, 'token_client'],
    ['a past expiry', { exp: 1 }, {}, 'token_expired'],
    ['no expiry', { exp: undefined }, {}, 'token_expired'],
    ['an expiry that is not a number', { exp: 'never' }, {}, 'token_expired'],
    ['an expiry in milliseconds', { exp: 1_800_000_000_000 }, {}, 'token_expired'],
    ['an expiry beyond the calendar', { exp: 1e300 }, {}, 'token_expired'],
    ['an issue time beyond the calendar', { iat: 1e300 }, {}, 'token_expired'],
    ['a start in the future', { nbf: 4_000_000_000 }, {}, 'token_expired'],
    ['no user', { sub: undefined }, {}, 'invalid_identity'],
    ['an empty user', { sub: '' }, {}, 'invalid_identity'],
    ['a user that is not text', { sub: ['ada'] }, {}, 'invalid_identity'],
    ["the owner's name", { sub: 'owner:1' }, {}, 'invalid_identity'],
    ["a login's name", { sub: 'user:1' }, {}, 'invalid_identity'],
    ['white space around its user', { sub: ' ada' }, {}, 'invalid_identity'],
    ['a user of 300 bytes', { sub: 'a'.repeat(300) }, {}, 'invalid_identity'],
    ['a control character in its user', { sub: 'a\nb' }, {}, 'invalid_identity'],
    ['the type of a logout token', {}, { typ: 'logout+jwt' }, 'token_form'],
    ['a type that is not text', {}, { typ: 1 }, 'token_form'],
    ['an unknown kid', {}, { kid: 'k9' }, 'token_signature'],
    ['a huge kid', {}, { kid: 'k'.repeat(5_000) }, 'token_signature'],
  ]

  it.each(refused)(
    'is rejected at every endpoint with %s',
    async (...[, claims, header, fault]) => {
      await trust({ ...webClient, audiences: ['https://api.example'] })
      const aud = { aud: 'https://api.example' }
      const text = await signForeign(keys.RS256, claimsOf({ ...aud, ...claims }), {
        typ: 'JWT',
        ...header,
      })
      expect(await doors(text)).toEqual({
        exchange: 'GRANT_INVALID',
        sidecar: fault,
        accepted: false,
      })
      expect(await userCount()).toBe(0)
    },
  )

  it('is rejected at every endpoint with a critical extension', async () => {
    await trust(webClient)
    // Valid apart from the extension, which jose does not write by itself.
    const text = await new SignJWT(claimsOf())
      .setProtectedHeader({
        alg: 'RS256',
        kid: 'k1',
        crit: ['http://example.com/x'],
        'http://example.com/x': 1,
      })
      .sign(keys.RS256.privateKey, { crit: { 'http://example.com/x': true } })
    expect(await doors(registerSecret(text))).toEqual({
      exchange: 'GRANT_INVALID',
      sidecar: 'token_form',
      accepted: false,
    })
  })

  it('is rejected at every endpoint without a signature or with a public secret', async () => {
    await trust(webClient)
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const none = `${part({ alg: 'none', typ: 'JWT' })}.${part(claimsOf())}.`
    const { createHmac, createPublicKey } = await import('node:crypto')
    const pem = createPublicKey({ key: keys.RS256.jwk, format: 'jwk' }).export({
      type: 'spki',
      format: 'pem',
    })
    const input = `${part({ alg: 'HS256', typ: 'JWT', kid: 'k1' })}.${part(claimsOf())}`
    const hs256 = `${input}.${createHmac('sha256', pem).update(input).digest('base64url')}`
    const forged = await signForeign(stranger, claimsOf())
    const [head = '', , signature = ''] = (await token()).split('.')
    const altered = [head, part(claimsOf({ sub: 'eve' })), signature].join('.')
    const huge = await token({ groups: 'g'.repeat(20_000) })
    for (const [text, sidecar] of [
      [none, 'token_form'],
      [hs256, 'token_form'],
      [forged, 'token_signature'],
      [altered, 'token_signature'],
      [huge, 'token_form'],
      ['a.b.c', 'token_form'],
      [`${'a'.repeat(10)}.b.`, 'token_form'],
    ] as const)
      expect(await doors(registerSecret(text))).toEqual({
        exchange: 'GRANT_INVALID',
        sidecar,
        accepted: false,
      })
    expect(await userCount()).toBe(0)
  })

  it.each(['JWT', 'jwt', 'at+jwt', 'application/at+jwt', undefined])(
    'may have the type %s',
    async (typ) => {
      await trust(webClient)
      expect(await verify(await token({}, { typ }))).toBe(`${app.clientId}:ada`)
    },
  )

  it('may have a slash after its issuer, and times that are a minute off', async () => {
    await trust(webClient)
    expect(await verify(await token({ iss: `${base}/tenant/` }))).toBe(`${app.clientId}:ada`)
    const times = { exp: seconds() - 59, nbf: seconds() + 59 }
    expect(await verify(await token(times))).toBe(`${app.clientId}:ada`)
    expect(await verify(await token({ exp: seconds() - 60 }))).toBe('token_expired')
  })

  it('is rejected for an inactive user, and if issued before the last deactivation', async () => {
    await trust(webClient)
    const old = await token()
    expect(await outcome(exchange(old))).toBe('OK')
    const named = { clientId: app.clientId, externalUserId: 'ada' }
    await core.as(app.basic).deactivateUser(named)
    expect(await doors(old)).toEqual({
      exchange: 'GRANT_INVALID',
      sidecar: 'invalid_identity',
      accepted: false,
    })
    core.clock.advance(2_000)
    await core.as(app.basic).updateUser({ ...named, status: 'active' })
    expect(await verify(old)).toBe('invalid_identity')
    expect(await verify(await token({ iat: undefined }))).toBe('invalid_identity')
    // One second before the deactivation, which was two seconds ago.
    expect(await verify(await token({ iat: seconds() - 3 }))).toBe('invalid_identity')
    expect(await verify(await token({ iat: seconds() }))).toBe(`${app.clientId}:ada`)
  })

  it("needs the app's public client to grant sign:job before a user is created", async () => {
    await trust(webClient)
    await owner.updateApp({ clientId: app.clientId, allowedScopes: { values: ['openid'] } })
    expect(await outcome(exchange(await token()))).toBe('SCOPE_INVALID')
    expect(await verify(await token())).toBe('insufficient_scope')
    expect(await userCount()).toBe(0)
  })

  it('identifies a user by e-mail address only if the address is verified', async () => {
    await trust({ ...webClient, userClaim: 'email' })
    const verify = async (more: Readonly<Record<string, unknown>>) => {
      const text = await token({ email: 'ada@example.com', ...more })
      const { identity, fault } = await core.as().verifyForeignToken({ token: text })
      return identity?.externalUserId ?? fault
    }
    expect(await verify({ email_verified: true })).toBe('ada@example.com')
    for (const word of [undefined, false, 'true', 1])
      expect(await verify({ email_verified: word })).toBe('invalid_identity')
    const text = await token({ email: 'ada@example.com' })
    const { check } = await owner.checkForeignToken({ clientId: app.clientId, token: text })
    expect(check?.rules.find(({ rule }) => rule === 'user')?.detail).toContain(
      'requires email_verified: true',
    )
  })

  it("identifies a user with the issuer's prefix, and may then have a reserved name in the claim", async () => {
    await trust({ ...webClient, userPrefix: 'shop:' })
    const verify = async (sub: string) => {
      const text = await token({ sub })
      const { identity, fault } = await core.as().verifyForeignToken({ token: text })
      return identity?.externalUserId ?? fault
    }
    expect(await verify('ada')).toBe('shop:ada')
    expect(await verify('user:1')).toBe('shop:user:1')
    expect(await verify(' ada')).toBe('invalid_identity')
    const { issuers } = await owner.listTrustedIssuers({ clientId: app.clientId })
    expect(issuers[0]?.rules?.userPrefix).toBe('shop:')
  })

  it('never combines prefix and claim into a reserved name', async () => {
    await trust({ ...webClient, userPrefix: 'own' })
    const text = await token({ sub: 'er:1' })
    expect(await core.as().verifyForeignToken({ token: text })).toMatchObject({
      fault: 'invalid_identity',
    })
  })

  it('opens no signer session, which would outlive it', async () => {
    await trust(webClient)
    const request = {
      grantType: GrantType.tokenExchange,
      subjectToken: await token(),
      subjectTokenType: TokenType.accessToken,
    }
    expect(await outcome(core.as(app.basic).exchangeToken(request))).toBe('GRANT_INVALID')
  })

  it('is checked with the keys of at most three apps', async () => {
    idp.state.answers['/strangers/keys'] = (_, response) =>
      void response.end(JSON.stringify({ keys: [stranger.jwk] }))
    const jwksUri = `${base}/strangers/keys`
    for (const client of ['one', 'two', 'three']) {
      const other = await core.newApp()
      const rules = { ...webClient, clientValues: [client], jwksUri }
      await trust(rules, other, await ownerOf(other))
    }
    core.clock.advance(1_000)
    await trust(webClient)
    expect(await verify(await token({ azp: ['one', 'two', 'web'] }))).toBe(`${app.clientId}:ada`)
    const many = await token({ azp: ['one', 'two', 'three', 'web'] })
    expect(await verify(many)).toBe('token_signature')
  })

  it('is rejected by another app', async () => {
    await trust(webClient)
    const other = await core.newApp()
    expect(await outcome(exchange(await token(), other))).toBe('GRANT_INVALID')
  })
})

describe('ended trust', () => {
  it.each(['removed', 'changed'] as const)('ends exchanged tokens when it was %s', async (how) => {
    const id = await trust(webClient)
    const { accessToken } = await exchange(registerSecret(await token()))
    const claims: { jti: string; iat: number; descends_from: string[] } = JSON.parse(
      Buffer.from(accessToken.split('.')[1] ?? '', 'base64url').toString(),
    )
    const isRevoked = async () =>
      (
        await core.as().checkToken({
          jti: claims.jti,
          grants: claims.descends_from,
          issuedAt: BigInt(claims.iat),
        })
      ).revoked
    expect(await isRevoked()).toBe(false)
    const named = { clientId: app.clientId, id }
    if (how === 'removed') await owner.removeTrustedIssuer(named)
    else await owner.replaceTrustedIssuer({ ...named, rules: rulesOf(webClient) })
    expect(await isRevoked()).toBe(true)
    expect(await verify(await token())).toBe(
      how === 'removed' ? 'token_issuer' : `${app.clientId}:ada`,
    )
    expect(claims.descends_from).toEqual([`issuer:${id}:1`])
  })

  it('is deleted with the app', async () => {
    await trust(webClient)
    await owner.deleteApp({ clientId: app.clientId })
    expect(await verify(await token())).toBe('token_issuer')
    const heir = await core.newApp()
    expect(await outcome(trust(webClient, heir, await ownerOf(heir)))).toBe('OK')
  })
})

describe('trust in an issuer', () => {
  const invalid: readonly (readonly [string, Partial<TrustRules>])[] = [
    ['an issuer that is not a URL', { issuer: 'tenant' }],
    ['an issuer with another scheme', { issuer: 'ftp://idp.example' }],
    ['credentials', { issuer: 'https://a:b@idp.example' }],
    ['a query', { issuer: 'https://idp.example/?a=1' }],
    ['our own issuer', { issuer: ownIssuer }],
    ['our own issuer in capitals with a slash', { issuer: `${ownIssuer.toUpperCase()}/` }],
    ['a claim without values', { clientClaim: 'azp', clientValues: [] }],
    ['values without a claim', { clientClaim: '', clientValues: ['web'] }],
    ['neither audience nor client', { clientClaim: '', clientValues: [] }],
    ['an empty audience', { audiences: [''] }],
    ['too many values', { clientValues: Array.from({ length: 21 }, (_, i) => `c${i}`) }],
    ['a claim with a space', { userClaim: 'a b' }],
    ['a jwksUri that is not a URL', { jwksUri: 'keys' }],
    ['a reserved prefix', { userPrefix: 'user:' }],
    ['a prefix with leading white space', { userPrefix: ' a' }],
    ['an unreadable prefix', { userPrefix: 'a\u202e' }],
    ['a long prefix', { userPrefix: 'a'.repeat(51) }],
  ]
  it.each(invalid)('is rejected with %s', async (_what, rules) => {
    expect(await outcome(trust({ ...webClient, ...rules }))).toBe('REQUEST_INVALID')
  })

  it('is limited to ten, listed without a final slash, and audited', async () => {
    const { clientId } = app
    for (let i = 0; i < 10; i++) await trust({ ...webClient, issuer: `https://idp${i}.example/` })
    expect(await outcome(trust({ ...webClient, issuer: 'https://idp.example' }))).toBe('CONFLICT')
    const { issuers } = await owner.listTrustedIssuers({ clientId })
    expect(issuers.map(({ rules }) => rules?.issuer)).toContain('https://idp3.example')
    await owner.removeTrustedIssuer({ clientId, id: issuers[0]?.id ?? '' })
    const { entries } = await owner.listAudit({ clientId })
    expect(entries.map(({ action }) => action)).toEqual(
      expect.arrayContaining(['trusted_issuer_added', 'trusted_issuer_removed']),
    )
    expect(await outcome(owner.removeTrustedIssuer({ clientId, id: randomUUID() }))).toBe(
      'NOT_FOUND',
    )
  })

  const pairs: readonly (readonly [string, Partial<TrustRules>, Partial<TrustRules>, string])[] = [
    ['the same client', webClient, webClient, 'CONFLICT'],
    ['other values of the same claim', webClient, { ...webClient, clientValues: ['other'] }, 'OK'],
    ['another claim', webClient, { clientClaim: 'cid', clientValues: ['x'] }, 'CONFLICT'],
    ['other audiences', { audiences: ['a'] }, { audiences: ['b'] }, 'CONFLICT'],
    [
      'a client only in the first',
      { ...webClient, audiences: ['a'] },
      { audiences: ['b'] },
      'CONFLICT',
    ],
    [
      'a client only in the second',
      { audiences: ['b'] },
      { ...webClient, audiences: ['a'] },
      'CONFLICT',
    ],
    [
      'the same client at another audience',
      { ...webClient, audiences: ['a'] },
      { ...webClient, audiences: ['b'] },
      'CONFLICT',
    ],
    ['a common audience', { audiences: ['a', 'b'] }, { audiences: ['b', 'c'] }, 'CONFLICT'],
    ['any audience', webClient, { audiences: ['b'] }, 'CONFLICT'],
    ['other keys', webClient, { ...webClient, jwksUri: 'https://keys.example/' }, 'CONFLICT'],
  ]
  it.each(pairs)(
    "is checked against another app's trust with %s",
    async (...[, first, second, expected]) => {
      await trust(first)
      const other = await core.newApp()
      expect(await outcome(trust(second, other, await ownerOf(other)))).toBe(expected)
    },
  )

  it.each([
    ['the same rules', () => webClient],
    ['audiences of their own', (index: number) => ({ audiences: [`api ${index}`] })],
  ])('is given to one of several concurrent apps with %s', async (_, rulesAt) => {
    const others = await Promise.all(Array.from({ length: 6 }, () => core.newApp()))
    const owners = await Promise.all(others.map(ownerOf))
    const outcomes = await Promise.all(
      owners.map((by, index) => outcome(trust(rulesAt(index), others[index], by))),
    )
    expect(outcomes.toSorted()).toEqual([...Array.from({ length: 5 }, () => 'CONFLICT'), 'OK'])
  })

  it('of one app may be distinguished by audiences', async () => {
    await trust({ audiences: ['a'], userClaim: 'a' })
    core.clock.advance(1_000)
    await trust({ audiences: ['b'], userClaim: 'b' })
    expect(await verify(await token({ aud: 'b', b: 'bob' }))).toBe(`${app.clientId}:bob`)
    const both = await token({ aud: ['a', 'b'], a: 'ada', b: 'bob' })
    expect(await doors(both)).toEqual({
      exchange: 'OK',
      sidecar: `${app.clientId}:ada`,
      accepted: true,
    })
  })

  it('cannot be blocked by a later app that names another audience of its tokens', async () => {
    await trust({ ...webClient, audiences: ['api'] })
    const other = await core.newApp()
    const late = trust({ audiences: ['userinfo'] }, other, await ownerOf(other))
    expect(await outcome(late)).toBe('CONFLICT')
    const text = await token({ aud: ['userinfo', 'api'] })
    expect(await verify(text)).toBe(`${app.clientId}:ada`)
  })

  it("keeps a token that also names later apps' clients, without loading their keys", async () => {
    const clientClaim = 'groups'
    await trust({ clientClaim, clientValues: ['g0'] })
    const mallory = await startForeignIssuer([])
    mallory.state.answers[''] = () => undefined
    const others = await Promise.all(Array.from({ length: 4 }, () => core.newApp()))
    for (const [index, other] of others.entries()) {
      core.clock.advance(1_000)
      const jwksUri = `${mallory.url}/keys/${index}`
      await trust(
        { clientClaim, clientValues: [`g${index + 1}`], jwksUri },
        other,
        await ownerOf(other),
      )
    }
    const text = await token({ groups: ['g4', 'g3', 'g2', 'g1', 'g0'] })
    expect(await verify(text)).toBe(`${app.clientId}:ada`)
    expect(await outcome(exchange(text))).toBe('OK')
    expect(mallory.state.requests).toEqual([])
    await mallory.stop()
  })

  it('that names a client precedes older trust without a client', async () => {
    const other = await core.newApp()
    const byOther = await ownerOf(other)
    await trust({ clientClaim: 'azp', clientValues: ['other'] }, other, byOther)
    core.clock.advance(1_000)
    await trust(webClient)
    // Like trust stored before audiences no longer separated two apps.
    await core.sql.query(
      `update trusted_issuers set client_claim = null, client_values = '{}', audiences = '{userinfo}'
       where app_id = (select app_id from clients where client_id = $1)`,
      [other.clientId],
    )
    expect(await verify(await token({ aud: ['userinfo'] }))).toBe(`${app.clientId}:ada`)
  })

  it('is not taken over by a later app while its keys are unavailable', async () => {
    const clientClaim = 'groups'
    await trust({ clientClaim, clientValues: ['a'] })
    const mirror = await startForeignIssuer([keys.RS256])
    const other = await core.newApp()
    core.clock.advance(1_000)
    const jwksUri = `${mirror.url}/keys`
    await trust({ clientClaim, clientValues: ['b'], jwksUri }, other, await ownerOf(other))
    idp.state.answers[''] = (_, response) => response.writeHead(503).end()
    expect(await verify(await token({ groups: ['a', 'b'] }))).toBe('issuer_unavailable')
    await mirror.stop()
  })

  it("uses an app's own keys only for that app", async () => {
    const mallory = await startForeignIssuer([stranger])
    await trust(webClient)
    const other = await core.newApp()
    const jwksUri = `${mallory.url}/keys`
    const itsClient = { ...webClient, clientValues: ['other'] }
    await trust({ ...itsClient, jwksUri }, other, await ownerOf(other))
    const forge = (azp: unknown) => signForeign(stranger, claimsOf({ azp }))
    expect(await verify(await forge('web'))).toBe('token_signature')
    expect(await verify(await forge(['web', 'other']))).toBe(`${other.clientId}:ada`)
    expect(await verify(await forge('other'))).toBe(`${other.clientId}:ada`)
    await mallory.stop()
  })
})

describe('checkForeignToken', () => {
  it('reports the outcome of every rule and leaves no trace', async () => {
    await trust({ ...webClient, audiences: ['api'] })
    const text = await token({ aud: 'other', sub: 'bob' })
    const { check } = await owner.checkForeignToken({ clientId: app.clientId, token: text })
    expect(check).toMatchObject({ accepted: false, externalUserId: 'bob', userStatus: 'unknown' })
    expect(
      Object.fromEntries(check?.rules.map(({ rule, passed }) => [rule, passed]) ?? []),
    ).toEqual({
      form: true,
      typ: true,
      alg: true,
      issuer: true,
      audience: false,
      client: true,
      user: true,
      expiry: true,
      signature: true,
    })
    expect(await userCount()).toBe(0)
    const { rows } = await core.sql.query<{ text: string }>(
      'select details::text as text from audit_log',
    )
    expect(rows.some((row) => row.text.includes(text.slice(0, 40)))).toBe(false)
  })

  it.each([
    'email',
    'preferred_username',
    'name',
    'nickname',
    'https://shop.example/email',
    'https://shop.example/user_metadata',
    'custom:handle',
  ])('warns that people can change the user claim %s', async (userClaim) => {
    await trust({ ...webClient, userClaim })
    const text = await token()
    const { check } = await owner.checkForeignToken({ clientId: app.clientId, token: text })
    expect(check?.warnings).toEqual([expect.stringContaining(`users can change ${userClaim}`)])
  })

  it.each(['sub', 'oid', 'https://shop.example/app_metadata_id'])(
    'does not warn about the user claim %s',
    async (userClaim) => {
      await trust({ ...webClient, userClaim })
      const text = await token()
      const { check } = await owner.checkForeignToken({ clientId: app.clientId, token: text })
      expect(check?.warnings).toEqual([])
    },
  )

  it('reports what is wrong with the provider', async () => {
    await trust(webClient)
    idp.state.answers['/.well-known/openid-configuration'] = (_, response) =>
      response.end(JSON.stringify({ issuer: 'https://evil.example', jwks_uri: `${base}/keys` }))
    const { check } = await owner.checkForeignToken({
      clientId: app.clientId,
      token: await token(),
    })
    expect(check?.rules.at(-1)).toMatchObject({
      rule: 'signature',
      passed: false,
      detail: expect.stringContaining('names another issuer'),
    })
    const { message } = await refusal(exchange(await token()))
    expect(message).toContain('cannot be loaded now')
  })
})
