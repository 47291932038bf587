import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type SmtpDouble, type TakenMail, startSmtpServer } from '../../fakes/smtp.ts'
import { eventually } from '../../support/waiting.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { logInTo, manage } from '../../support/web/people.ts'
import { type Pages, password, publicUrl, startPages } from './support.ts'

/** Waits up to a minute, because a busy machine delays the outbox. */
const until = (condition: () => Promise<boolean>) => eventually(condition, Boolean)

let smtp: SmtpDouble
let pages: Pages
const newPassword = registerSecret('another long password')

beforeAll(async () => {
  const login = registerSecret('tollgate\0pass of the mail server')
  smtp = await startSmtpServer({ login })
  const [user, pass] = login.split('\0').map(encodeURIComponent)
  pages = await startPages(undefined, {
    SMTP_URL: `smtp://${user}:${pass}@127.0.0.1:${smtp.port}`,
    MAIL_FROM: 'Our service <mail@svc.example>',
  })
})
afterAll(async () => {
  await pages.stop()
  smtp.stop()
})

async function newAccount(name: string): Promise<string> {
  const email = `${name}@example.com`
  await pages.createAccount({ email, password, name })
  return email
}

async function forget(email: string) {
  const browser = pages.browser()
  const { fields } = await browser.get('/forgot-password')
  return browser.post('/forgot-password', { ...fields, email })
}

/** Waits for the address's mail with this subject. */
async function mailTo(email: string, subject: string): Promise<TakenMail> {
  const find = () => smtp.to(email).find(({ headers }) => headers['subject'] === subject)
  await until(async () => find() !== undefined)
  const mail = find()
  if (!mail) throw new Error(`no mail to ${email}`)
  return mail
}

const linkIn = ({ text }: TakenMail): string => /https:\S+/.exec(text)?.[0] ?? ''

/** Waits until every request and mail in the outbox is finished. */
const quiet = () =>
  until(async () => {
    const { rows } = await pages.sql.query('select from outbox')
    return rows.length === 0
  })

describe('forgotten password', () => {
  it('is on the login page', async () => {
    const { text } = await pages.browser().get('/login')
    expect(text).toContain('href="/forgot-password"')
  })

  it('is set anew by a link in a mail, which ends all logins', async () => {
    const email = await newAccount('ada')
    const before = pages.browser()
    await before.logIn(email)
    expect((await forget(email)).status).toBe(200)
    const mail = await mailTo(email, 'Set a new password')
    expect(mail.from).toBe('mail@svc.example')
    expect(mail.headers).toMatchObject({
      from: 'Our service <mail@svc.example>',
      to: email,
      'auto-submitted': 'auto-generated',
      'message-id': expect.stringMatching(/^<[0-9a-f-]{36}@svc\.example>$/),
    })
    const url = linkIn(mail)
    expect(url).toMatch(/^https:\/\/svc\.example\/reset-password\?token=[\w-]{43}$/)
    expect(mail.html).toContain(`href="${url}"`)
    registerSecret(url.slice(-43))
    const browser = pages.browser()
    const { fields } = await browser.get(url.slice(publicUrl.length))
    const form = { ...fields, password: newPassword, repeated: newPassword }
    expect((await browser.post('/reset-password', form)).text).toContain('Your password is set')
    expect((await before.get('/login')).text).not.toContain(email)
    expect((await browser.logIn(email)).status).toBe(401)
    expect((await browser.logIn(email, newPassword)).status).toBe(303)
    // The link works once.
    expect((await browser.get(url.slice(publicUrl.length))).text).toContain('no longer valid')
    await mailTo(email, 'Your password was changed')
    const { rows } = await pages.sql.query(
      `select actor from audit_log where action = 'account_password_reset_requested'`,
    )
    expect(rows).toEqual([{ actor: 'anonymous' }])
  })

  it('answers alike for known, unknown and malformed addresses', async () => {
    const email = await newAccount('grace')
    const answers = [
      await forget(email),
      await forget('nobody@example.com'),
      await forget('no address'),
    ]
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200])
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1)
    await mailTo(email, 'Set a new password')
    await quiet()
    expect(smtp.to('nobody@example.com')).toEqual([])
  })

  it('stores the token only as a hash, and sealed until the mail is sent', async () => {
    const email = await newAccount('alan')
    smtp.open(false)
    await forget(email)
    const stored = async () =>
      (
        await pages.sql.query<{ status: string; letter: Buffer | null }>(
          'select status, sealed_letter as letter from mails where email = $1',
          [email],
        )
      ).rows[0]
    await until(async () => (await stored())?.status === 'waiting')
    expect((await stored())?.letter?.includes('reset-password')).toBe(false)
    smtp.open(true)
    const token = registerSecret(linkIn(await mailTo(email, 'Set a new password')).slice(-43))
    await until(async () => (await stored())?.status === 'sent')
    expect(await stored()).toEqual({ status: 'sent', letter: null })
    const { rows } = await pages.sql.query(
      'select from password_resets where token_hash = sha256($1::bytea)',
      [token],
    )
    expect(rows).toHaveLength(1)
  })

  it('is refused after thirty minutes', async () => {
    const email = await newAccount('late')
    await forget(email)
    const path = linkIn(await mailTo(email, 'Set a new password')).slice(publicUrl.length)
    registerSecret(path.slice(-43))
    pages.clock.advance(29 * 60_000)
    expect((await pages.browser().get(path)).status).toBe(200)
    pages.clock.advance(60_000)
    const { text } = await pages.browser().get(path)
    expect(text).toContain('no longer valid')
  })

  it('is refused when the account has another address by then', async () => {
    const email = await newAccount('moved')
    await forget(email)
    const path = linkIn(await mailTo(email, 'Set a new password')).slice(publicUrl.length)
    registerSecret(path.slice(-43))
    expect((await pages.browser().get(path)).status).toBe(200)
    await pages.updateAccount({ email, newEmail: 'new@example.com' })
    expect((await pages.browser().get(path)).text).toContain('no longer valid')
  })

  it('sends an address at most five mails in an hour', async () => {
    const email = await newAccount('flood')
    for (let count = 0; count < 7; count++) expect((await forget(email)).status).toBe(200)
    await quiet()
    expect(smtp.to(email)).toHaveLength(5)
    pages.clock.advance(3_600_000)
    await forget(email)
    await until(async () => smtp.to(email).length === 6)
  })

  it('states that an account has no password', async () => {
    await pages.sql.query(
      "insert into accounts (id, email, created_at) values (gen_random_uuid(), 'sso@example.com', now())",
    )
    await forget('sso@example.com')
    const { text } = await mailTo('sso@example.com', 'Your account has no password')
    expect(text).not.toContain('token')
  })

  it('rejects a form from elsewhere', async () => {
    const browser = pages.browser()
    const { fields } = await browser.get('/forgot-password')
    const form = { ...fields, email: 'ada@example.com' }
    expect((await browser.post('/forgot-password', form, 'https://evil.example')).status).toBe(403)
    expect((await pages.browser().post('/forgot-password', form)).status).toBe(403)
  })
})

