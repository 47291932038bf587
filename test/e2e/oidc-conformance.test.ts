import * as oidc from 'openid-client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { setTimeout as sleep } from 'node:timers/promises'
import { findServiceToken } from '../../deploy/local/data-dir.ts'
import { connectCore } from '../../deploy/cli/client.ts'
import { claimsOf } from '../gateway/platform-api/oidc/support.ts'
import type { Browser, Page } from '../support/web/interop-browser.ts'
import {
  type Interop,
  deviceGrant,
  loggedOutUri,
  redirectUri,
  startInterop,
} from '../support/web/interop.ts'

/**
 * Modules of the OpenID Foundation's conformance profiles that apply: basic OP (without form_post),
 * RP-initiated logout, and RFC 8628, which has no profile. Each row has the suite's module name and
 * the expected answer. The client is public, so it authenticates with PKCE (docs/login.md).
 */
let interop: Interop
beforeAll(async () => {
  interop = await startInterop()
})
afterAll(() => interop?.stop())

interface Login {
  readonly browser: Browser
  readonly page: Page
  /** Query of the redirect that left the site. */
  readonly answer: URLSearchParams
  readonly verifier: string
}

type Change = Readonly<Record<string, string | undefined>>
const everything = 'openid profile email offline_access'

async function requestOf(change: Change = {}) {
  const verifier = oidc.randomPKCECodeVerifier()
  const all: Change = {
    client_id: interop.quickstart.clientId,
    redirect_uri: redirectUri,
    response_type: 'code',
    scope: everything,
    state: 'state-1',
    nonce: 'nonce-1',
    code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    ...change,
  }
  const present = Object.entries(all).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value] as const],
  )
  return { verifier, query: new URLSearchParams(Object.fromEntries(present)) }
}

/**
 * Sends an authorization request through the pages: logs in and consents where the pages require
 * it.
 */
async function send(change: Change = {}, browser: Browser = interop.browser()): Promise<Login> {
  const { verifier, query } = await requestOf(change)
  const first = await browser.visit(`${interop.issuer}/auth?${query}`)
  const page = await interop.logIn(browser, first)
  const last = page.title.startsWith('Allow') ? await browser.click(page, 'Allow') : page
  return {
    browser,
    page: first,
    verifier,
    answer: last.left?.searchParams ?? new URLSearchParams(),
  }
}

const post = async (path: string, fields: Readonly<Record<string, string>>, headers = {}) => {
  const response = await fetch(interop.issuer + path, {
    method: 'POST',
    body: new URLSearchParams(fields),
    headers,
  })
  const text = await response.text()
  return { status: response.status, body: JSON.parse(text === '' ? '{}' : text) }
}

const redeem = ({ answer, verifier }: Login, change: Readonly<Record<string, string>> = {}) =>
  post('/token', {
    grant_type: 'authorization_code',
    client_id: interop.quickstart.clientId,
    redirect_uri: redirectUri,
    code: answer.get('code') ?? '',
    code_verifier: verifier,
    ...change,
  })

async function tokensOf(login: Login): Promise<Record<string, string>> {
  const { status, body } = await redeem(login)
  expect(status).toBe(200)
  return body
}

const userInfo = (token: string | undefined, init: RequestInit = {}) =>
  fetch(`${interop.issuer}/me`, { headers: { authorization: `Bearer ${token}` }, ...init })

async function newAccount(email: string, password: string): Promise<void> {
  const core = connectCore({
    target: interop.quickstart.coreTarget,
    token: (await findServiceToken(interop.running.service.dataDir)) ?? '',
  })
  await core.accounts.createAccount({ email, password, name: '', isPlatformAdmin: false })
  core.close()
}

