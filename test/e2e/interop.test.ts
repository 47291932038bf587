import { createRemoteJWKSet, jwtVerify } from 'jose'
import * as oauth from 'oauth4webapi'
import * as oidc from 'openid-client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { basic } from '../../deploy/cli/client.ts'
import type { Page } from '../support/web/interop-browser.ts'
import {
  type Interop,
  accessTokenType,
  deviceGrant,
  exchangeGrant,
  logInByCode,
  recordAnswers,
  startInterop,
} from '../support/web/interop.ts'
import { until } from '../support/waiting.ts'

let interop: Interop
/** The issuer as oauth4webapi discovered it. */
let server: oauth.AuthorizationServer
const insecure = { [oauth.allowInsecureRequests]: true }

beforeAll(async () => {
  interop = await startInterop()
  const issuer = new URL(interop.issuer)
  server = await oauth.processDiscoveryResponse(
    issuer,
    await oauth.discoveryRequest(issuer, insecure),
  )
})
afterAll(() => interop?.stop())

const m2m = () => ({ client_id: interop.quickstart.m2mClientId })
const app = () => ({ client_id: interop.quickstart.clientId })
const secret = () => interop.quickstart.m2mClientSecret

describe('discovery', () => {
  it('gives both clients every endpoint, below the issuer', () => {
    const known = interop.app.serverMetadata()
    expect(known).toMatchObject({ ...server })
    expect(known.supportsPKCE()).toBe(true)
    expect(known.issuer).toBe(interop.issuer)
    const endpoints = Object.entries(server).filter(
      ([name]) => name.endsWith('_endpoint') || name === 'jwks_uri',
    )
    expect(endpoints).toHaveLength(8)
    for (const [, url] of endpoints) expect(String(url).startsWith(`${interop.issuer}/`)).toBe(true)
  })

  it('gives openid-client the same document at the RFC 8414 address', async () => {
    const options: oidc.DiscoveryRequestOptions = {
      algorithm: 'oauth2',
      execute: [oidc.allowInsecureRequests],
    }
    const discovered = await oidc.discovery(
      new URL(interop.issuer),
      interop.quickstart.clientId,
      {},
      oidc.None(),
      options,
    )
    expect(discovered.serverMetadata()).toMatchObject({ ...server })
  })
})

describe('client credentials', () => {
  const granted = { token_type: 'bearer', scope: 'users:read', expires_in: 3_600 }
  const oauthGrant = async (auth: oauth.ClientAuth) =>
    oauth.processClientCredentialsResponse(
      server,
      m2m(),
      await oauth.clientCredentialsGrantRequest(
        server,
        m2m(),
        auth,
        { scope: 'users:read' },
        insecure,
      ),
    )

  it('are accepted in the header as openid-client and oauth4webapi encode them', async () => {
    expect(
      await oidc.clientCredentialsGrant(interop.backend, { scope: 'users:read' }),
    ).toMatchObject(granted)
    let sent = ''
    const encoded: oauth.ClientAuth = (as, client, ...[body, headers]) => {
      oauth.ClientSecretBasic(secret())(as, client, body, headers)
      sent = Buffer.from(
        headers.get('authorization')?.slice('Basic '.length) ?? '',
        'base64',
      ).toString()
    }
    expect(await oauthGrant(encoded)).toMatchObject(granted)
    expect(sent).toContain('%5F')
  })

  it('are accepted in the header without encoding', async () => {
    const raw: oauth.ClientAuth = (_as, { client_id }, ...[, headers]) =>
      headers.set('authorization', basic(client_id, secret()))
    expect(await oauthGrant(raw)).toMatchObject(granted)
  })

  it('are accepted in the form', async () => {
    const posting = await interop.client(
      interop.quickstart.m2mClientId,
      oidc.ClientSecretPost(secret()),
    )
    expect(await oidc.clientCredentialsGrant(posting, { scope: 'users:read' })).toMatchObject(
      granted,
    )
    expect(await oauthGrant(oauth.ClientSecretPost(secret()))).toMatchObject(granted)
  })

  it('are refused, if wrong, with errors that the clients recognise', async () => {
    const wrong = await interop.client(
      interop.quickstart.m2mClientId,
      oidc.ClientSecretPost('svc_cs_wrong'),
    )
    await expect(oidc.clientCredentialsGrant(wrong)).rejects.toMatchObject({ status: 401 })
    await expect(oauthGrant(oauth.ClientSecretBasic('svc_cs_wrong'))).rejects.toMatchObject({
      status: 401,
    })
    await expect(
      oidc.clientCredentialsGrant(interop.backend, { scope: 'sign:everything' }),
    ).rejects.toMatchObject({ status: 400, error: 'invalid_scope' })
  })
})

