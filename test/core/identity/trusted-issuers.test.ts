import { randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import type { TrustRules } from '../../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import { signForeign, startForeignIssuer } from '../../support/web/foreign-issuer.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { issuer as ownIssuer, outcome, refusal } from '../support.ts'
import {
  keys,
  stranger,
  core,
  app,
  owner,
  idp,
  base,
  ownerOf,
  rulesOf,
  webClient,
  trust,
  claimsOf,
  token,
  exchange,
  verify,
  doors,
  userCount,
  setUpTrust,
} from './trust-setup.ts'

setUpTrust()

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
    if (how === 'removed') await owner.deleteTrustedIssuer(named)
    else await owner.updateTrustedIssuer({ ...named, rules: rulesOf(webClient) })
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
    await owner.deleteTrustedIssuer({ clientId, id: issuers[0]?.id ?? '' })
    const { entries } = await owner.listAudit({ clientId })
    expect(entries.map(({ action }) => action)).toEqual(
      expect.arrayContaining(['trusted_issuer_added', 'trusted_issuer_removed']),
    )
    expect(await outcome(owner.deleteTrustedIssuer({ clientId, id: randomUUID() }))).toBe(
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
