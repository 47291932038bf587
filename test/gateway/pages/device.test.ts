import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Pages, password, startPages } from './support.ts'

let pages: Pages
let clientId: string
const ada = 'ada@example.com'

beforeAll(async () => {
  pages = await startPages()
  clientId = (await pages.newApp()).clientId
  await pages.createAccount({ email: ada, password })
  await pages.sql.query(
    "update clients set grant_types = '{urn:ietf:params:oauth:grant-type:device_code}' where client_id = $1",
    [clientId],
  )
  await pages.sql.query('update apps set name = $1, color = $2', ['<b>Bold</b> & Co', '#ffcc00'])
})
afterAll(() => pages.stop())

async function loggedIn(email = ada) {
  const browser = pages.browser()
  await browser.logIn(email)
  return browser
}

const statusOf = async (code: string) =>
  (await pages.sql.query('select status from device_codes where user_code = $1', [code])).rows[0]
    ?.status

async function enter(browser: Awaited<ReturnType<typeof loggedIn>>, code: string) {
  const { fields } = await browser.get('/oidc/device')
  return browser.post('/oidc/device', { ...fields, user_code: code, action: 'lookup' })
}

describe('verification page', () => {
  it('requires a login first and keeps the code', async () => {
    const { status, location } = await pages.browser().get('/oidc/device?user_code=ABCD-EFGH')
    expect([status, location?.pathname]).toEqual([303, '/login'])
    expect(location?.searchParams.get('return_to')).toBe('/oidc/device?user_code=ABCD-EFGH')
  })

  it('decides nothing when only a link with the code is opened', async () => {
    const { userCode } = await pages.startDevice(clientId)
    const seen = await (await loggedIn()).get(`/oidc/device?user_code=${userCode}`)
    expect(seen.text).toContain(`value="${userCode}"`)
    expect(await statusOf(userCode)).toBe('pending')
  })

  it('shows app, scopes and code, and requires a click', async () => {
    const { userCode } = await pages.startDevice(clientId)
    const browser = await loggedIn()
    const seen = await enter(browser, userCode.toLowerCase().replace('-', ' '))
    expect(seen.text).toContain('&lt;b&gt;Bold&lt;/b&gt; &amp; Co')
    expect(seen.text).not.toContain('<b>')
    expect(seen.text).toContain('--accent:#ffcc00;--on-accent:#10141b')
    expect(seen.text).toContain('sign:job')
    expect(seen.text).toContain(userCode)
    expect(await statusOf(userCode)).toBe('pending')
    const done = await browser.post('/oidc/device', { ...seen.fields, action: 'approve' })
    expect(done.text).toContain('The device is connected')
    expect(await statusOf(userCode)).toBe('approved')
  })

  it('accepts a denial', async () => {
    const { userCode } = await pages.startDevice(clientId)
    const browser = await loggedIn()
    const seen = await enter(browser, userCode)
    expect((await browser.post('/oidc/device', { ...seen.fields, action: 'deny' })).text).toContain(
      'refused',
    )
    expect(await statusOf(userCode)).toBe('denied')
    expect((await browser.post('/oidc/device', { ...seen.fields, action: 'approve' })).status).toBe(
      400,
    )
    expect(await statusOf(userCode)).toBe('denied')
  })

  it('rejects forms from other sites and without a session', async () => {
    const { userCode } = await pages.startDevice(clientId)
    const browser = await loggedIn()
    const { fields } = await enter(browser, userCode)
    const form = { ...fields, action: 'approve' }
    expect((await browser.post('/oidc/device', form, 'https://evil.example')).status).toBe(403)
    expect((await browser.post('/oidc/device', { ...form, csrf_token: '' })).status).toBe(403)
    expect((await pages.browser().post('/oidc/device', form)).status).toBe(403)
    expect((await browser.post('/oidc/device', { ...form, action: 'maybe' })).status).toBe(400)
    expect(await statusOf(userCode)).toBe('pending')
  })

  it('distinguishes an expired code from an unknown one', async () => {
    const { userCode } = await pages.startDevice(clientId)
    const browser = await loggedIn()
    expect((await enter(browser, 'BBBB-BBBB')).text).toContain('code is wrong')
    pages.clock.advance(600_000)
    expect((await enter(browser, userCode)).text).toContain('has expired')
  })

  it('checks only five of forty codes guessed in parallel by one account', async () => {
    const email = 'parallel@example.com'
    await pages.createAccount({ email, password })
    const { userCode } = await pages.startDevice(clientId)
    const browser = await loggedIn(email)
    const { fields } = await browser.get('/oidc/device')
    const guess = (code: string) =>
      browser.post('/oidc/device', { ...fields, user_code: code, action: 'lookup' })
    const guesses = await Promise.all(Array.from({ length: 40 }, () => guess('BBBB-BBBB')))
    const statuses = Map.groupBy(guesses, ({ status }) => status)
    expect([statuses.get(400)?.length, statuses.get(429)?.length]).toEqual([5, 35])
    expect((await guess(userCode)).status).toBe(429)
    pages.clock.advance(600_000)
    const { userCode: next } = await pages.startDevice(clientId)
    for (let i = 0; i < 6; i++) expect((await guess(next)).status).toBe(200)
  })

  it('allows five wrong codes per account, then refuses even a right one', async () => {
    const { userCode } = await pages.startDevice(clientId)
    await pages.createAccount({ email: 'guesser@example.com', password })
    const browser = await loggedIn('guesser@example.com')
    for (let attempt = 0; attempt < 5; attempt++)
      expect((await enter(browser, 'BBBB-BBBB')).status).toBe(400)
    const seen = await enter(browser, userCode)
    expect(seen.status).toBe(429)
    expect(Number(seen.headers.get('retry-after'))).toBeGreaterThan(0)
    expect((await enter(await loggedIn('guesser@example.com'), userCode)).status).toBe(429)
    expect((await enter(await loggedIn(), userCode)).status).toBe(200)
  })
})
