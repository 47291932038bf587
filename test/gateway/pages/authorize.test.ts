import { createHash } from 'node:crypto'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { issuer } from '../../core/support.ts'
import { type Pages, challenge, password, startPages } from './support.ts'

let pages: Pages
let clientId: string
const ada = 'ada@example.com'
const redirect = 'https://app.example/cb?tenant=1'

beforeAll(async () => {
  pages = await startPages()
  clientId = (await pages.newApp()).clientId
  await pages.createAccount({ email: ada, password })
  await pages.sql.query(
    'update clients set redirect_uris = $1, grant_types = $2 where client_id = $3',
    [
      [redirect, 'http://127.0.0.1/cb', 'http://[::1]:1234/cb', 'com.example.app:/cb'],
      ['authorization_code', 'refresh_token'],
      clientId,
    ],
  )
})
afterAll(() => pages.stop())
afterEach(() => pages.sql.query('delete from consents'))

const path = (change: Readonly<Record<string, string | undefined>> = {}): string => {
  const all = {
    client_id: clientId,
    redirect_uri: redirect,
    response_type: 'code',
    scope: 'openid sign:job',
    state: 's&1',
    nonce: 'n-1',
    code_challenge: challenge,
    code_challenge_method: 'S256',
    ...change,
  }
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(all)) if (value !== undefined) query.set(name, value)
  return `/api/v1/oidc/auth?${query.toString()}`
}

async function loggedIn() {
  const browser = pages.browser()
  await browser.logIn(ada)
  return browser
}

type Browser = ReturnType<Pages['browser']>

async function consent(browser: Browser, action: string, request = path()) {
  const { fields } = await browser.get(request)
  return browser.post('/oidc/consent', { ...fields, action })
}

describe('authorization request', () => {
  it('leads through login and consent back to the application, with code, state and iss', async () => {
    const browser = pages.browser()
    const first = await browser.get(path())
    expect([first.status, first.location?.pathname]).toEqual([303, '/login'])
    const login = await browser.get(`/login${first.location?.search ?? ''}`)
    expect(login.text).toContain('An app')
    // Browsers also apply form-action to redirects after a form.
    expect(login.headers.get('content-security-policy')).toContain(
      "form-action 'self' https://app.example;",
    )
    const back = await browser.post('/login', { ...login.fields, email: ada, password })
    const consent = await browser.get(
      `${back.location?.pathname ?? ''}${back.location?.search ?? ''}`,
    )
    expect(consent.text).toContain('Allow An app to act for you?')
    expect(consent.headers.get('content-security-policy')).toContain(
      "form-action 'self' https://app.example;",
    )
    const done = await browser.post('/oidc/consent', { ...consent.fields, action: 'approve' })
    expect(done.status).toBe(303)
    const location = done.location ?? new URL('none:')
    expect(`${location.origin}${location.pathname}`).toBe('https://app.example/cb')
    expect(Object.fromEntries(location.searchParams)).toEqual({
      tenant: '1',
      code: expect.stringMatching(/^[\w-]{43}$/),
      state: 's&1',
      iss: issuer,
    })
  })

  it('stores the code as a hash, with everything needed to redeem it', async () => {
    const done = await consent(await loggedIn(), 'approve')
    const code = done.location?.searchParams.get('code') ?? ''
    const { rows } = await pages.sql.query(
      `
      select c.*, u.external_user_id, c.expires_at - c.created_at = interval '60 seconds' as lives_a_minute
      from authorization_codes c join end_users u on u.id = c.user_id where c.code_hash = $1`,
      [createHash('sha256').update(code).digest()],
    )
    expect(rows[0]).toMatchObject({
      client_id: clientId,
      redirect_uri: redirect,
      scope: 'openid sign:job',
      nonce: 'n-1',
      code_challenge: challenge,
      external_user_id: `user:${rows[0].account_id}`,
      lives_a_minute: true,
      consumed_at: null,
    })
  })

  it('requires consent once, and again for more scopes', async () => {
    const browser = await loggedIn()
    await consent(browser, 'approve', path({ scope: 'openid' }))
    const again = await browser.get(path({ scope: 'openid' }))
    expect([again.status, again.location?.searchParams.has('code')]).toEqual([302, true])
    expect((await browser.get(path())).text).toContain('sign:job')
    expect((await browser.get(path({ scope: 'openid', prompt: 'consent' }))).status).toBe(200)
    await consent(browser, 'approve')
    expect((await browser.get(path())).status).toBe(302)
  })

  it('redirects to the application when the person denies it', async () => {
    const done = await consent(await loggedIn(), 'deny')
    expect(done.location?.searchParams.get('error')).toBe('access_denied')
    expect(done.location?.searchParams.get('state')).toBe('s&1')
    expect((await pages.sql.query('select 1 from consents')).rowCount).toBe(0)
  })

  it('accepts consent only from our own page', async () => {
    const browser = await loggedIn()
    const { fields } = await browser.get(path())
    const form = { ...fields, action: 'approve' }
    expect((await browser.post('/oidc/consent', form, 'https://evil.example')).status).toBe(403)
    expect(
      (await browser.post('/oidc/consent', { ...form, csrf_token: 'x'.repeat(43) })).status,
    ).toBe(403)
    expect((await pages.browser().post('/oidc/consent', form)).status).toBe(403)
    expect(
      (await browser.post('/oidc/consent', { ...form, redirect_uri: 'https://evil.example/' }))
        .status,
    ).toBe(400)
    expect((await browser.post('/oidc/consent', { ...form, action: 'maybe' })).status).toBe(400)
  })

  it('is also answered at the alias', async () => {
    const { status } = await pages.browser().get(path().replace('/auth?', '/authorize?'))
    expect(status).toBe(303)
  })

  it('can be posted by the application, whose form sends no cookie', async () => {
    const fields = Object.fromEntries(new URLSearchParams(path().split('?')[1]))
    for (const at of ['/api/v1/oidc/auth', '/api/v1/oidc/authorize']) {
      const { status, location } = await pages.browser().post(at, fields, 'https://app.example')
      expect([
        status,
        location?.pathname,
        Object.fromEntries(location?.searchParams ?? []),
      ]).toEqual([303, at, fields])
    }
    expect(
      (await pages.browser().post('/api/v1/oidc/auth', { ...fields, state: 's'.repeat(8_000) }))
        .status,
    ).toBe(400)
  })

  it('is denied for a deactivated user', async () => {
    const browser = await loggedIn()
    await consent(browser, 'approve')
    await pages.sql.query("update end_users set status = 'inactive', deactivated_at = now()")
    expect((await browser.get(path())).location?.searchParams.get('error')).toBe('access_denied')
    await pages.sql.query("update end_users set status = 'active', deactivated_at = null")
  })
})

