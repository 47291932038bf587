import * as oauth from 'oauth4webapi'
import { describe, expect, it, onTestFinished } from 'vitest'
import { registerSecret } from '../../support/run/secrecy.ts'
import { outcome } from '../../core/support.ts'
import { asRecord } from '../support.ts'
import {
  callback,
  edge,
  page,
  started,
  real,
  app,
  other,
  setUpEdge,
  ask,
  usage,
  register,
  newToken,
  registered,
} from './edge-support.ts'

setUpEdge()

describe('edge', () => {
  it('answers a health check', async () => {
    const { status, text } = await ask('GET', '/health')
    expect([status, text]).toEqual([200, 'ok'])
  })

  it("returns a user's usage", async () => {
    const { status, body } = await ask('GET', usage(), { authorization: app.userToken })
    expect(status).toBe(200)
    expect(body).toMatchObject({ clientId: app.clientId, actor: 'ada', rows: [] })
  })

  it("returns 404 to another app's user", async () => {
    expect((await ask('GET', usage(other.clientId), { authorization: app.userToken })).status).toBe(
      404,
    )
  })

  it("rejects any credential but a user's JWT with 401", async () => {
    const { apiKey } = await real.core.as(app.basic).createKey({
      clientId: app.clientId,
      externalUserId: 'ada',
    })
    const refused = {
      none: undefined,
      'an sk_ key': `Bearer sk_${'A'.repeat(49)}`,
      'an API key': `Bearer ${apiKey}`,
      'M2M Basic': app.basic,
      'a machine token': app.machineToken,
      'a JWT of nobody': 'Bearer eyJhbGciOiJub25lIn0.e30.x',
    }
    for (const [name, authorization] of Object.entries(refused)) {
      const answer = await ask('GET', usage(), authorization === undefined ? {} : { authorization })
      expect([name, answer.status]).toEqual([name, 401])
      expect(answer.headers.get('www-authenticate')).toContain(
        `resource_metadata="${edge}/.well-known/oauth-protected-resource/api/v1/apps/${app.clientId}/usage"`,
      )
    }
  })

  it('rejects a key that works on the builder port', async () => {
    await real.core.as().createTenant({ clientId: app.clientId })
    const created = await fetch(`${real.builderUrl}/api/v1/apps/${app.clientId}/users`, {
      method: 'POST',
      headers: { authorization: app.basic, 'content-type': 'application/json' },
      body: JSON.stringify({ externalUserId: 'keyed' }),
    })
    const key = registerSecret(String(asRecord(await created.json())['apiKey']))
    expect(key).toMatch(/^sk_/)
    const headers = { authorization: `Bearer ${key}` }
    expect((await fetch(real.builderUrl + usage(), { headers })).status).toBe(200)
    // The credential is dropped unread, so neither its app nor other errors change the answer.
    for (const { clientId } of [app, other]) {
      expect((await ask('GET', usage(clientId), headers)).body).toMatchObject({
        status: 401,
        detail: 'send a JWT as Bearer; this route does not accept keys',
      })
      const many = await ask('GET', usage(clientId) + '&a=1'.repeat(101), headers)
      expect(many.status).toBe(401)
    }
  })

  it.each([
    ['POST', `/api/v1/apps/app_0123456789abcdef01234567/users`],
    ['POST', `/api/v1/apps/app_0123456789abcdef01234567/oidc/token`],
    ['POST', '/api/v1/oidc/token'],
    ['GET', '/api/v1/docs'],
  ])('has no route %s %s', async (method, path) => {
    const { status } = await ask(
      method,
      path,
      { authorization: app.basic },
      method === 'POST' ? {} : undefined,
    )
    expect(status).toBe(404)
  })

  it('lets only pages of its list read answers', async () => {
    const mine = await ask('OPTIONS', usage(), {
      origin: page,
      'access-control-request-method': 'GET',
    })
    expect(mine.status).toBe(204)
    expect(mine.headers.get('access-control-allow-origin')).toBe(page)
    expect(mine.headers.get('access-control-allow-headers')).toBe(
      'Authorization, Content-Type, Accept',
    )
    const theirs = await ask('OPTIONS', usage(), {
      origin: 'https://evil.example',
      'access-control-request-method': 'GET',
    })
    expect(theirs.status).toBe(204)
    expect(theirs.headers.get('access-control-allow-origin')).toBeNull()
    const answer = await ask('GET', '/health', { origin: `${page}.evil.example` })
    expect(answer.headers.get('access-control-allow-origin')).toBeNull()
  })
})