describe('the device flow', () => {
  const startDevice = () =>
    oidc.initiateDeviceAuthorization(interop.app, { scope: 'openid sign:job' })

  /** Follows the device's link as a person who is not logged in. */
  async function decide(link: string | undefined, label: string): Promise<Page> {
    const browser = interop.browser()
    const code = await interop.logIn(browser, await browser.visit(link ?? ''))
    return browser.click(await browser.click(code, 'Continue'), label)
  }

  it('lets openid-client poll, slow down, and finish after a person has clicked', async () => {
    const device = await startDevice()
    const polling = await interop.client(interop.quickstart.clientId, oidc.None())
    const answers = recordAnswers(polling)
    const done = oidc.pollDeviceAuthorizationGrant(polling, device)
    await until(() => answers.length > 0)
    const stray = await oauth.deviceCodeGrantRequest(
      server,
      app(),
      oauth.None(),
      device.device_code,
      insecure,
    )
    await expect(oauth.processDeviceCodeResponse(server, app(), stray)).rejects.toMatchObject({
      error: 'slow_down',
      status: 400,
    })
    await until(() => answers.length > 1)
    expect((await decide(device.verification_uri_complete, 'Connect the device')).title).toBe(
      'Connected · Demo',
    )
    const tokens = await done
    expect(answers.slice(0, 3).map(({ error }) => error)).toEqual([
      'authorization_pending',
      'slow_down',
      null,
    ])
    expect((answers[2]?.at ?? 0) - (answers[1]?.at ?? 0)).toBeGreaterThan(5_900)
    expect(tokens).toMatchObject({ token_type: 'bearer', scope: 'openid sign:job' })
    expect(tokens.claims()).toMatchObject({ iss: interop.issuer, aud: interop.quickstart.clientId })
    await expect(
      oidc.genericGrantRequest(interop.app, deviceGrant, { device_code: device.device_code }),
    ).rejects.toMatchObject({ error: 'invalid_grant' })
  })

  it("finishes for the user in a token exchange of the app's backend", async () => {
    const device = await startDevice()
    const done = oidc.pollDeviceAuthorizationGrant(interop.app, device)
    const subject = await interop.userToken()
    const approved = await oidc.genericGrantRequest(interop.backend, exchangeGrant, {
      subject_token: subject,
      subject_token_type: accessTokenType,
      resource: `urn:svc:device_code:${device.user_code}`,
    })
    expect(approved).toMatchObject({ access_token: subject, issued_token_type: accessTokenType })
    const introspected = await oidc.tokenIntrospection(interop.backend, (await done).access_token)
    expect(introspected).toMatchObject({ active: true, external_user_id: 'ada' })
  })

  it('ends with access_denied when the person rejects the device', async () => {
    const device = await startDevice()
    expect((await decide(device.verification_uri_complete, 'This is not mine')).title).toBe(
      'Refused · Demo',
    )
    await expect(oidc.pollDeviceAuthorizationGrant(interop.app, device)).rejects.toMatchObject({
      error: 'access_denied',
    })
  })
})

