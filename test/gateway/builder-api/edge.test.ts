import * as oauth from 'oauth4webapi'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { registerSecret } from '../../support/secrecy.ts'
import { outcome } from '../../core/support.ts'
import type { Real, RealApp } from '../real.ts'
import { asRecord, publicUrl } from '../support.ts'
import { type Edge, callback, edge, page, startEdge } from './edge-support.ts'

let started: Edge
let real: Real
let app: RealApp
let other: RealApp
beforeAll(async () => {
  started = await startEdge({ REGISTRATIONS_PER_APP: '16', REGISTRATION_UNUSED_DAYS: '30' })
  real = started.real
  app = await real.newApp('edge')
  other = await real.newApp('other')
})
afterAll(() => real.stop())

type Headers = Readonly<Record<string, string>>

async function ask(
  method: string,
  path: string,
  ...[headers = {}, json]: readonly [headers?: Headers, json?: unknown]
) {
  const body = json === undefined ? {} : { body: JSON.stringify(json) }
  const type = json === undefined ? {} : { 'content-type': 'application/json' }
  const response = await fetch(real.edgeUrl + path, {
    method,
    headers: { ...type, ...headers },
    ...body,
  })
  const text = await response.text()
  const isJson = /[/+]json/.test(response.headers.get('content-type') ?? '')
  const { status, headers: sent } = response
  return { status, headers: sent, text, body: isJson ? asRecord(JSON.parse(text)) : {} }
}

const usage = (clientId = app.clientId) =>
  `/api/v1/apps/${clientId}/usage?meter=network_fee_usd_micros`
const register = '/api/v1/oidc/register'

const newToken = (more: { usesMax?: number; days?: number } = {}, of: RealApp = app) =>
  started.newToken(of, more)

const authorize = ({ token }: { readonly token: string }) => ({ authorization: `Bearer ${token}` })

async function usesOf({ id }: { readonly id: string }): Promise<number | undefined> {
  const { tokens } = await real.core.as().listRegistrationTokens({ clientId: app.clientId })
  return tokens.find((token) => token.id === id)?.uses
}

async function registered(metadata: object = {}) {
  const headers = authorize(await newToken())
  const { status, body } = await ask('POST', register, headers, {
    redirect_uris: [callback],
    ...metadata,
  })
  expect(status).toBe(201)
  const management = registerSecret(String(body['registration_access_token']))
  return {
    ...body,
    id: String(body['client_id']),
    headers: { authorization: `Bearer ${management}` },
  }
}

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