describe('untrusted request', () => {
  it.each([
    ['an unknown client', { client_id: 'app_ffffffffffffffffffffffff' }, 404],
    ['a machine client', { client_id: 'm2m_ffffffffffffffffffffffff' }, 404],
    ['no client', { client_id: undefined }, 404],
    ['no redirect URI', { redirect_uri: undefined }, 400],
    ['another redirect URI', { redirect_uri: 'https://evil.example/cb' }, 400],
    ['a longer redirect URI', { redirect_uri: `${redirect}/more` }, 400],
    ['a redirect URI in different case', { redirect_uri: 'https://APP.example/cb?tenant=1' }, 400],
    ['a loopback URI with another path', { redirect_uri: 'http://127.0.0.1:5555/other' }, 400],
    ['a loopback URI with another host', { redirect_uri: 'http://localhost:5555/cb' }, 400],
    [
      'a loopback URI with a user part',
      { redirect_uri: 'http://127.0.0.1:80@evil.example/cb' },
      400,
    ],
    ['a loopback URI over https', { redirect_uri: 'https://127.0.0.1:5555/cb' }, 400],
    ['a loopback URI without a port', { redirect_uri: 'http://127.0.0.1:99999/cb' }, 400],
  ])('with %s shows an error page and does not redirect', async (_, change, status) => {
    const seen = await pages.browser().get(path(change))
    expect([seen.status, seen.location]).toEqual([status, null])
    expect(seen.headers.get('content-type')).toContain('text/html')
  })

  it('shows an error page when client_id or redirect_uri is repeated', async () => {
    expect((await pages.browser().get(`${path()}&redirect_uri=https://evil.example`)).status).toBe(
      400,
    )
    expect((await pages.browser().get(`${path()}&client_id=${clientId}`)).status).toBe(400)
  })

  it.each(['http://127.0.0.1:50123/cb', 'http://[::1]:6/cb', 'com.example.app:/cb'])(
    'is trusted at %s',
    async (uri) => {
      const browser = await loggedIn()
      const done = await consent(browser, 'approve', path({ redirect_uri: uri }))
      expect(done.location?.href.startsWith(`${uri}?code=`)).toBe(true)
    },
  )
})