describe('token exchange', () => {
  const subject = async () => ({
    subject_token: await interop.userToken(),
    subject_token_type: accessTokenType,
  })

  it('gives the backend an opaque signer session, which it can introspect and revoke', async () => {
    const session = await oidc.genericGrantRequest(interop.backend, exchangeGrant, await subject())
    expect(session).toMatchObject({
      token_type: 'bearer',
      issued_token_type: accessTokenType,
      scope: 'sign:job',
    })
    expect(session.access_token).toMatch(/^svc_ss_/)
    expect(await oidc.tokenIntrospection(interop.backend, session.access_token)).toMatchObject({
      active: true,
      external_user_id: 'ada',
    })
    await oidc.tokenRevocation(interop.backend, session.access_token)
    expect(await oidc.tokenIntrospection(interop.backend, session.access_token)).toEqual({
      active: false,
    })
  })

  it("answers both clients with the signer-session envelope at the app's own endpoint", async () => {
    const { quickstart } = interop
    const endpoint = `${quickstart.platformUrl}/api/v1/apps/${quickstart.clientId}/oidc/token`
    const envelope = {
      token_type: 'bearer',
      scope: 'sign:job',
      has_access: true,
      balanceUsdMicros: expect.stringMatching(/^\d+$/),
    }
    const own = { issuer: interop.issuer, token_endpoint: endpoint }
    const backend = new oidc.Configuration(
      own,
      quickstart.m2mClientId,
      {},
      oidc.ClientSecretBasic(secret()),
    )
    oidc.allowInsecureRequests(backend)
    expect(await oidc.genericGrantRequest(backend, exchangeGrant, await subject())).toMatchObject(
      envelope,
    )
    const scoped = { ...server, token_endpoint: endpoint }
    const response = await oauth.genericTokenEndpointRequest(
      scoped,
      m2m(),
      oauth.ClientSecretBasic(secret()),
      exchangeGrant,
      await subject(),
      insecure,
    )
    expect(await oauth.processGenericTokenEndpointResponse(scoped, m2m(), response)).toMatchObject(
      envelope,
    )
  })

  it('refuses an invalid subject token with invalid_grant', async () => {
    const parameters = { subject_token: 'rubbish', subject_token_type: accessTokenType }
    await expect(
      oidc.genericGrantRequest(interop.backend, exchangeGrant, parameters),
    ).rejects.toMatchObject({ error: 'invalid_grant', status: 400 })
  })
})

describe('every kind of token', () => {
  it('verifies with jose, the published keys and its own audience', async () => {
    const jwks = createRemoteJWKSet(new URL(server.jwks_uri ?? ''))
    const { quickstart, issuer, backend } = interop
    const { tokens } = await logInByCode(interop)
    const subject = await interop.userToken()
    const signer = await oidc.clientCredentialsGrant(backend, {
      scope: 'sign:mint_user_token',
      external_user_id: 'ada',
    })
    const exchanged = await oidc.genericGrantRequest(backend, exchangeGrant, {
      subject_token: subject,
      subject_token_type: accessTokenType,
      requested_token_type: 'urn:ietf:params:oauth:token-type:jwt',
    })
    const access = [
      ['machine', (await oidc.clientCredentialsGrant(backend)).access_token],
      ['user', subject],
      ['user', tokens.access_token],
      ['signer', signer.access_token],
      ['signer', exchanged.access_token],
    ] as const
    for (const [use, token] of access) {
      const { payload } = await jwtVerify(token, jwks, {
        issuer,
        audience: issuer,
        typ: 'at+jwt',
        algorithms: ['RS256'],
      })
      expect(payload['token_use']).toBe(use)
      // oauth4webapi checks RFC 9068 here, as a resource server.
      const request = new Request('https://api.example/', {
        headers: { authorization: `Bearer ${token}` },
      })
      expect(await oauth.validateJwtAccessToken(server, request, issuer, insecure)).toMatchObject({
        iss: issuer,
        sub: payload.sub,
      })
    }
    const { payload } = await jwtVerify(tokens.id_token ?? '', jwks, {
      issuer,
      audience: quickstart.clientId,
      algorithms: ['RS256'],
    })
    expect(payload['token_use']).toBe('id')
  })
})
