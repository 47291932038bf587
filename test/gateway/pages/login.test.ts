import { hash } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { day } from '../../core/support.ts'
import { type Pages, password, startPages } from './support.ts'

let pages: Pages
const ada = 'ada@example.com'

beforeAll(async () => {
  pages = await startPages()
  await pages.createAccount({ email: ada, password, name: 'Ada' })
})
afterAll(() => pages.stop())

describe('login page', () => {
  it('runs no scripts and loads only its icon', async () => {
    const { status, headers, text } = await pages.browser().get('/login')
    expect(status).toBe(200)
    const policy = headers.get('content-security-policy') ?? ''
    expect(policy).toContain("default-src 'none'")
    expect(policy).toMatch(/style-src 'sha256-[^']+'/)
    expect(policy).toContain("form-action 'self';")
    expect(headers.get('x-frame-options')).toBe('DENY')
    expect(headers.get('cache-control')).toBe('no-store')
    expect(headers.get('referrer-policy')).toBe('same-origin')
    expect(text).not.toMatch(/<script|<img|<link(?! rel="icon")|https?:\/\//)
  })

  it('logs in with a cookie that scripts and other sites cannot use', async () => {
    const browser = pages.browser()
    const { status, headers, location } = await browser.logIn(ada)
    expect([status, location?.pathname]).toEqual([303, '/app'])
    const cookie =
      headers.getSetCookie().find((line) => line.startsWith('__Host-tollgate_session=')) ?? ''
    expect(cookie).toMatch(/; Path=\/; HttpOnly; SameSite=Lax; Secure; Max-Age=7776000$/)
    expect((await browser.get('/login')).text).toContain(ada)
  })

  it("stores only the token's hash", async () => {
    const browser = pages.browser()
    await browser.logIn(ada)
    const token = browser.jar.get('__Host-tollgate_session') ?? ''
    const { rows } = await pages.sql.query(
      'select count(*)::int as held from web_sessions where token_hash = sha256($1::bytea)',
      [token],
    )
    expect(rows[0]).toEqual({ held: 1 })
    const { fields } = await browser.get('/login')
    const stored = await pages.sql.query<{ csrf_token: string }>(
      'select csrf_token from web_sessions',
    )
    const texts = stored.rows.map((row) => row.csrf_token)
    expect(texts).not.toContain(fields['csrf_token'])
    expect(texts).toContain(hash('sha256', fields['csrf_token'] ?? '', 'hex'))
    expect((await browser.post('/logout', fields)).status).toBe(200)
  })

  it('answers alike for an unknown address and a wrong password', async () => {
    const wrong = await pages.browser().logIn(ada, 'not the right password')
    const unknown = await pages.browser().logIn('nobody@example.com')
    expect([wrong.status, unknown.status]).toEqual([401, 401])
    expect(wrong.headers.get('www-authenticate')).toBeTruthy()
    const same = (text: string) => text.replaceAll(/value="[^"]*"/g, '')
    expect(same(unknown.text)).toBe(same(wrong.text))
  })

  it('rejects an account without a password', async () => {
    await pages.sql.query(
      "insert into accounts (id, email, created_at) values (gen_random_uuid(), 'sso@example.com', now())",
    )
    expect((await pages.browser().logIn('sso@example.com', '')).status).toBe(401)
  })

  it('rejects a form from elsewhere, without an Origin, or without its cookie', async () => {
    const browser = pages.browser()
    const { fields } = await browser.get('/login')
    const form = { ...fields, email: ada, password }
    expect((await browser.post('/login', form, 'https://evil.example')).status).toBe(403)
    expect((await browser.post('/login', form, null)).status).toBe(403)
    expect((await browser.post('/login', { ...form, csrf_token: 'x'.repeat(43) })).status).toBe(403)
    expect((await pages.browser().post('/login', form)).status).toBe(403)
    expect((await browser.post('/login', form)).status).toBe(303)
  })

  it('starts a new session at each login and ends the previous one', async () => {
    const browser = pages.browser()
    await browser.logIn(ada)
    const first = browser.jar.get('__Host-tollgate_session') ?? ''
    const { fields } = await browser.get('/login?return_to=/oidc/device')
    await browser.post('/login', { ...fields, email: ada, password })
    expect(browser.jar.get('__Host-tollgate_session')).not.toBe(first)
    browser.jar.set('__Host-tollgate_session', first)
    expect((await browser.get('/login')).text).not.toContain(ada)
  })

  it.each([
    'https://evil.example/',
    '//evil.example/',
    '/\\evil.example',
    '/..//evil.example',
    'javascript:alert(1)',
    'login',
  ])('never redirects to %s', async (returnTo) => {
    const { location } = await pages.browser().logIn(ada, password, returnTo)
    expect(location?.href).toBe('https://svc.example/app')
  })

  it('rejects a return path that a browser would read differently', async () => {
    const { status, text } = await pages.browser().get('/login?return_to=/%09/evil.example')
    expect(status).toBe(400)
    expect(text).toContain('eturn_to contains a control character (U+0009)')
  })

  it('redirects back to a page of this site', async () => {
    const { location } = await pages.browser().logIn(ada, password, '/oidc/device?user_code=AB%26C')
    expect(location?.href).toBe('https://svc.example/oidc/device?user_code=AB%26C')
  })

  it('escapes user input', async () => {
    const { text } = await pages
      .browser()
      .logIn('"><script>x</script>@example.com', 'nothing of importance')
    expect(text).not.toContain('<script')
  })
})

describe('known browser', () => {
  it('can log in while its address has used up its places', async () => {
    const known = pages.browser()
    await known.logIn(ada)
    const stranger = pages.browser()
    const { fields } = await stranger.get('/login')
    const form = { ...fields, email: ada, password: 'not the right password' }
    const attempts = Array.from({ length: 24 }, () => stranger.post('/login', form))
    expect((await known.logIn(ada, password, '/oidc/device')).status).toBe(303)
    expect((await Promise.all(attempts)).map(({ status }) => status)).toContain(429)
  })
})

describe('session', () => {
  it('ends by logging out, with a form of this site', async () => {
    const browser = pages.browser()
    await browser.logIn(ada)
    const { fields } = await browser.get('/login')
    expect((await browser.post('/logout', {})).status).toBe(403)
    expect((await browser.post('/logout', fields, 'https://evil.example')).status).toBe(403)
    const token = browser.jar.get('__Host-tollgate_session') ?? ''
    expect((await browser.post('/logout', fields)).status).toBe(200)
    expect(browser.jar.has('__Host-tollgate_session')).toBe(false)
    browser.jar.set('__Host-tollgate_session', token)
    expect((await browser.get('/login')).text).not.toContain(ada)
  })

  it('ends after 14 days without use, and after 90 days at the latest', async () => {
    const begin = pages.clock.now()
    const idle = pages.browser()
    const used = pages.browser()
    await idle.logIn(ada)
    await used.logIn(ada)
    for (let days = 13; days < 90; days += 13) {
      pages.clock.set(new Date(begin.getTime() + days * day))
      expect((await used.get('/login')).text).toContain(ada)
    }
    expect((await idle.get('/login')).text).not.toContain(ada)
    pages.clock.set(new Date(begin.getTime() + 90 * day))
    expect((await used.get('/login')).text).not.toContain(ada)
    pages.clock.set(begin)
  })
})

describe('password link', () => {
  it('sets the password once and ends all sessions', async () => {
    const email = 'grace@example.com'
    await pages.createAccount({ email, password })
    const browser = pages.browser()
    await browser.logIn(email)
    const { token } = await pages.startReset(email)
    const other = await pages.startReset(email)
    const visitor = pages.browser()
    const { fields } = await visitor.get(`/reset-password?token=${token}`)
    const form = { ...fields, password: 'another long password', repeated: 'another long password' }
    expect(
      (await visitor.post('/reset-password', { ...form, repeated: 'something different' })).status,
    ).toBe(400)
    expect(
      (await visitor.post('/reset-password', { ...form, password: 'short', repeated: 'short' }))
        .text,
    ).toContain('12 to 200')
    expect((await visitor.post('/reset-password', form, 'https://evil.example')).status).toBe(403)
    expect((await visitor.post('/reset-password', form)).status).toBe(200)
    expect((await visitor.post('/reset-password', form)).status).toBe(400)
    expect((await visitor.post('/reset-password', { ...form, token: other.token })).status).toBe(
      400,
    )
    expect((await browser.get('/login')).text).not.toContain(email)
    expect((await pages.browser().logIn(email)).status).toBe(401)
    expect((await pages.browser().logIn(email, 'another long password')).status).toBe(303)
  })

  it('works for an hour', async () => {
    const { token } = await pages.startReset(ada)
    const begin = pages.clock.now()
    const browser = pages.browser()
    const { fields } = await browser.get(`/reset-password?token=${token}`)
    pages.clock.advance(3_600_000)
    expect(
      (await browser.post('/reset-password', { ...fields, password, repeated: password })).status,
    ).toBe(400)
    pages.clock.set(begin)
  })

  it('is checked before the form is shown: expired, used and unknown links get none', async () => {
    const { token } = await pages.startReset(ada)
    const ended = await pages.startReset(ada)
    const browser = pages.browser()
    const { fields } = await browser.get(`/reset-password?token=${token}`)
    const form = { ...fields, password, repeated: password }
    expect((await browser.post('/reset-password', form)).status).toBe(200)
    for (const old of [token, ended.token, 'made-up']) {
      const page = await browser.get(`/reset-password?token=${old}`)
      expect([page.status, page.text.includes('is no longer valid')]).toEqual([400, true])
      expect(page.text).not.toContain('type="password"')
    }
  })

  it('differs from a URL without a token', async () => {
    expect((await pages.browser().get('/reset-password')).status).toBe(400)
  })
})

describe('start page', () => {
  it('leads to the dashboard, at once for a person who is logged in', async () => {
    const browser = pages.browser()
    expect((await browser.get('/')).text).toContain('<a href="/app">Dashboard</a>')
    const stranger = await browser.get('/app/some/view?page=2')
    expect(stranger.location?.href).toBe(
      'https://svc.example/login?return_to=%2Fapp%2Fsome%2Fview%3Fpage%3D2',
    )
    await browser.logIn(ada)
    const { status, location } = await browser.get('/')
    expect([status, location?.pathname]).toEqual([303, '/app'])
    const view = await browser.get('/app/some/view')
    expect(view.status).toBe(200)
    expect(view.headers.get('content-security-policy')).not.toMatch(/unsafe|https?:|\*/)
    expect((await browser.get('/app/assets/none.js')).status).toBe(404)
  })

  it('has an icon from this host, like every page', async () => {
    const { text, headers } = await pages.browser().get('/')
    expect(text).toContain('<link rel="icon" href="/favicon.svg" type="image/svg+xml">')
    expect(headers.get('content-security-policy')).toContain("img-src 'self'")
    for (const address of ['/favicon.svg', '/favicon.ico']) {
      const icon = await pages.browser().get(address)
      expect([icon.status, icon.headers.get('content-type')]).toEqual([200, 'image/svg+xml'])
      expect(icon.text).toMatch(/^<svg /)
    }
  })

  it('has the theme that was chosen in the dashboard', async () => {
    const browser = pages.browser()
    expect((await browser.get('/')).text).toContain('<html lang="en">')
    for (const theme of ['dark', 'light']) {
      browser.jar.set('tollgate_theme', theme)
      expect((await browser.get('/')).text).toContain(`<html lang="en" data-theme="${theme}">`)
    }
    browser.jar.set('tollgate_theme', 'dark"><b>')
    expect((await browser.get('/')).text).toContain('<html lang="en">')
  })
})