/** Rows with a request that succeeds. */
const succeeding: readonly [string, Change][] = [
  ['oidcc-server', {}],
  ['oidcc-ensure-request-without-nonce-succeeds-for-code-flow', { nonce: undefined }],
  ['oidcc-scope-profile', { scope: 'openid profile' }],
  ['oidcc-scope-email', { scope: 'openid email' }],
  ['oidcc-scope-all', { scope: everything }],
  ['oidcc-ensure-other-scope-order-succeeds', { scope: 'email profile openid' }],
  ['oidcc-display-page', { display: 'page' }],
  ['oidcc-display-popup', { display: 'popup' }],
  ['oidcc-ui-locales', { ui_locales: 'de fr' }],
  ['oidcc-claims-locales', { claims_locales: 'de' }],
  ['oidcc-ensure-request-with-acr-values-succeeds', { acr_values: '1 2' }],
  ['oidcc-ensure-request-with-unknown-parameter-succeeds', { extra: 'foobar' }],
  ['oidcc-claims-essential', { claims: '{"userinfo":{"name":{"essential":true}}}' }],
  ['oidcc-login-hint', { login_hint: 'ada@example.com' }],
  ['oidcc-max-age-10000', { max_age: '10000' }],
]

/** Rows with a request that ends in an error at the redirect URI. */
const refused: readonly [string, Change, string][] = [
  ['oidcc-response-type-missing', { response_type: undefined }, 'invalid_request'],
  ['oidcc-prompt-none-not-logged-in', { prompt: 'none' }, 'login_required'],
  // The suite skips both, because scopes_supported does not list them.
  ['oidcc-scope-address', { scope: 'openid address' }, 'invalid_scope'],
  ['oidcc-scope-phone', { scope: 'openid phone' }, 'invalid_scope'],
  // Discovery contains request_parameter_supported: false.
  [
    'oidcc-unsigned-request-object-supported-correctly-or-rejected-as-unsupported',
    { request: 'eyJhbGciOiJub25lIn0.e30.' },
    'request_not_supported',
  ],
  [
    'oidcc-ensure-request-object-with-redirect-uri',
    { request: 'eyJhbGciOiJub25lIn0.eyJyZWRpcmVjdF91cmkiOiJodHRwczovL3gifQ.' },
    'request_not_supported',
  ],
  ['oidcc-request-uri', { request_uri: 'https://x.example/r' }, 'request_uri_not_supported'],
  ['oidcc-id-token-hint (no token of ours)', { id_token_hint: 'a.b.c' }, 'invalid_request'],
  ['PKCE is required (RFC 9700)', { code_challenge: undefined }, 'invalid_request'],
  ['PKCE is S256 (RFC 9700)', { code_challenge_method: 'plain' }, 'invalid_request'],
]