describe('client that only follows the metadata', () => {
  const customFetch = (url: string, init?: object) => started.customFetch(url, init)
  const via = { [oauth.customFetch]: customFetch } as const

  async function discover() {
    const first = await customFetch(edge + usage())
    const [, metadata = ''] =
      /resource_metadata="([^"]+)"/.exec(first.headers.get('www-authenticate') ?? '') ?? []
    const resource = new URL(`${edge}/api/v1/apps/${app.clientId}/usage`)
    const server = await oauth.processResourceDiscoveryResponse(
      resource,
      await customFetch(metadata),
    )
    const issuer = new URL(server.authorization_servers?.[0] ?? '')
    const as = await oauth.processDiscoveryResponse(
      issuer,
      await oauth.discoveryRequest(issuer, { algorithm: 'oauth2', ...via }),
    )
    return { resource, scopes: server.scopes_supported ?? [], as }
  }

  async function logIn(metadata: Partial<oauth.Client> = {}) {
    const { resource, scopes, as } = await discover()
    const client = await oauth.processDynamicClientRegistrationResponse(
      await oauth.dynamicClientRegistrationRequest(
        as,
        {
          redirect_uris: [callback],
          scope: scopes.join(' '),
          client_name: 'An agent',
          ...metadata,
        },
        { initialAccessToken: (await newToken()).token, ...via },
      ),
    )
    const verifier = oauth.generateRandomCodeVerifier()
    const address = new URL(as.authorization_endpoint ?? '')
    address.search = new URLSearchParams({
      client_id: client.client_id,
      redirect_uri: callback,
      response_type: 'code',
      scope: String(client['scope']),
      code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
      resource: resource.href,
      state: 'state',
    }).toString()
    const skewed: oauth.Client = {
      client_id: client.client_id,
      [oauth.clockSkew]: Math.round((real.core.clock.now().getTime() - Date.now()) / 1000),
    }
    const parameters = oauth.validateAuthResponse(
      as,
      skewed,
      await started.allow(app, address),
      'state',
    )
    const tokens = await oauth.processAuthorizationCodeResponse(
      as,
      skewed,
      await oauth.authorizationCodeGrantRequest(
        as,
        skewed,
        oauth.None(),
        parameters,
        callback,
        verifier,
        { additionalParameters: { resource: resource.href }, ...via },
      ),
    )
    registerSecret(tokens.access_token)
    return { as, client, skewed, tokens, resource }
  }

  const refreshable = {
    grant_types: ['authorization_code', 'refresh_token'],
    scope: 'openid offline_access',
  }

  const revoke = async (
    { as, skewed }: Pick<Awaited<ReturnType<typeof logIn>>, 'as' | 'skewed'>,
    token: string,
  ) =>
    oauth.processRevocationResponse(
      await oauth.revocationRequest(as, skewed, oauth.None(), token, via),
    )

  async function openSession(): Promise<string> {
    const { accessToken } = await real.core.as(app.basic).exchangeToken({
      grantType: 'urn:ietf:params:oauth:grant-type:token-exchange',
      subjectToken: app.userToken.replace('Bearer ', ''),
      subjectTokenType: 'urn:ietf:params:oauth:token-type:access_token',
    })
    return accessToken
  }

  const useSession = (token: string) => outcome(real.core.as().verifySignerSession({ token }))

  const askUsage = (token: string) =>
    customFetch(edge + usage(), { headers: { authorization: `Bearer ${token}` } })

  it('discovers, registers, logs a person in and reads their usage', async () => {
    const { client, tokens } = await logIn()
    const answer = await askUsage(tokens.access_token)
    expect(answer.status).toBe(200)
    expect(asRecord(await answer.json())).toMatchObject({ clientId: app.clientId, rows: [] })
    const claims = JSON.parse(
      Buffer.from(tokens.access_token.split('.')[1] ?? '', 'base64url').toString(),
    )
    expect(claims).toMatchObject({
      client_id: app.clientId,
      azp: client.client_id,
      scope: 'openid',
      descends_from: expect.arrayContaining([client.client_id]),
    })
    // It may read but not spend.
    const exchange = await fetch(`${real.builderUrl}/api/v1/apps/${app.clientId}/oidc/token`, {
      method: 'POST',
      body: new URLSearchParams({
        grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
        subject_token: tokens.access_token,
        subject_token_type: 'urn:ietf:params:oauth:token-type:access_token',
      }),
    })
    expect(exchange.status).toBe(400)
    expect(await exchange.json()).toMatchObject({
      error: 'invalid_grant',
      error_description: 'the subject token lacks the scope sign:job',
    })
  })

  it('ends its logins with its registration', async () => {
    const { client, tokens } = await logIn()
    const management = registerSecret(String(client['registration_access_token']))
    const path = `${register}/${client.client_id}`
    const headers = { authorization: `Bearer ${management}` }
    expect((await ask('DELETE', path, headers)).status).toBe(204)
    expect((await askUsage(tokens.access_token)).status).toBe(401)
  })

  it('revokes only its own token (RFC 7009)', async () => {
    const mine = await logIn()
    const theirs = await logIn()
    const token = mine.tokens.access_token
    await revoke(theirs, token)
    expect((await askUsage(token)).status).toBe(200)
    await revoke(mine, token)
    expect((await askUsage(token)).status).toBe(401)
    expect((await askUsage(theirs.tokens.access_token)).status).toBe(200)
  })

  it('revokes only its own login, and no backend session', async () => {
    await started.setRefreshable(app, true)
    onTestFinished(async () => void (await started.setRefreshable(app, false)))
    const mine = await logIn(refreshable)
    const theirs = await logIn()
    const next = async () =>
      oauth.processRefreshTokenResponse(
        mine.as,
        mine.skewed,
        await oauth.refreshTokenGrantRequest(mine.as, mine.skewed, oauth.None(), refresh, via),
      )
    let refresh = registerSecret(mine.tokens.refresh_token ?? '')
    const session = await openSession()
    for (const text of [refresh, session]) await revoke(theirs, text)
    refresh = registerSecret((await next()).refresh_token ?? '')
    expect(await useSession(session)).toBe('OK')
    await revoke(mine, refresh)
    await expect(next()).rejects.toMatchObject({ error: 'invalid_grant' })
    await revoke({ as: mine.as, skewed: { client_id: app.clientId } }, session)
    expect(await useSession(session)).toBe('TOKEN_INVALID')
  })

  it('rejects a foreign resource', async () => {
    const { as } = await discover()
    const { id } = await registered()
    const address = new URL(as.authorization_endpoint ?? '')
    address.search = new URLSearchParams({
      client_id: id,
      redirect_uri: callback,
      response_type: 'code',
      scope: 'openid',
      code_challenge: 'c'.repeat(43),
      code_challenge_method: 'S256',
      resource: `${edge}.evil.example/`,
    }).toString()
    const answer = await customFetch(address.href, { redirect: 'manual' })
    expect(answer.headers.get('location')).toContain('error=invalid_target')
  })

  it('finds the same metadata in every document', async () => {
    const { as } = await discover()
    for (const path of [
      '/.well-known/oauth-authorization-server',
      '/.well-known/oauth-authorization-server/api/v1/oidc',
    ])
      expect((await ask('GET', path)).body).toEqual(as)
    expect((await ask('GET', '/.well-known/oauth-protected-resource')).body).toMatchObject({
      resource: edge,
    })
    const unknown = '/.well-known/oauth-protected-resource/api/v1/apps/m2m_x/usage'
    expect((await ask('GET', unknown)).status).toBe(404)
  })
})
