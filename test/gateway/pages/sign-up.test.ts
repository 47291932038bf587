import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type SmtpDouble, type TakenMail, startSmtpServer } from '../../fakes/smtp.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { eventually } from '../../support/waiting.ts'
import { logInTo, manage } from '../../support/web/people.ts'
import { type Browser, type Pages, password, publicUrl, startPages } from './support.ts'

/** Waits up to a minute, because a busy machine delays the outbox. */
const until = (condition: () => Promise<boolean>) => eventually(condition, Boolean)

let smtp: SmtpDouble
let pages: Pages
const start = async (env: Readonly<Record<string, string>>) => {
  smtp = await startSmtpServer()
  const server = { SMTP_URL: `smtp://127.0.0.1:${smtp.port}`, MAIL_FROM: 'mail@svc.example' }
  pages = await startPages(undefined, { ...server, ...env })
}
const stop = async () => {
  await pages.stop()
  smtp.stop()
}

async function signUp(email: string) {
  const browser = pages.browser()
  const { fields } = await browser.get('/sign-up')
  return browser.post('/sign-up', { ...fields, email })
}

/** Waits until every request and mail in the outbox is finished. */
const quiet = () =>
  until(async () => (await pages.sql.query('select from outbox')).rows.length === 0)

async function mailTo(email: string): Promise<TakenMail> {
  await until(async () => smtp.to(email).length > 0)
  const mail = smtp.to(email).at(-1)
  if (!mail) throw new Error(`no mail to ${email}`)
  return mail
}

/** Signs up and returns the path of the mailed link. */
async function openLink(email: string): Promise<string> {
  await signUp(email)
  const { text } = await mailTo(email)
  const url = /https:\S+/.exec(text)?.[0] ?? ''
  expect(url).toMatch(/^https:\/\/svc\.example\/sign-up\?token=[\w-]{43}$/)
  registerSecret(url.slice(-43))
  return url.slice(publicUrl.length)
}

async function complete(browser: Browser, path: string, more: Record<string, string> = {}) {
  const { fields } = await browser.get(path)
  const form = { ...fields, name: 'Ada', password, repeated: password, ...more }
  return browser.post('/sign-up/complete', form)
}

