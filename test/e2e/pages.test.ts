import * as oauth from 'oauth4webapi'
import * as oidc from 'openid-client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Interop,
  authorize,
  logInByCode,
  loggedOutUri,
  redirectUri,
  startInterop,
} from '../support/web/interop.ts'

let interop: Interop
const insecure = { [oauth.allowInsecureRequests]: true }

beforeAll(async () => {
  interop = await startInterop()
})
afterAll(() => interop?.stop())

describe('the authorization code flow', () => {
  it('leads through login and consent to tokens that openid-client validates', async () => {
    const { checks, pages, allow } = await authorize(interop, { more: { max_age: '600' } })
    expect(pages.map((title) => title.split(' · ')[0])).toEqual(['Log in', 'Allow access'])
    const { left } = await allow()
    const tokens = await oidc.authorizationCodeGrant(interop.app, left ?? new URL('none:'), {
      ...checks,
      maxAge: 600,
      idTokenExpected: true,
    })
    expect(tokens).toMatchObject({
      token_type: 'bearer',
      scope: 'openid profile email offline_access sign:job',
      expires_in: 3_600,
    })
    const claims = tokens.claims()
    expect(claims).toMatchObject({
      iss: interop.issuer,
      aud: interop.quickstart.clientId,
      nonce: checks.expectedNonce,
      email: interop.quickstart.ownerEmail,
    })
    expect(Math.abs(Date.now() / 1000 - Number(claims?.['auth_time']))).toBeLessThan(60)
  })

  it('works with oauth4webapi and a loopback address with any port', async () => {
    const [issuer, app] = [new URL(interop.issuer), { client_id: interop.quickstart.clientId }]
    const server = await oauth.processDiscoveryResponse(
      issuer,
      await oauth.discoveryRequest(issuer, insecure),
    )
    const loopback = 'http://127.0.0.1:50123/cb'
    const { checks, allow } = await authorize(interop, { redirect: loopback })
    const { left } = await allow()
    const parameters = oauth.validateAuthResponse(
      server,
      app,
      left ?? new URL('none:'),
      checks.expectedState,
    )
    const response = await oauth.authorizationCodeGrantRequest(
      server,
      app,
      oauth.None(),
      parameters,
      loopback,
      checks.pkceCodeVerifier,
      insecure,
    )
    const tokens = await oauth.processAuthorizationCodeResponse(server, app, response, {
      expectedNonce: checks.expectedNonce,
      requireIdToken: true,
    })
    await oauth.validateApplicationLevelSignature(server, response, insecure)
    expect(oauth.getValidatedIdTokenClaims(tokens)).toMatchObject({
      iss: interop.issuer,
      nonce: checks.expectedNonce,
    })
  })

  it('returns access_denied to openid-client when the person refuses', async () => {
    const { checks, deny } = await authorize(interop)
    const { left } = await deny()
    await expect(
      oidc.authorizationCodeGrant(interop.app, left ?? new URL('none:'), checks),
    ).rejects.toMatchObject({ error: 'access_denied' })
  })

  it('rejects a wrong code_verifier', async () => {
    const { checks, allow } = await authorize(interop)
    const { left } = await allow()
    const wrong = { ...checks, pkceCodeVerifier: oidc.randomPKCECodeVerifier() }
    await expect(
      oidc.authorizationCodeGrant(interop.app, left ?? new URL('none:'), wrong),
    ).rejects.toMatchObject({ error: 'invalid_grant', status: 400 })
  })

  it('rejects a used code and ends its tokens', async () => {
    const { callback, checks, tokens } = await logInByCode(interop)
    await expect(oidc.authorizationCodeGrant(interop.app, callback, checks)).rejects.toMatchObject({
      error: 'invalid_grant',
    })
    expect(await oidc.tokenIntrospection(interop.backend, tokens.access_token)).toEqual({
      active: false,
    })
    await expect(
      oidc.refreshTokenGrant(interop.app, tokens.refresh_token ?? ''),
    ).rejects.toMatchObject({ error: 'invalid_grant' })
  })
})