describe('login from a new browser', () => {
  it('is mailed, unlike the next login from there', async () => {
    const email = await newAccount('linus')
    const browser = pages.browser()
    await browser.logIn(email)
    const { text } = await mailTo(email, 'Login from a new browser')
    expect(text).toContain('https://svc.example/forgot-password')
    await browser.logIn(email)
    await quiet()
    expect(smtp.to(email)).toHaveLength(1)
    await pages.browser().logIn(email)
    await until(async () => smtp.to(email).length === 2)
  })

  it('is not mailed after a wrong password', async () => {
    const email = await newAccount('eve')
    expect((await pages.browser().logIn(email, 'not the right password')).status).toBe(401)
    await quiet()
    expect(smtp.to(email)).toEqual([])
  })
})

describe('invitation', () => {
  it('is mailed, with or without an account', async () => {
    const app = await pages.newApp()
    const by = manage(pages, { session: (await logInTo(pages, app, 'owner')).token })
    await by.updateApp({ clientId: app.clientId, name: 'Film & "Co" <b>' })
    const email = await newAccount('invited')
    for (const to of [email, 'stranger@example.com']) {
      await by.upsertMember({ clientId: app.clientId, email: to, role: 'admin' })
      const mail = await mailTo(to, 'Invitation to Film & "Co" <b>')
      expect(mail.text).toContain('invites you to the app "Film & "Co" <b>" as admin.')
      expect(mail.text).toContain('https://svc.example/invitations')
      expect(mail.html).toContain('Film &amp; &quot;Co&quot; &lt;b&gt;')
    }
  })
})

describe('invitations of an app', () => {
  it('are mailed at most fifty times a day, also after they were withdrawn', async () => {
    const app = await pages.newApp()
    const by = manage(pages, { session: (await logInTo(pages, app, 'owner')).token })
    const { clientId } = app
    await pages.sql.query(
      `insert into audit_log (app_id, id, actor, action, status, details, created_at)
       select app_id, gen_random_uuid(), 'ada', 'member_invited', 'success', '{}', $2
       from clients, generate_series(1, 49) where client_id = $1`,
      [clientId, pages.clock.now()],
    )
    await by.upsertMember({ clientId, email: 'fiftieth@example.com', role: 'admin' })
    await by.upsertMember({ clientId, email: 'next@example.com', role: 'admin' })
    await quiet()
    expect(smtp.to('fiftieth@example.com')).toHaveLength(1)
    expect(smtp.to('next@example.com')).toEqual([])
  })
})

describe('page of mails', () => {
  it('shows a platform admin what was sent, without its text', async () => {
    const email = 'admin@example.com'
    await pages.createAccount({ email, password, isPlatformAdmin: true })
    const browser = pages.browser()
    await browser.logIn(email)
    await mailTo(email, 'Login from a new browser')
    await quiet()
    const { status, text } = await browser.get('/mail')
    expect(status).toBe(200)
    expect(text).toContain(`to ${email}`)
    expect(text).not.toMatch(/token=|<pre>/)
  })

  it('refuses others', async () => {
    const email = await newAccount('curious')
    const browser = pages.browser()
    expect((await browser.get('/mail')).location?.pathname).toBe('/login')
    await browser.logIn(email)
    expect((await browser.get('/mail')).status).toBe(403)
  })
})