describe('code without a click', () => {
  it('requires an https redirect URI of this client; others need consent each time', async () => {
    const browser = await loggedIn()
    for (const uri of ['http://127.0.0.1:50123/cb', 'http://[::1]:6/cb', 'com.example.app:/cb']) {
      await consent(browser, 'approve', path({ redirect_uri: uri }))
      const again = await browser.get(path({ redirect_uri: uri }))
      expect([again.status, again.location]).toEqual([200, null])
      expect(again.text).toContain('to act for you?')
      const silent = await browser.get(path({ redirect_uri: uri, prompt: 'none' }))
      expect(silent.location?.searchParams.get('error')).toBe('consent_required')
      expect(silent.location?.searchParams.has('code')).toBe(false)
    }
    expect((await browser.get(path())).location?.searchParams.has('code')).toBe(true)
  })

  it('is refused by core for any answer of the page', async () => {
    const browser = await loggedIn()
    const sessionToken = browser.jar.get('__Host-tollgate_session') ?? ''
    const request = {
      clientId,
      redirectUri: redirect,
      responseType: 'code',
      scope: undefined,
      codeChallenge: challenge,
      codeChallengeMethod: 'S256',
      nonce: undefined,
      prompt: undefined,
      resource: undefined,
      idTokenHint: undefined,
      sessionToken: undefined,
    }
    const grant = (consented: boolean, redirectUri = redirect) =>
      pages.grantAuthorization({ sessionToken, consented, request: { ...request, redirectUri } })
    await expect(grant(false)).rejects.toMatchObject({ reason: 'REQUEST_INVALID' })
    expect((await grant(true)).code).not.toBe('')
    expect((await grant(false)).code).not.toBe('')
    await expect(grant(false, 'http://127.0.0.1:1/cb')).rejects.toMatchObject({
      reason: 'REQUEST_INVALID',
    })
  })
})

describe('invalid request', () => {
  it.each([
    ['invalid_request', { response_type: undefined }],
    ['unsupported_response_type', { response_type: 'token' }],
    ['invalid_request', { code_challenge: undefined }],
    ['invalid_request', { code_challenge_method: undefined }],
    ['invalid_request', { code_challenge_method: 'plain' }],
    ['invalid_request', { code_challenge: 'short' }],
    ['invalid_scope', { scope: 'openid users:write' }],
    ['invalid_scope', { scope: 'x'.repeat(2_000) }],
    ['invalid_target', { resource: 'https://other.example' }],
    ['invalid_request', { prompt: 'sometimes' }],
    ['invalid_request', { prompt: 'none login' }],
    ['invalid_request', { nonce: 'n'.repeat(600) }],
    ['invalid_request', { max_age: 'long' }],
    ['invalid_request', { response_mode: 'fragment' }],
    ['request_not_supported', { request: 'a.b.c' }],
    ['request_uri_not_supported', { request_uri: 'urn:x' }],
    ['login_required', { prompt: 'none' }],
  ])('returns %s for %o to the redirect URI', async (error, change) => {
    const { status, location } = await pages.browser().get(path(change))
    expect(status).toBe(302)
    expect(location?.origin).toBe('https://app.example')
    expect(Object.fromEntries(location?.searchParams ?? [])).toMatchObject({
      error,
      state: 's&1',
      iss: issuer,
    })
  })

  it('returns invalid_request when a parameter is repeated', async () => {
    const { location } = await pages.browser().get(`${path()}&scope=openid`)
    expect(location?.searchParams.get('error')).toBe('invalid_request')
  })

  it('returns unauthorized_client for a client without the grant', async () => {
    const other = await pages.newApp()
    await pages.sql.query(
      "update clients set redirect_uris = $1, grant_types = '{refresh_token}' where client_id = $2",
      [[redirect], other.clientId],
    )
    const { location } = await pages.browser().get(path({ client_id: other.clientId }))
    expect(location?.searchParams.get('error')).toBe('unauthorized_client')
  })
})

describe('prompt', () => {
  it('none returns consent_required before consent and a code after it', async () => {
    const browser = await loggedIn()
    expect((await browser.get(path({ prompt: 'none' }))).location?.searchParams.get('error')).toBe(
      'consent_required',
    )
    await consent(browser, 'approve')
    expect((await browser.get(path({ prompt: 'none' }))).location?.searchParams.has('code')).toBe(
      true,
    )
  })

  it.each([{ prompt: 'login' }, { max_age: '60' }])(
    '%o requests the password again, once',
    async (change) => {
      const browser = await loggedIn()
      // The gateway uses its own clock; core's is set to the past.
      const first = await browser.get(path(change))
      expect(first.location?.pathname).toBe('/login')
      const { fields } = await browser.get(`/login${first.location?.search ?? ''}`)
      const back = await browser.post('/login', { ...fields, email: ada, password })
      expect(
        (await browser.get(`${back.location?.pathname ?? ''}${back.location?.search ?? ''}`)).text,
      ).toContain('to act for you?')
    },
  )

  it('none returns login_required when the login is too old', async () => {
    const browser = await loggedIn()
    await consent(browser, 'approve')
    const { location } = await browser.get(path({ prompt: 'none', max_age: '60' }))
    expect(location?.searchParams.get('error')).toBe('login_required')
  })
})