describe('a login', () => {
  it('gets a new refresh token on each refresh, and ends when an old one is reused', async () => {
    const { tokens: first } = await logInByCode(interop)
    const second = await oidc.refreshTokenGrant(interop.app, first.refresh_token ?? '')
    expect(second.refresh_token).toMatch(/^svc_rt_/)
    expect(second.refresh_token).not.toBe(first.refresh_token)
    expect(second.claims()?.sub).toBe(first.claims()?.sub)
    await expect(
      oidc.refreshTokenGrant(interop.app, first.refresh_token ?? ''),
    ).rejects.toMatchObject({ error: 'invalid_grant' })
    await expect(
      oidc.refreshTokenGrant(interop.app, second.refresh_token ?? ''),
    ).rejects.toMatchObject({ error: 'invalid_grant' })
    expect(await oidc.tokenIntrospection(interop.backend, second.access_token)).toEqual({
      active: false,
    })
  })

  it('shows userinfo the subject of its ID token', async () => {
    const { tokens } = await logInByCode(interop)
    const sub = tokens.claims()?.sub ?? ''
    expect(await oidc.fetchUserInfo(interop.app, tokens.access_token, sub)).toMatchObject({
      sub,
      email: interop.quickstart.ownerEmail,
    })
    await expect(oidc.fetchUserInfo(interop.app, 'rubbish', sub)).rejects.toMatchObject({
      status: 401,
      cause: [{ scheme: 'bearer', parameters: { error: 'invalid_token' } }],
    })
    await expect(
      oidc.fetchUserInfo(interop.app, await interop.userToken(), oidc.skipSubjectCheck),
    ).rejects.toMatchObject({
      status: 403,
      cause: [{ scheme: 'bearer', parameters: { error: 'insufficient_scope' } }],
    })
  })

  it('can be introspected by its own app only', async () => {
    const { tokens } = await logInByCode(interop)
    expect(await oidc.tokenIntrospection(interop.backend, tokens.access_token)).toMatchObject({
      active: true,
      client_id: interop.quickstart.clientId,
      sub: tokens.claims()?.sub,
      iss: interop.issuer,
    })
    expect(
      await oidc.tokenIntrospection(interop.backend, tokens.refresh_token ?? ''),
    ).toMatchObject({ active: true })
    const headers = await interop.ownerSession()
    const { m2mClientId, m2mClientSecret } = await interop.call('POST', '/api/v1/apps', {
      headers,
      body: { name: 'Another' },
    })
    const foreign = await interop.client(m2mClientId, oidc.ClientSecretBasic(m2mClientSecret))
    expect(await oidc.tokenIntrospection(foreign, tokens.access_token)).toEqual({ active: false })
  })

  it('can be revoked by the public client, by access token and by refresh token', async () => {
    const { tokens } = await logInByCode(interop)
    await oidc.tokenRevocation(interop.app, tokens.access_token)
    expect(await oidc.tokenIntrospection(interop.backend, tokens.access_token)).toEqual({
      active: false,
    })
    await expect(
      oidc.fetchUserInfo(interop.app, tokens.access_token, oidc.skipSubjectCheck),
    ).rejects.toMatchObject({ status: 401 })
    await oidc.tokenRevocation(interop.app, tokens.refresh_token ?? '')
    await expect(
      oidc.refreshTokenGrant(interop.app, tokens.refresh_token ?? ''),
    ).rejects.toMatchObject({ error: 'invalid_grant' })
    await oidc.tokenRevocation(interop.app, 'a token that never was')
  })

  it('ends in the browser with RP-initiated logout, which redirects with the state', async () => {
    const { browser, tokens } = await logInByCode(interop)
    const { left } = await browser.visit(
      oidc.buildEndSessionUrl(interop.app, {
        id_token_hint: tokens.id_token ?? '',
        post_logout_redirect_uri: loggedOutUri,
        state: 's 1',
      }),
    )
    expect(left?.href).toBe(`${loggedOutUri}?state=s+1`)
    expect((await browser.visit('/login')).title).toBe('Log in')
    const silent = await browser.visit(
      oidc.buildAuthorizationUrl(interop.app, {
        redirect_uri: redirectUri,
        scope: 'openid',
        prompt: 'none',
        code_challenge_method: 'S256',
        code_challenge: await oidc.calculatePKCECodeChallenge(oidc.randomPKCECodeVerifier()),
      }),
    )
    expect(silent.left?.searchParams.get('error')).toBe('login_required')
  })
})