describe('basic OP', () => {
  it.each(succeeding)('%s', async (_, change) => {
    const login = await send(change)
    expect(Object.fromEntries(login.answer)).toEqual({
      code: expect.any(String),
      state: 'state-1',
      iss: interop.issuer,
    })
    const tokens = await tokensOf(login)
    const claims = claimsOf(tokens['id_token'])
    expect(claims).toMatchObject({
      iss: interop.issuer,
      aud: interop.quickstart.clientId,
      auth_time: expect.any(Number),
      ...('nonce' in change ? {} : { nonce: 'nonce-1' }),
    })
    expect('nonce' in claims).toBe(!('nonce' in change))
    const about: unknown = await (await userInfo(tokens['access_token'])).json()
    expect(about).toMatchObject({
      sub: claims['sub'],
      ...(login.answer.has('code') && (change['scope'] ?? everything).includes('email')
        ? { email: interop.quickstart.ownerEmail }
        : {}),
    })
  })

  it.each(refused)('%s', async (_, change, error) => {
    const { query } = await requestOf(change)
    const { left } = await interop.browser().visit(`${interop.issuer}/auth?${query}`)
    expect(Object.fromEntries(left?.searchParams ?? [])).toMatchObject({
      error,
      state: 'state-1',
      iss: interop.issuer,
    })
  })

  it('oidcc-userinfo-get, oidcc-userinfo-post-header, oidcc-userinfo-post-body', async () => {
    const { access_token: token = '' } = await tokensOf(await send())
    const body = new URLSearchParams({ access_token: token })
    const answers = await Promise.all([
      userInfo(token),
      userInfo(token, { method: 'POST' }),
      userInfo(undefined, { method: 'POST', headers: {}, body }),
    ])
    const [one, ...others]: unknown[] = await Promise.all(
      answers.map(async (each) => [each.status, await each.json()]),
    )
    expect(one).toMatchObject([200, { email: interop.quickstart.ownerEmail }])
    expect(others).toEqual([one, one])
    // RFC 6750 section 2: only one method per request. No token is 401.
    expect(
      (
        await userInfo(token, {
          method: 'POST',
          body,
          headers: { authorization: `Bearer ${token}` },
        })
      ).status,
    ).toBe(400)
    expect((await userInfo(undefined, { method: 'POST', headers: {} })).status).toBe(401)
    expect((await userInfo(undefined, { headers: {} })).status).toBe(401)
    const wrong = new URLSearchParams({ access_token: `${token}x` })
    expect((await userInfo(undefined, { method: 'POST', headers: {}, body: wrong })).status).toBe(
      401,
    )
  })

  it('oidcc-prompt-login, oidcc-max-age-1: a new login, with a later auth_time', async () => {
    const first = await send()
    const before = Number(claimsOf((await tokensOf(first))['id_token'])['auth_time'])
    await sleep(1_100)
    for (const change of [{ prompt: 'login' }, { max_age: '1' }]) {
      const again = await send(change, first.browser)
      expect(again.page.title).toMatch(/^Log in/)
      const after = Number(claimsOf((await tokensOf(again))['id_token'])['auth_time'])
      expect(after).toBeGreaterThan(before)
      await sleep(2_100)
    }
  })

  it('oidcc-prompt-none-logged-in: a code without a page, same subject and login', async () => {
    const first = await send()
    const again = await send({ prompt: 'none' }, first.browser)
    expect(again.page.left).not.toBeNull()
    const [one, two] = [await tokensOf(first), await tokensOf(again)].map((tokens) =>
      claimsOf(tokens['id_token']),
    )
    expect([two?.['sub'], two?.['auth_time']]).toEqual([one?.['sub'], one?.['auth_time']])
  })

  it('oidcc-id-token-hint: its person, or login_required', async () => {
    const first = await send()
    const { id_token: hint = '' } = await tokensOf(first)
    const again = await send({ prompt: 'none', id_token_hint: hint }, first.browser)
    expect(again.answer.get('code')).not.toBeNull()
    const nobody = await send({ prompt: 'none', id_token_hint: hint })
    expect(nobody.answer.get('error')).toBe('login_required')
    const email = `other-${Date.now()}@example.com`
    const password = 'a long enough password'
    await newAccount(email, password)
    const other = interop.browser()
    await other.click(await other.visit('/login'), 'Log in', { email, password })
    for (const prompt of ['none', undefined]) {
      const mismatch = await send({ prompt, id_token_hint: hint }, other)
      expect(mismatch.answer.get('error')).toBe('login_required')
    }
    // A person who is not logged in gets the login page, and the request then continues.
    expect((await send({ id_token_hint: hint })).answer.get('code')).not.toBeNull()
  })

  it('oidcc-login-hint: the login page has that address', async () => {
    const { query } = await requestOf({ login_hint: 'ada@example.com' })
    const response = await fetch(`${interop.issuer}/auth?${query}`)
    expect(await response.text()).toContain('value="ada@example.com"')
  })

  it('oidcc-codereuse, oidcc-codereuse-30seconds: invalid_grant, and the first tokens end', async () => {
    const login = await send()
    const tokens = await tokensOf(login)
    expect((await userInfo(tokens['access_token'])).status).toBe(200)
    expect(await redeem(login)).toMatchObject({ status: 400, body: { error: 'invalid_grant' } })
    expect((await userInfo(tokens['access_token'])).status).toBe(401)
    const refreshed = await post('/token', {
      grant_type: 'refresh_token',
      client_id: interop.quickstart.clientId,
      refresh_token: tokens['refresh_token'] ?? '',
    })
    expect(refreshed).toMatchObject({ status: 400, body: { error: 'invalid_grant' } })
  })

  it.each([
    ['unknown', 'https://evil.example/cb'],
    ['with more path', `${redirectUri}/more`],
    ['with a query', `${redirectUri}?a=1`],
    ['missing', undefined],
  ])('oidcc-ensure-registered-redirect-uri: %s, a page without a redirect', async (_, uri) => {
    const { query } = await requestOf({ redirect_uri: uri })
    const page = await interop.browser().visit(`${interop.issuer}/auth?${query}`)
    expect([page.status, page.left]).toEqual([400, null])
  })

  it('oidcc-redirect-uri at the token endpoint: invalid_grant if it differs from the request', async () => {
    const login = await send()
    const wrong = await redeem(login, { redirect_uri: 'https://app.example/other' })
    expect(wrong).toMatchObject({ status: 400, body: { error: 'invalid_grant' } })
  })

  it('oidcc-ensure-post-request-succeeds', async () => {
    const { query } = await requestOf()
    const response = await fetch(`${interop.issuer}/auth`, {
      method: 'POST',
      body: query,
      redirect: 'manual',
    })
    expect(response.status).toBe(303)
    const next = new URL(response.headers.get('location') ?? '', interop.issuer)
    expect(Object.fromEntries(next.searchParams)).toEqual(Object.fromEntries(query))
  })

  it('oidcc-refresh-token: same subject, audience, login and scope, new refresh token', async () => {
    const first = await tokensOf(await send({ prompt: 'consent' }))
    const { status, body } = await post('/token', {
      grant_type: 'refresh_token',
      client_id: interop.quickstart.clientId,
      refresh_token: first['refresh_token'] ?? '',
    })
    expect(status).toBe(200)
    const [old, renewed] = [claimsOf(first['id_token']), claimsOf(body.id_token)]
    for (const name of ['iss', 'sub', 'aud', 'auth_time', 'azp'])
      expect(renewed[name]).toEqual(old[name])
    expect(body.refresh_token).not.toBe(first['refresh_token'])
    expect(await tokensOf(await send({ scope: 'openid' }))).not.toHaveProperty('refresh_token')
  })

  it('oidcc-discovery-endpoint-verification: matches the rows above', async () => {
    const response = await fetch(`${interop.issuer}/.well-known/openid-configuration`)
    expect(await response.json()).toMatchObject({
      issuer: interop.issuer,
      response_types_supported: ['code'],
      response_modes_supported: ['query'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: ['RS256'],
      scopes_supported: expect.arrayContaining(everything.split(' ')),
      prompt_values_supported: ['none', 'login', 'consent', 'select_account'],
      claims_parameter_supported: false,
      request_parameter_supported: false,
      request_uri_parameter_supported: false,
    })
  })
})

describe('RP-initiated logout', () => {
  async function loggedIn() {
    const login = await send()
    const { id_token: hint = '' } = await tokensOf(login)
    return { browser: login.browser, hint }
  }
  const end = (browser: Browser, parameters: Readonly<Record<string, string>>) =>
    browser.visit(`${interop.issuer}/session/end?${new URLSearchParams(parameters)}`)
  const isLoggedIn = async (browser: Browser): Promise<boolean> =>
    (await send({ prompt: 'none' }, browser)).answer.has('code')

  it('oidcc-rp-initiated-logout, -no-state, -no-post-logout-redirect-uri', async () => {
    const back = { post_logout_redirect_uri: loggedOutUri }
    const rows: readonly [Readonly<Record<string, string>>, string | null][] = [
      [{ ...back, state: 's-1' }, `${loggedOutUri}?state=s-1`],
      [back, loggedOutUri],
      [{}, null],
      [{ state: 's-1' }, null],
    ]
    for (const [more, left] of rows) {
      const { browser, hint } = await loggedIn()
      const page = await end(browser, { id_token_hint: hint, ...more })
      expect(page.left?.href ?? null).toBe(left)
      expect(await isLoggedIn(browser)).toBe(false)
    }
  })

  it('…-bad-post-logout-redirect-uri, …-query-added-to-post-logout-redirect-uri: no redirect', async () => {
    for (const uri of ['https://evil.example/', `${loggedOutUri}?added=1`]) {
      const { browser, hint } = await loggedIn()
      const page = await end(browser, { id_token_hint: hint, post_logout_redirect_uri: uri })
      expect(page.left).toBeNull()
    }
  })

  it('…-bad-id-token-hint, -modified-id-token-hint, -no-id-token-hint, -no-params, -only-state: a page asks first', async () => {
    const { browser, hint } = await loggedIn()
    const [head = '', , signature = ''] = hint.split('.')
    const forged = Buffer.from(JSON.stringify({ ...claimsOf(hint), sub: 'x' })).toString(
      'base64url',
    )
    const back = { post_logout_redirect_uri: loggedOutUri }
    for (const parameters of [
      { id_token_hint: 'rubbish', ...back },
      { id_token_hint: `${head}.${forged}.${signature}`, ...back },
      back,
      {},
      { state: 's-1' },
    ]) {
      const page = await end(browser, parameters)
      expect([page.left, page.title]).toEqual([null, expect.stringMatching(/^Log out/)])
      expect(await isLoggedIn(browser)).toBe(true)
    }
  })
})

describe('RFC 8628', () => {
  const start = (fields: Readonly<Record<string, string>> = {}) =>
    post('/device/auth', { client_id: interop.quickstart.clientId, scope: 'openid', ...fields })
  const poll = (code: string, clientId = interop.quickstart.clientId) =>
    post('/token', { grant_type: deviceGrant, client_id: clientId, device_code: code })

  it('3.2 the answer is complete', async () => {
    expect(await start()).toMatchObject({
      status: 200,
      body: {
        device_code: expect.stringMatching(/^svc_dc_/),
        user_code: expect.stringMatching(/^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$/),
        verification_uri: expect.any(String),
        verification_uri_complete: expect.stringContaining('user_code='),
        expires_in: 600,
        interval: 1,
      },
    })
  })

  it('3.1 errors for an unknown client, a forbidden scope and no client', async () => {
    expect((await start({ client_id: `app_${'0'.repeat(24)}` })).body.error).toBe('invalid_client')
    expect((await start({ scope: 'users:write' })).body.error).toBe('invalid_scope')
    expect((await post('/device/auth', {})).body.error).toBe('invalid_client')
  })

  it('3.5 authorization_pending, slow_down, access_denied, invalid_grant', async () => {
    const { body: device } = await start()
    expect((await poll(device.device_code)).body.error).toBe('authorization_pending')
    expect((await poll(device.device_code)).body.error).toBe('slow_down')
    expect((await poll('svc_dc_none')).body.error).toBe('invalid_grant')
    const browser = interop.browser()
    const code = await interop.logIn(browser, await browser.visit(device.verification_uri_complete))
    await browser.click(await browser.click(code, 'Continue'), 'This is not mine')
    expect((await poll(device.device_code)).body.error).toBe('access_denied')
  })

  it('3.4 tokens once; 5.4 the link alone, without a click, approves nothing', async () => {
    const { body: device } = await start()
    const browser = interop.browser()
    const code = await interop.logIn(browser, await browser.visit(device.verification_uri_complete))
    expect((await poll(device.device_code)).body.error).toBe('authorization_pending')
    await browser.click(await browser.click(code, 'Continue'), 'Connect the device')
    const { status, body } = await poll(device.device_code)
    expect([status, body.token_type, typeof body.id_token]).toEqual([200, 'Bearer', 'string'])
    expect((await poll(device.device_code)).body.error).toBe('invalid_grant')
    expect((await userInfo(body.access_token)).status).toBe(401)
  })
})
