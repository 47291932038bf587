import { describe, expect, it } from 'vitest'
import { publicUrl } from '../support.ts'
import {
  callback,
  edge,
  started,
  real,
  app,
  other,
  setUpEdge,
  ask,
  usage,
  register,
  newToken,
  authorize,
  usesOf,
  registered,
} from './edge-support.ts'

setUpEdge()

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
