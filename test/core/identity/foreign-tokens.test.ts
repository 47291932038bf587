import { SignJWT } from 'jose'
import { describe, expect, it } from 'vitest'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import { signForeign } from '../../support/web/foreign-issuer.ts'
import { type ProviderShape, providers } from '../../support/web/foreign-providers.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { outcome } from '../support.ts'
import {
  keys,
  stranger,
  core,
  app,
  owner,
  idp,
  base,
  ownerOf,
  webClient,
  trust,
  seconds,
  claimsOf,
  token,
  exchange,
  verify,
  doors,
  userCount,
  setUpTrust,
} from './trust-setup.ts'

setUpTrust()

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
