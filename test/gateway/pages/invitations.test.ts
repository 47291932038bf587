import { afterAll, beforeAll, expect, describe, it } from 'vitest'
import { logInTo, manage } from '../../support/web/people.ts'
import { type Pages, password, startPages } from './support.ts'

let pages: Pages
let invite: (email: string, role?: string) => Promise<void>
let members: () => Promise<string[]>

beforeAll(async () => {
  pages = await startPages()
  const app = await pages.newApp()
  const by = manage(pages, { session: (await logInTo(pages, app, 'owner')).token })
  const named = { clientId: app.clientId }
  await by.updateApp({ ...named, name: 'Bell & <b>' })
  invite = async (email, role = 'admin') => {
    await by.upsertMember({ ...named, email, role })
  }
  members = async () => (await by.listMembers(named)).members.map(({ email }) => email)
})
afterAll(() => pages.stop())

async function enter(email: string) {
  await pages.createAccount({ email, password })
  const browser = pages.browser()
  await browser.logIn(email)
  return browser
}

describe('invitations page', () => {
  it('is linked from the login page, and accepts with a click', async () => {
    await invite('ada@example.com')
    const browser = await enter('ada@example.com')
    expect((await browser.get('/login')).text).toContain('One invitation to an app</a> waits')
    const page = await browser.get('/invitations')
    expect(page.text).toContain('Join Bell &amp; &lt;b&gt;')
    expect(await members()).not.toContain('ada@example.com')
    const answer = { ...page.fields, action: 'accept' }
    expect((await browser.post('/invitations', answer)).location?.pathname).toBe('/invitations')
    expect(await members()).toContain('ada@example.com')
    expect((await browser.get('/invitations')).text).toContain('No invitation waits')
    expect((await browser.get('/login')).text).not.toContain('/invitations')
    expect((await browser.post('/invitations', answer)).status).toBe(404)
  })

  it('declines with a click', async () => {
    await invite('bob@example.com')
    const browser = await enter('bob@example.com')
    const { fields } = await browser.get('/invitations')
    expect((await browser.post('/invitations', { ...fields, action: 'join' })).status).toBe(400)
    expect((await browser.post('/invitations', { ...fields, action: 'decline' })).status).toBe(303)
    expect(await members()).not.toContain('bob@example.com')
    expect((await browser.get('/invitations')).text).toContain('No invitation waits')
  })

  it('rejects clicks from other sites and without its token', async () => {
    await invite('eve@example.com')
    const browser = await enter('eve@example.com')
    const { fields } = await browser.get('/invitations')
    const answer = { ...fields, action: 'accept' }
    const attempts = [
      browser.post('/invitations', answer, 'https://evil.example'),
      browser.post('/invitations', { ...answer, csrf_token: 'x'.repeat(43) }),
      pages.browser().post('/invitations', answer),
    ]
    for (const { status } of await Promise.all(attempts)) expect(status).toBe(403)
    expect(await members()).not.toContain('eve@example.com')
  })

  it('redirects to the login page, and back, without a session', async () => {
    const { status, location } = await pages.browser().get('/invitations')
    expect([status, location?.pathname, location?.search]).toEqual([
      303,
      '/login',
      '?return_to=%2Finvitations',
    ])
  })
})
