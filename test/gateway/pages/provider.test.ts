import { type Server, createServer } from 'node:http'
import {
  type CryptoKey,
  type JWTPayload,
  SignJWT,
  UnsecuredJWT,
  exportJWK,
  generateKeyPair,
} from 'jose'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type SmtpDouble, startSmtpServer } from '../../fakes/smtp.ts'
import { eventually } from '../../support/waiting.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { createEnvReader } from '../../../core/lib/env.ts'
import { readLoginProvider } from '../../../gateway/pages/config.ts'
import { type Pages, password, startPages } from './support.ts'

const clientSecret = registerSecret(`s+c${'x'.repeat(32)}`)

let server: Server
let issuer: string
let key: CryptoKey
let otherKey: CryptoKey
let pages: Pages
let smtp: SmtpDouble
/** Claims of the provider's next ID token. */
let claims: Record<string, unknown> = {}
/** Additional text in the answers of the provider's token endpoint. */
let padding = ''
let tokenRequest: URLSearchParams = new URLSearchParams()
const signedBy = (alg: string, signingKey: () => CryptoKey | Uint8Array) => (payload: JWTPayload) =>
  new SignJWT(payload)
    .setProtectedHeader({ alg, kid: 'k1' })
    .setIssuedAt()
    .setExpirationTime('5m')
    .sign(signingKey())
const signedByProvider = signedBy('RS256', () => key)
/** Creates the provider's next ID tokens. */
let sign: (payload: JWTPayload) => string | Promise<string> = signedByProvider

