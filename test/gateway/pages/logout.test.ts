import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Pages, challenge, password, startPages, verifier } from './support.ts'

let pages: Pages
let clientId: string
const redirect = 'https://app.example/cb'
const after = 'https://app.example/bye?x=1'
const end = '/api/v1/oidc/session/end'

beforeAll(async () => {
  pages = await startPages()
  clientId = (await pages.newApp()).clientId
  for (const email of ['ada@example.com', 'bob@example.com'])
    await pages.createAccount({ email, password })
  await pages.sql.query(
    'update clients set redirect_uris = $1, post_logout_redirect_uris = $2, grant_types = $3 where client_id = $4',
    [[redirect], [after], ['authorization_code', 'refresh_token'], clientId],
  )
})
afterAll(() => pages.stop())

async function loggedIn(email: string) {
  const browser = pages.browser()
  await browser.logIn(email)
  return browser
}

type Browser = Awaited<ReturnType<typeof loggedIn>>

async function idTokenOf(browser: Browser): Promise<string> {
  const query = new URLSearchParams({
    client_id: clientId,
    redirect_uri: redirect,
    response_type: 'code',
    scope: 'openid',
    code_challenge: challenge,
    code_challenge_method: 'S256',
    prompt: 'consent',
  })
  const { fields } = await browser.get(`/api/v1/oidc/auth?${query.toString()}`)
  const { location } = await browser.post('/oidc/consent', { ...fields, action: 'approve' })
  const code = location?.searchParams.get('code') ?? ''
  const { tokens } = await pages.redeem({
    clientId,
    code,
    redirectUri: redirect,
    codeVerifier: verifier,
  })
  return tokens?.idToken ?? ''
}

const path = (parameters: Record<string, string>): string =>
  `${end}?${new URLSearchParams(parameters).toString()}`
const isLoggedIn = async (browser: Browser): Promise<boolean> =>
  (await browser.get('/login')).text.includes('You are logged in')

describe('RP-initiated logout', () => {
  it('logs out with a valid hint and redirects with the state', async () => {
    const browser = await loggedIn('ada@example.com')
    const hint = await idTokenOf(browser)
    const { status, location } = await browser.get(
      path({ id_token_hint: hint, post_logout_redirect_uri: after, state: 's 1' }),
    )
    expect([status, location?.href]).toEqual([303, 'https://app.example/bye?x=1&state=s+1'])
    expect(await isLoggedIn(browser)).toBe(false)
  })

  it('accepts an expired hint', async () => {
    const browser = await loggedIn('ada@example.com')
    const hint = await idTokenOf(browser)
    pages.clock.advance(7_200_000)
    const { location } = await browser.get(
      path({ id_token_hint: hint, post_logout_redirect_uri: after }),
    )
    expect(location?.href).toBe(after)
  })

  it('can be posted by the application, whose form sends no cookie', async () => {
    const { status, location } = await pages
      .browser()
      .post(end, { client_id: clientId, state: 'x' }, 'https://app.example')
    expect([status, location?.pathname, location?.search]).toEqual([
      303,
      end,
      `?client_id=${clientId}&state=x`,
    ])
  })

  it('requires confirmation without a hint, and then redirects', async () => {
    const browser = await loggedIn('ada@example.com')
    const seen = await browser.get(
      path({ client_id: clientId, post_logout_redirect_uri: after, state: 's' }),
    )
    expect(seen.text).toContain('Log out?')
    expect(seen.headers.get('content-security-policy')).toContain(
      "form-action 'self' https://app.example;",
    )
    expect(await isLoggedIn(browser)).toBe(true)
    expect((await browser.post('/oidc/logout', seen.fields, 'https://evil.example')).status).toBe(
      403,
    )
    const done = await browser.post('/oidc/logout', seen.fields)
    expect(done.location?.href).toBe(`${after}&state=s`)
    expect(await isLoggedIn(browser)).toBe(false)
  })

  it('requires confirmation with a hint that is forged, or of another account or client', async () => {
    const bob = await loggedIn('bob@example.com')
    const hint = await idTokenOf(bob)
    const ada = await loggedIn('ada@example.com')
    const other = await pages.newApp()
    const [header = '', payload = ''] = hint.split('.')
    for (const parameters of [
      { id_token_hint: hint },
      { id_token_hint: `${header}.${payload}.${'A'.repeat(342)}` },
      { id_token_hint: 'rubbish' },
      { id_token_hint: await idTokenOf(ada), client_id: other.clientId },
    ]) {
      expect((await ada.get(path(parameters))).text).toContain('Log out?')
      expect(await isLoggedIn(ada)).toBe(true)
    }
  })

  it('never redirects to an address that is not registered exactly', async () => {
    const browser = await loggedIn('ada@example.com')
    const hint = await idTokenOf(browser)
    for (const uri of ['https://evil.example/', `${after}&more=1`, 'https://app.example/bye']) {
      const seen = await browser.get(path({ id_token_hint: hint, post_logout_redirect_uri: uri }))
      expect(seen.location).toBe(null)
    }
    expect(await isLoggedIn(browser)).toBe(false)
  })

  it('informs a person who is not logged in', async () => {
    const seen = await pages.browser().get(end)
    expect([seen.status, seen.text.includes('You are logged out')]).toEqual([200, true])
  })
})