describe('sign-up by address', () => {
  beforeAll(() => start({ SIGN_UP: 'address', SIGN_UP_DOMAINS: 'example.com, other.example' }))
  afterAll(stop)

  it('creates the account by a mailed link, logs in, and leads to a first app', async () => {
    expect((await pages.browser().get('/login')).text).toContain('href="/sign-up"')
    const path = await openLink('ada@example.com')
    const browser = pages.browser()
    expect((await browser.get(path)).text).toContain('for ada@example.com')
    const { rows: before } = await pages.sql.query('select from accounts')
    expect(before).toEqual([])
    const { status, location } = await complete(browser, path)
    expect([status, location?.pathname]).toEqual([303, '/app/new'])
    expect((await browser.get('/login')).text).toContain('as ada@example.com')
    const { rows } = await pages.sql.query(
      'select email, name, is_platform_admin as admin from accounts',
    )
    expect(rows).toEqual([{ email: 'ada@example.com', name: 'Ada', admin: false }])
    expect((await pages.browser().logIn('ada@example.com')).status).toBe(303)
    const { rows: entries } = await pages.sql.query(
      `select distinct action from audit_log where action like 'account_%' order by action`,
    )
    expect(entries).toEqual([{ action: 'account_created' }, { action: 'account_logged_in' }])
    const again = await pages.browser().get(path)
    expect([again.status, again.text.includes('no longer valid')]).toEqual([400, true])
  })

  it('answers alike for new, known, foreign and malformed addresses', async () => {
    const known = 'grace@example.com'
    await pages.createAccount({ email: known, password })
    const answers = [
      await signUp('new@example.com'),
      await signUp(known),
      await signUp('eve@evil.example'),
      await signUp('eve@sub.example.com'),
      await signUp('no address'),
    ]
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1)
    expect(answers[0]?.status).toBe(200)
    const { text, headers } = await mailTo(known)
    expect(headers['subject']).toBe('You have an account')
    expect(text).not.toContain('token')
    expect((await mailTo('new@example.com')).headers['subject']).toBe('Create your account')
    await quiet()
    expect([...smtp.to('eve@evil.example'), ...smtp.to('eve@sub.example.com')]).toEqual([])
  })

  it('lets an invited address of another domain sign up, and leads to its invitation', async () => {
    const app = await pages.newApp()
    const by = manage(pages, { session: (await logInTo(pages, app, 'owner')).token })
    const email = 'guest@elsewhere.example'
    await by.upsertMember({ clientId: app.clientId, email, role: 'admin' })
    await mailTo(email)
    await signUp(email)
    await until(async () => smtp.to(email).length === 2)
    const path = /\/sign-up\?token=[\w-]{43}/.exec((await mailTo(email)).text)?.[0] ?? ''
    registerSecret(path.slice(-43))
    const browser = pages.browser()
    expect((await complete(browser, path)).location?.pathname).toBe('/invitations')
    expect((await browser.get('/invitations')).text).toContain('as admin')
  })

  it('keeps the link and the name after a wrong password', async () => {
    const path = await openLink('alan@example.com')
    const browser = pages.browser()
    const differs = await complete(browser, path, { repeated: 'another long password' })
    expect([differs.status, differs.text.includes('The two passwords differ')]).toEqual([400, true])
    expect(differs.text).toContain('value="Ada"')
    const short = await complete(browser, path, { password: 'short', repeated: 'short' })
    expect(short.text).toContain('must have 12 to 200 characters')
    const long = await complete(browser, path, { name: 'a'.repeat(101) })
    expect(long.text).toContain('The name has at most 100 characters')
    expect((await complete(browser, path, { name: '' })).status).toBe(303)
  })

  it('creates one account when two links of an address are used', async () => {
    const first = await openLink('twice@example.com')
    await signUp('twice@example.com')
    await until(async () => smtp.to('twice@example.com').length === 2)
    const second = /\/sign-up\?token=[\w-]{43}/.exec((await mailTo('twice@example.com')).text)?.[0]
    registerSecret(second?.slice(-43) ?? '')
    const opened = await Promise.all(
      [first, first, second ?? ''].map(async (path) => {
        const browser = pages.browser()
        const { fields } = await browser.get(path)
        return { browser, form: { ...fields, name: '', password, repeated: password } }
      }),
    )
    const answers = await Promise.all(
      opened.map(({ browser, form }) => browser.post('/sign-up/complete', form)),
    )
    expect(answers.map(({ status }) => status).toSorted()).toEqual([303, 400, 400])
  })

  it('refuses a link whose address has got an account since', async () => {
    const path = await openLink('overtaken@example.com')
    await pages.createAccount({ email: 'overtaken@example.com', password })
    const { status, text } = await complete(pages.browser(), path)
    expect([status, text.includes('no longer valid')]).toEqual([400, true])
  })

  it('sets no password by a sign-up link, and creates no account by a reset link', async () => {
    const path = await openLink('mixed@example.com')
    const reset = await pages.browser().get(path.replace('/sign-up', '/reset-password'))
    expect(reset.text).toContain('no longer valid')
    await pages.createAccount({ email: 'reset@example.com', password })
    const { token } = await pages.startReset('reset@example.com')
    const answer = await pages.browser().get(`/sign-up?token=${registerSecret(token)}`)
    expect(answer.text).toContain('no longer valid')
  })

  it('refuses a link after thirty minutes, and deletes it', async () => {
    const path = await openLink('late@example.com')
    pages.clock.advance(29 * 60_000)
    expect((await pages.browser().get(path)).status).toBe(200)
    pages.clock.advance(60_000)
    expect((await pages.browser().get(path)).text).toContain('no longer valid')
  })

  it('sends an address at most five mails in an hour', async () => {
    for (let count = 0; count < 7; count++)
      expect((await signUp('flood@example.com')).status).toBe(200)
    await quiet()
    expect(smtp.to('flood@example.com')).toHaveLength(5)
  })

  it('rejects a form from elsewhere', async () => {
    const browser = pages.browser()
    const { fields } = await browser.get('/sign-up')
    const form = { ...fields, email: 'ada@example.com' }
    expect((await browser.post('/sign-up', form, 'https://evil.example')).status).toBe(403)
    expect((await pages.browser().post('/sign-up', form)).status).toBe(403)
    expect((await pages.browser().post('/sign-up/complete', form)).status).toBe(403)
  })
})

describe('sign-up by invitation', () => {
  beforeAll(() => start({ SIGN_UP: 'invitation' }))
  afterAll(stop)

  it('mails a link to invited addresses only, until the invitation is withdrawn', async () => {
    expect((await pages.browser().get('/sign-up')).text).toContain('who were invited to an app')
    const app = await pages.newApp()
    const by = manage(pages, { session: (await logInTo(pages, app, 'owner')).token })
    const email = 'guest@example.com'
    const invited = { clientId: app.clientId, email, role: 'viewer' }
    const { invitation } = await by.upsertMember(invited)
    await signUp('stranger@example.com')
    await signUp(email)
    await until(async () => smtp.to(email).length === 2)
    await quiet()
    expect(smtp.to('stranger@example.com')).toEqual([])
    const path = /\/sign-up\?token=[\w-]{43}/.exec((await mailTo(email)).text)?.[0] ?? ''
    registerSecret(path.slice(-43))
    expect((await pages.browser().get(path)).status).toBe(200)
    await by.withdrawInvitation({ clientId: app.clientId, invitationId: invitation?.id ?? '' })
    expect((await pages.browser().get(path)).text).toContain('no longer valid')
  })
})