beforeAll(async () => {
  const pair = await generateKeyPair('RS256', { extractable: true })
  key = pair.privateKey
  otherKey = (await generateKeyPair('RS256')).privateKey
  const jwk = { ...(await exportJWK(pair.publicKey)), kid: 'k1', alg: 'RS256', use: 'sig' }
  server = createServer((request, response) => {
    const answer = async (): Promise<unknown> => {
      if (request.url === '/jwks') return { keys: [jwk] }
      if (request.url !== '/token') {
        return {
          issuer,
          authorization_endpoint: `${issuer}/authorize?fixed=1`,
          token_endpoint: `${issuer}/token`,
          jwks_uri: `${issuer}/jwks`,
          id_token_signing_alg_values_supported: ['RS256', 'HS256', 'none'],
        }
      }
      let body = ''
      for await (const part of request) body += String(part)
      tokenRequest = new URLSearchParams(body)
      tokenRequest.set('authorization', request.headers.authorization ?? '')
      const payload = {
        iss: issuer,
        aud: 'us',
        sub: 's1',
        email: 'ada@example.com',
        email_verified: true,
        name: 'Ada',
        ...claims,
      }
      return { id_token: await sign(payload), access_token: 'x', token_type: 'Bearer', padding }
    }
    void answer().then((value) =>
      response.setHeader('content-type', 'application/json').end(JSON.stringify(value)),
    )
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  issuer = `http://127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`
  smtp = await startSmtpServer()
  pages = await startPages(
    { issuer, clientId: 'us', clientSecret, name: 'Example SSO' },
    { SMTP_URL: `smtp://127.0.0.1:${smtp.port}`, MAIL_FROM: 'mail@svc.example' },
  )
})
afterAll(async () => {
  await pages.stop()
  smtp.stop()
  server.close()
})

/** Logs in at the provider and returns with a code. */
async function comeBack(
  change: Record<string, unknown> = {},
  answer: Record<string, string> = {},
  browser = pages.browser(),
) {
  const { location } = await browser.get('/login/provider?return_to=%2Foidc%2Fdevice')
  const sent = location?.searchParams ?? new URLSearchParams()
  claims = { nonce: sent.get('nonce'), ...change }
  const query = new URLSearchParams({ code: 'c1', state: sent.get('state') ?? '', ...answer })
  return {
    browser,
    sent,
    location,
    seen: await browser.get(`/login/provider/callback?${query.toString()}`),
  }
}

describe('login from a new browser through an external provider', () => {
  const subjects = (email: string) => smtp.to(email).map(({ headers }) => headers['subject'])

  it('is mailed, unlike the one that creates the account and later ones from its browser', async () => {
    const email = 'grace@example.com'
    const grace = { sub: 'grace', email }
    const { browser } = await comeBack(grace)
    expect((await comeBack(grace, {}, browser)).seen.status).toBe(303)
    expect((await comeBack(grace)).seen.status).toBe(303)
    await eventually(
      async () => subjects(email),
      (found) => found.length > 0,
    )
    await eventually(
      async () => (await pages.sql.query('select from outbox')).rows.length,
      (waiting) => waiting === 0,
    )
    expect(subjects(email)).toEqual(['Login from a new browser'])
  })

  it('is mailed when the browser is known for another account', async () => {
    const { browser } = await comeBack({ sub: 'one', email: 'one@example.com' })
    const two = { sub: 'two', email: 'two@example.com' }
    await comeBack(two)
    await comeBack(two, {}, browser)
    const found = await eventually(
      async () => subjects('two@example.com'),
      ({ length }) => length > 0,
    )
    expect(found).toEqual(['Login from a new browser'])
  })
})

describe('settings of an external provider', () => {
  const read = (address: string) => {
    const env = createEnvReader({
      LOGIN_OIDC_ISSUER: address,
      LOGIN_OIDC_CLIENT_ID: 'us',
      LOGIN_OIDC_CLIENT_SECRET: 's',
      LOGIN_OIDC_ALLOWED_DOMAINS: 'example.com',
    })
    return { provider: readLoginProvider(env), problems: env.problems }
  }

  it.each([
    'https://login.example/realm',
    'http://localhost:8080',
    'http://127.0.0.1:8080/realm',
    'http://[::1]:8080',
  ])('accept %s as its issuer', (address) => {
    const { provider, problems } = read(address)
    expect([provider?.issuer, problems]).toEqual([address, []])
  })

  it.each(['http://login.example', 'http://10.0.0.1:8080', 'http://localhost.example'])(
    'refuse %s as its issuer',
    (address) => {
      expect(read(address).problems).toEqual([
        'LOGIN_OIDC_ISSUER must start with https://; http:// is only for localhost, 127.0.0.1 and [::1]',
      ])
    },
  )
})

describe('allowed logins of an external provider', () => {
  const problemsOf = (more: Record<string, string>) => {
    const env = createEnvReader({
      LOGIN_OIDC_ISSUER: 'https://login.example',
      LOGIN_OIDC_CLIENT_ID: 'us',
      LOGIN_OIDC_CLIENT_SECRET: 's',
      ...more,
    })
    readLoginProvider(env)
    return env.problems
  }

  it('must be set, if only to *', () => {
    expect(problemsOf({})).toEqual([
      'LOGIN_OIDC_ALLOWED_DOMAINS or LOGIN_OIDC_ALLOWED_EMAILS must list who may log in through LOGIN_OIDC_ISSUER, such as example.com; * allows every account of that provider',
    ])
    for (const value of ['*', 'example.com', 'bücher.example, *'])
      expect(problemsOf({ LOGIN_OIDC_ALLOWED_DOMAINS: value })).toEqual([])
    expect(problemsOf({ LOGIN_OIDC_ALLOWED_EMAILS: 'ada@example.com' })).toEqual([])
  })

  it('are domains and addresses only', () => {
    expect(
      problemsOf({ LOGIN_OIDC_ALLOWED_DOMAINS: 'a@b', LOGIN_OIDC_ALLOWED_EMAILS: 'b' }),
    ).toEqual([
      expect.stringContaining('LOGIN_OIDC_ALLOWED_DOMAINS must hold domains such as example.com'),
      expect.stringContaining('LOGIN_OIDC_ALLOWED_EMAILS must hold e-mail addresses'),
      expect.stringContaining('must list who may log in'),
    ])
  })
})

describe('login through an external provider', () => {
  it('is offered on the login page', async () => {
    expect((await pages.browser().get('/login?return_to=/oidc/device')).text).toContain(
      'href="/login/provider?return_to=%2Foidc%2Fdevice">Continue with Example SSO',
    )
  })

  it('uses code, PKCE, state and nonce, and starts a session', async () => {
    const { browser, sent, location, seen } = await comeBack()
    expect(location?.href.startsWith(`${issuer}/authorize?fixed=1&`)).toBe(true)
    expect(Object.fromEntries(sent)).toMatchObject({
      client_id: 'us',
      redirect_uri: 'https://svc.example/login/provider/callback',
      response_type: 'code',
      scope: 'openid email profile',
      code_challenge_method: 'S256',
    })
    expect([seen.status, seen.location?.pathname]).toEqual([303, '/oidc/device'])
    expect((await browser.get('/login')).text).toContain('ada@example.com')
    expect(Object.fromEntries(tokenRequest)).toMatchObject({
      grant_type: 'authorization_code',
      code: 'c1',
      authorization: `Basic ${Buffer.from(`us:${encodeURIComponent(clientSecret)}`).toString('base64')}`,
    })
  })

  it.each([
    ['another nonce', { nonce: 'other' }],
    ['another audience', { aud: 'them' }],
    ['another issuer', { iss: 'https://evil.example' }],
    ['another authorized party', { aud: ['us', 'them'], azp: 'them' }],
    [
      'an address that is not verified',
      { sub: 's9', email: 'new@example.com', email_verified: false },
    ],
    [
      'an address whose verification is a string',
      { sub: 's9', email: 'new@example.com', email_verified: 'true' },
    ],
  ])('refuses an ID token with %s', async (_, change) => {
    const { browser, seen } = await comeBack(change)
    expect(seen.status).toBe(400)
    expect(browser.jar.has('__Host-tollgate_session')).toBe(false)
  })

  it.each([
    ['is signed with another key', signedBy('RS256', () => otherKey)],
    ['is signed with our client secret', signedBy('HS256', () => Buffer.from(clientSecret))],
    [
      'is not signed',
      (payload: JWTPayload) =>
        new UnsecuredJWT(payload).setIssuedAt().setExpirationTime('5m').encode(),
    ],
  ])('refuses an ID token that %s', async (_, signToken) => {
    sign = signToken
    const { browser, seen } = await comeBack().finally(() => (sign = signedByProvider))
    expect(seen.status).toBe(400)
    expect(browser.jar.has('__Host-tollgate_session')).toBe(false)
  })

  it.each([
    ['another state', { state: 'x'.repeat(43) }, 'was not started in this browser'],
    ["another issuer's name", { iss: 'https://evil.example' }, 'was not started in this browser'],
    [
      "an error under another issuer's name",
      { iss: 'https://evil.example', code: '', error: 'access_denied' },
      'was not started in this browser',
    ],
    ['an error instead of a code', { code: '', error: 'access_denied' }, 'did not log you in'],
  ])('refuses an answer with %s, and explains it', async (_, answer, sentence) => {
    const { seen, browser } = await comeBack({}, answer)
    expect(seen.status).toBe(400)
    expect(seen.text).toContain(sentence)
    expect(browser.jar.has('__Host-tollgate_session')).toBe(false)
  })

  it('stops reading an oversized answer', async () => {
    padding = 'x'.repeat(262_144)
    const { seen, browser } = await comeBack().finally(() => (padding = ''))
    expect(seen.status).toBe(503)
    expect(browser.jar.has('__Host-tollgate_session')).toBe(false)
    expect((await comeBack()).seen.status).toBe(303)
  })

  it("accepts an answer with the provider's own issuer", async () => {
    expect((await comeBack({}, { iss: issuer })).seen.status).toBe(303)
  })

  it('refuses an answer without a login of this browser, and a second answer', async () => {
    expect((await pages.browser().get('/login/provider/callback?code=c&state=s')).status).toBe(400)
    const { browser, sent } = await comeBack()
    expect(
      (await browser.get(`/login/provider/callback?code=c1&state=${sent.get('state') ?? ''}`))
        .status,
    ).toBe(400)
  })

  it('never redirects to another site', async () => {
    const browser = pages.browser()
    const { location } = await browser.get('/login/provider?return_to=https%3A%2F%2Fevil.example')
    claims = { nonce: location?.searchParams.get('nonce') }
    const seen = await browser.get(
      `/login/provider/callback?code=c&state=${location?.searchParams.get('state') ?? ''}`,
    )
    expect(seen.location?.href).toBe('https://svc.example/app')
  })

  it('opens an existing account only after its password was given once', async () => {
    const email = 'bob@example.com'
    const { account } = await pages.createAccount({ email, password })
    const identity = { sub: 's2', email: 'Bob@example.com' }
    const { browser, seen } = await comeBack(identity)
    expect([seen.status, seen.text]).toEqual([
      200,
      expect.stringContaining('Is this account yours?'),
    ])
    expect(browser.jar.has('__Host-tollgate_session')).toBe(false)
    const confirm = (fields: Record<string, string>) =>
      browser.post('/login/provider/link', { ...seen.fields, password, ...fields })
    expect((await confirm({ password: 'something else' })).status).toBe(401)
    expect(
      (await browser.post('/login/provider/link', { ...seen.fields, password }, null)).status,
    ).toBe(403)
    const confirmed = await confirm({})
    expect([confirmed.status, confirmed.location?.pathname]).toEqual([303, '/oidc/device'])
    expect((await browser.get('/login')).text).toContain(email)
    const { rows } = await pages.sql.query(
      "select account_id from account_identities where subject = 's2'",
    )
    expect(rows[0].account_id).toBe(account?.id)
    expect((await comeBack(identity)).seen.status).toBe(303)
  })

  it('rejects a cookie that it did not sign, and accepts an answer only once', async () => {
    const { browser, sent } = await begin()
    const cookie = browser.jar.get('__Host-tollgate_login') ?? ''
    const [payload = '', ...rest] = cookie.split('.')
    const login = JSON.parse(Buffer.from(payload, 'base64url').toString('utf8')) as object
    const forged = Buffer.from(JSON.stringify({ ...login, returnTo: '/forged' })).toString(
      'base64url',
    )
    browser.jar.set('__Host-tollgate_login', [forged, ...rest].join('.'))
    claims = { nonce: sent.get('nonce') }
    const answer = `/login/provider/callback?code=c1&state=${sent.get('state') ?? ''}`
    expect((await browser.get(answer)).status).toBe(400)
    const [one, two] = [pages.browser(), pages.browser()]
    for (const each of [one, two]) each.jar.set('__Host-tollgate_login', cookie)
    expect([(await one.get(answer)).status, (await two.get(answer)).status]).toEqual([303, 400])
  })

  async function begin() {
    const browser = pages.browser()
    const { location } = await browser.get('/login/provider')
    return { browser, sent: location?.searchParams ?? new URLSearchParams() }
  }
})