describe('registration', () => {
  it('creates a public client with scopes that spend nothing', async () => {
    const client = await registered({ client_name: 'An agent', software_id: 'agent' })
    expect(client).toMatchObject({
      redirect_uris: [callback],
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code'],
      response_types: ['code'],
      scope: 'openid',
      client_name: 'An agent',
      software_id: 'agent',
      registration_client_uri: `${edge}${register}/${client.id}`,
    })
    expect(client.id).toMatch(/^dyn_[0-9a-f]{24}$/)
  })

  it('grants requested scopes of the app', async () => {
    expect(await registered({ scope: 'openid sign:job users:read' })).toMatchObject({
      scope: 'openid sign:job',
    })
  })

  it.each([
    ['no redirect URI', {}, 'invalid_redirect_uri'],
    ['redirect URIs that are not a list', { redirect_uris: callback }, 'invalid_redirect_uri'],
    ['http', { redirect_uris: ['http://client.example/'] }, 'invalid_redirect_uri'],
    ['a fragment', { redirect_uris: [`${callback}#x`] }, 'invalid_redirect_uri'],
    ['a host beyond ASCII', { redirect_uris: ['https://пример.example/'] }, 'invalid_redirect_uri'],
    ['a wildcard', { redirect_uris: ['https://*.example/'] }, 'invalid_redirect_uri'],
    ['javascript', { redirect_uris: ['javascript:alert(1)'] }, 'invalid_redirect_uri'],
    ['a secret', { token_endpoint_auth_method: 'client_secret_basic' }, 'invalid_client_metadata'],
    ['another grant', { grant_types: ['client_credentials'] }, 'invalid_client_metadata'],
    ['refresh alone', { grant_types: ['refresh_token'] }, 'invalid_client_metadata'],
    ['an implicit answer', { response_types: ['token'] }, 'invalid_client_metadata'],
    ['unknown scopes', { scope: 'users:read admin' }, 'invalid_client_metadata'],
    ['a name that is a number', { client_name: 7 }, 'invalid_client_metadata'],
    ['a name with a hidden character', { client_name: 'a\u200bb' }, 'invalid_client_metadata'],
    ['a name without letters', { client_name: '…' }, 'invalid_client_metadata'],
    [
      'a name that imitates our text',
      { client_name: 'Bank (regіstered wіth Acme)' },
      'invalid_client_metadata',
    ],
    ['an invalid client_uri', { client_uri: 'javascript:1' }, 'invalid_client_metadata'],
    ['a software statement', { software_statement: 'a.b.c' }, 'unapproved_software_statement'],
    ['text instead of a statement', { software_statement: 'text' }, 'invalid_software_statement'],
    ['a body that is too large', { client_name: 'x'.repeat(20_000) }, 'invalid_client_metadata'],
  ])('refuses %s', async (name, metadata, error) => {
    const usual =
      'redirect_uris' in metadata || name === 'no redirect URI' ? {} : { redirect_uris: [callback] }
    const token = await newToken({ usesMax: 1 })
    const { status, body } = await ask('POST', register, authorize(token), {
      ...usual,
      ...metadata,
    })
    expect([status, body['error']]).toEqual([400, error])
    // A refusal does not use up the token.
    expect(await usesOf(token)).toBe(0)
  })

  it('rejects a body over 1 MiB', async () => {
    const answer = await ask('POST', register, {}, { client_name: 'x'.repeat(1024 * 1024) })
    expect(answer.status).toBe(413)
  })

  it('limits the clients per app', async () => {
    // One token each, so that only the app serializes them.
    const tokens = await Promise.all(Array.from({ length: 19 }, () => newToken({}, other)))
    const metadata = { redirect_uris: [callback] }
    const statuses = await Promise.all(
      tokens.map(async (token) => {
        return (await ask('POST', register, authorize(token), metadata)).status
      }),
    )
    expect(statuses.filter((status) => status === 201)).toHaveLength(16)
    expect(statuses.filter((status) => status === 409)).toHaveLength(3)
  })

  it('refuses a missing, wrong, used, revoked or expired token', async () => {
    const metadata = { redirect_uris: [callback] }
    const once = await newToken({ usesMax: 1 })
    const statusWith = async (token: string) =>
      (await ask('POST', register, authorize({ token }), metadata)).status
    const atOnce = await Promise.all(Array.from({ length: 5 }, () => statusWith(once.token)))
    expect(atOnce.toSorted()).toEqual([201, 401, 401, 401, 401])
    const revoked = await newToken()
    await real.core.as().revokeRegistrationToken({ clientId: app.clientId, id: revoked.id })
    const mistyped = `${once.token.slice(0, -1)}_`
    const statuses = [await statusWith(revoked.token), await statusWith(mistyped)]
    expect([...statuses, await statusWith(app.apiKey.slice(7))]).toEqual([401, 401, 401])
    expect((await ask('POST', register, {}, metadata)).body).toMatchObject({
      error_description: 'send the initial access token as Bearer',
    })
    const short = await newToken({ days: 1 })
    const at = real.core.clock.now()
    real.core.clock.advance(86_400_000)
    expect(await statusWith(short.token)).toBe(401)
    real.core.clock.set(at)
  })

  it('allows read, replace and delete only with its own token', async () => {
    const client = await registered()
    const theirs = await registered()
    const path = `${register}/${client.id}`
    expect((await ask('GET', path, client.headers)).body).toMatchObject({ client_id: client.id })
    for (const headers of [theirs.headers, {}, { authorization: app.userToken }])
      for (const method of ['GET', 'PUT', 'DELETE'])
        expect(
          (
            await ask(
              method,
              path,
              headers,
              method === 'PUT' ? { client_id: client.id } : undefined,
            )
          ).status,
        ).toBe(401)
    const next = {
      client_id: client.id,
      redirect_uris: ['http://127.0.0.1/done'],
      client_name: 'B',
    }
    expect((await ask('PUT', path, client.headers, next)).body).toMatchObject({
      redirect_uris: ['http://127.0.0.1/done'],
      client_name: 'B',
    })
    const wrong = [
      { client_id: theirs.id },
      { registration_access_token: 'x' },
      { client_secret: 'x' },
    ]
    for (const change of wrong)
      expect((await ask('PUT', path, client.headers, { ...next, ...change })).status).toBe(400)
    expect((await ask('DELETE', path, client.headers)).status).toBe(204)
    expect((await ask('GET', path, client.headers)).status).toBe(401)
  })

  it('keeps an existing name that new clients may not use', async () => {
    const client = await registered()
    const old = 'a\u200bb'
    await real.core.sql.query('update registered_clients set name = $2 where client_id = $1', [
      client.id,
      old,
    ])
    const change = async (name: string) => {
      const next = { client_id: client.id, redirect_uris: [callback], client_name: name }
      return (await ask('PUT', `${register}/${client.id}`, client.headers, next)).status
    }
    expect([await change(old), await change('a\u200cb'), await change('B')]).toEqual([
      200, 400, 200,
    ])
    expect(await change(old)).toBe(400)
  })

  it('rejects its id in paths and grants no M2M rights', async () => {
    const { id } = await registered()
    expect((await ask('GET', usage(id), { authorization: app.userToken })).status).toBe(404)
  })
})

