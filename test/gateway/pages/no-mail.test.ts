import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventually } from '../../support/waiting.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type Pages, password, startPages } from './support.ts'

/** Waits up to a minute, because a busy machine delays the outbox. */
const until = (condition: () => Promise<boolean>) => eventually(condition, Boolean)

async function setUp(env: Readonly<Record<string, string>>) {
  const pages: Pages = await startPages(undefined, env)
  await pages.createAccount({ email: 'ada@example.com', password })
  await pages.createAccount({ email: 'admin@example.com', password, isPlatformAdmin: true })
  const browser = pages.browser()
  await browser.logIn('admin@example.com')
  return { pages, browser }
}

describe('without a mail server', () => {
  let pages: Pages
  let browser: ReturnType<Pages['browser']>
  beforeAll(async () => void ({ pages, browser } = await setUp({ SIGN_UP: 'address' })))
  afterAll(() => pages.stop())

  it('offers no new password by mail', async () => {
    const { text } = await pages.browser().get('/login')
    expect(text).toContain('The operator of this service can give you a link')
    expect(text).not.toContain('/forgot-password')
    const page = await pages.browser().get('/forgot-password')
    expect(page.status).toBe(404)
    expect(page.text).toContain('This service sends no mail')
    const { fields } = await browser.get('/login?return_to=/app')
    const answer = await browser.post('/forgot-password', { ...fields, email: 'ada@example.com' })
    expect(answer.status).toBe(404)
  })

  it('has no sign-up', async () => {
    expect((await pages.browser().get('/login')).text).not.toContain('/sign-up')
    const page = await pages.browser().get('/sign-up')
    expect([page.status, page.text.includes('Ask the operator')]).toEqual([404, true])
    const { fields } = await browser.get('/login?return_to=/app')
    const answer = await browser.post('/sign-up', { ...fields, email: 'ada@example.com' })
    expect(answer.status).toBe(404)
  })

  it('stores no mail', async () => {
    const { rows } = await pages.sql.query('select from mails')
    expect(rows).toEqual([])
    expect((await browser.get('/mail')).text).toContain('There are no mails yet')
  })
})

describe('all in one without a mail server', () => {
  let pages: Pages
  let browser: ReturnType<Pages['browser']>
  beforeAll(async () => void ({ pages, browser } = await setUp({ PAYMENT_PROCESSOR: 'simulated' })))
  afterAll(() => pages.stop())

  it('shows the mails and their links to a platform admin only', async () => {
    const visitor = pages.browser()
    const { fields } = await visitor.get('/forgot-password')
    const sent = await visitor.post('/forgot-password', { ...fields, email: 'ada@example.com' })
    expect(sent.text).toContain('A platform admin sees the mail')
    let text = ''
    await until(async () => {
      ;({ text } = await browser.get('/mail'))
      return text.includes('reset-password?token=')
    })
    const path = /href="https:\/\/svc\.example(\/reset-password\?token=[\w-]{43})"/.exec(text)?.[1]
    registerSecret(path?.slice(-43) ?? '')
    expect((await visitor.get(path ?? '/')).text).toContain('The same again')
    await visitor.logIn('ada@example.com')
    expect((await visitor.get('/mail')).status).toBe(403)
  })
})