describe('consent to a registered client', () => {
  type Client = Awaited<ReturnType<typeof registered>>

  const request = ({ id }: Client): URL => {
    const address = new URL(`${publicUrl}/api/v1/oidc/auth`)
    address.search = new URLSearchParams({
      client_id: id,
      redirect_uri: callback,
      response_type: 'code',
      scope: 'openid',
      code_challenge: 'c'.repeat(43),
      code_challenge_method: 'S256',
    }).toString()
    return address
  }

  const change = (client: Client, metadata: object) =>
    ask('PUT', `${register}/${client.id}`, client.headers, {
      client_id: client.id,
      redirect_uris: [callback],
      ...metadata,
    })

  /** Whether a login returns a code without showing a page. */
  async function isSilent(client: Client): Promise<boolean> {
    const { cookie = '' } = app.session
    const answer = await started.customFetch(request(client).href, {
      headers: { cookie },
      redirect: 'manual',
    })
    return new URL(answer.headers.get('location') ?? callback).searchParams.has('code')
  }

  it.each([
    ['name', { client_name: 'Your bank' }],
    ['redirect URIs', { redirect_uris: [callback, 'https://other.example/'] }],
  ])("expires when the client's %s change", async (_, metadata) => {
    const client = await registered()
    await started.allow(app, request(client))
    expect(await isSilent(client)).toBe(true)
    expect((await change(client, { software_version: '2' })).status).toBe(200)
    expect(await isSilent(client)).toBe(true)
    expect((await change(client, metadata)).status).toBe(200)
    expect(await isSilent(client)).toBe(false)
    await started.allow(app, request(client))
    expect(await isSilent(client)).toBe(true)
  })

  it('is requested again when the client changes while the page is open', async () => {
    const client = await registered()
    const changeNow = async () => {
      await change(client, { client_name: 'Your “bank” (' })
    }
    const again = await started.decide(app, request(client), changeNow)
    expect(again.status).toBe(200)
    expect(await again.text()).toContain('“Your ’bank’ (” (registered with edge)')
    expect(await isSilent(client)).toBe(false)
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
