import { randomUUID } from 'node:crypto'
import { type Browser as Chromium, type Page, chromium } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { usdCents } from '../../../core/billing/processor/port.ts'
import { createSimulatedProcessor } from '../../../core/billing/processor/simulated/simulated.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { type CoreClient, connectCore } from '../../../deploy/cli/client.ts'
import { issueOne, threeDollars, userOf } from '../../core/billing/invoices/world.ts'
import { envelope } from '../../core/metering/harness.ts'
import { serviceToken } from '../../core/support.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { eventually } from '../../support/waiting.ts'
import { executablePath, violations } from '../../support/web/dashboard.ts'
import { type Real, type RealApp, newSellingApp, password, startReal } from '../real.ts'
import { asRecord } from '../support.ts'
import { type Browser, type Seen, challenge, createBrowser, publicUrl } from './support.ts'

/** Every page that the gateway renders, in a browser: readable for everybody, and on a phone. */

const phone = 360
const long = 'averyveryverylongname.of.somebody.without.a.blank'
const email = `${long}@department.of.a.university.example`
const redirect = 'https://app.example/cb'

let real: Real
let operator: CoreClient
let chrome: Chromium
let shop: RealApp
let owner: Browser
let invited: Browser
const stranger = (): Browser => createBrowser(real.url)

beforeAll(async () => {
  if (executablePath === '') return
  const loginProvider = {
    issuer: 'http://127.0.0.1:9',
    clientId: 'us',
    clientSecret: () => registerSecret('a secret of the provider'),
    name: 'Example SSO',
  }
  real = await startReal(
    { PAYMENT_PROCESSOR: 'simulated', SIGN_UP: 'address' },
    {},
    { loginProvider },
  )
  operator = connectCore({ target: real.core.core.target, token: serviceToken, tls: undefined })
  chrome = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] })
  shop = await newSellingApp({ real, operator }, 'Shop')
  await real.core.sql.query(
    `update apps set name = $1, color = '#ffcc00', login_policy = 'anyone'
     from clients c where c.app_id = apps.id and c.client_id = $2`,
    [long, shop.clientId],
  )
  await real.core.sql.query('update clients set redirect_uris = $1 where client_id = $2', [
    [redirect],
    shop.clientId,
  ])
  await operator.accounts.createAccount({ email, password, name: '', isPlatformAdmin: false })
  await operator.management.upsertMember({ clientId: shop.clientId, email, role: 'admin' })
  owner = stranger()
  await owner.logIn('Shop@example.com', password)
  invited = stranger()
  await invited.logIn(email, password)
})
afterAll(async () => {
  await chrome?.close()
  operator?.close()
  await real?.stop()
})

const authorizePath = (): string => {
  const query = new URLSearchParams({
    client_id: shop.clientId,
    redirect_uri: redirect,
    response_type: 'code',
    scope: 'openid sign:job',
    code_challenge: challenge,
    code_challenge_method: 'S256',
  })
  return `/api/v1/oidc/auth?${query.toString()}`
}

/** Opens where the answer redirects to. */
const follow = (browser: Browser, { location }: Seen): Promise<Seen> =>
  browser.get(`${location?.pathname ?? ''}${location?.search ?? ''}`)

async function enterDeviceCode(): Promise<Seen> {
  const started = await fetch(`${real.url}/api/v1/oidc/device/auth`, {
    method: 'POST',
    body: new URLSearchParams({ client_id: shop.clientId }),
  })
  const { user_code } = asRecord(await started.json())
  const { fields } = await invited.get('/oidc/device')
  return invited.post('/oidc/device', { ...fields, user_code: String(user_code) })
}

async function enterWrongCode(): Promise<Seen> {
  const { fields } = await invited.get('/oidc/device')
  return invited.post('/oidc/device', { ...fields, user_code: 'WRONG-CODE' })
}

async function openReset(): Promise<Seen> {
  const { token } = await operator.accounts.startPasswordReset({ email })
  return stranger().get(`/reset-password?token=${token}`)
}

async function forgetPassword(): Promise<Seen> {
  const browser = stranger()
  const { fields } = await browser.get('/forgot-password')
  return browser.post('/forgot-password', { ...fields, email })
}

/** Opens the link of a mail, which a platform admin passes on. */
async function openSignUp(): Promise<Seen> {
  const browser = stranger()
  const { fields } = await browser.get('/sign-up')
  await browser.post('/sign-up', { ...fields, email: 'newcomer@example.com' })
  const admin = await logInAsAdmin('postmaster')
  const find = async () =>
    /\/sign-up\?token=[\w-]{43}/.exec((await admin.get('/mail')).text)?.[0] ?? ''
  const path = await eventually(find, Boolean)
  registerSecret(path.slice(-43))
  return browser.get(path)
}

const openMails = async (): Promise<Seen> => (await logInAsAdmin('admin')).get('/mail')

async function logInAsAdmin(name: string): Promise<Browser> {
  const address = `${name}@example.com`
  const account = { email: address, password, name: '', isPlatformAdmin: true }
  await operator.accounts.createAccount(account)
  const browser = stranger()
  await browser.logIn(address, password)
  return browser
}

async function openOnboarding(): Promise<Seen> {
  const path = `/apps/${shop.clientId}/billing`
  const { fields } = await owner.get(path)
  return follow(owner, await owner.post(`${path}/connect`, fields))
}

async function openCheckout(mode: 'payment' | 'card', card?: string): Promise<Seen> {
  const { sql, clock } = real.core
  const receive = async () => {}
  const { processor } = createSimulatedProcessor({
    pool: sql,
    now: clock.now,
    log: silentLog(),
    publicUrl,
    receive,
  })
  const at = { plane: 'live', account: null } as const
  const payer = { reference: 'user-1', description: 'ada' }
  const { id: customer } = await processor.createCustomer(at, payer, 'customer')
  const { url } = await processor.openCheckout(
    at,
    {
      customer,
      mode,
      amount: mode === 'payment' ? usdCents(105n) : null,
      fee: usdCents(0n),
      description: 'Top-up of your balance',
      successUrl: 'https://shop.example/paid',
      cancelUrl: 'https://shop.example/left',
      reference: randomUUID(),
    },
    randomUUID(),
  )
  const [browser, { pathname }] = [stranger(), new URL(url)]
  const shown = await browser.get(pathname)
  if (card === undefined) return shown
  const answer = await browser.post(pathname, { ...shown.fields, card })
  return answer.status === 303 ? browser.get(pathname) : answer
}

/** Issues an invoice for nine dollars of tickets, of which Starter includes five. */
async function openInvoice(): Promise<Seen> {
  const { sql, clock } = real.core
  const tickets = ['session-1', 'session-2', 'session-3'].map((session) =>
    envelope(
      {
        auth_id: `${shop.clientId}:grace`,
        computed_fee: threeDollars,
        current_time: clock.now().toISOString(),
        sequence_number: 0,
        session_id: session,
      },
      { id: randomUUID() },
    ),
  )
  await real.core.as().ingestEvents({ envelopes: tickets })
  const rows = async (text: string, values: readonly unknown[] = []) =>
    (await sql.query(text, [...values])).rows as Record<string, string | null>[]
  const world = { sql, clock, rows }
  const invoice = await issueOne(world, await userOf(world, shop.clientId, 'grace'))
  return owner.get(`/apps/${shop.clientId}/billing/invoices/${invoice?.id}`)
}

/** Books a ticket of the month before, whose statement has ended. */
async function openStatement(): Promise<Seen> {
  const present = real.core.clock.now()
  const last = new Date(Date.UTC(present.getUTCFullYear(), present.getUTCMonth(), 0)).toISOString()
  const ticket = { auth_id: `${shop.clientId}:grace`, computed_fee: threeDollars }
  await real.core.as().ingestEvents({
    envelopes: [
      envelope({ ...ticket, current_time: last, sequence_number: 0, session_id: 'session-0' }),
    ],
  })
  return owner.get(`/apps/${shop.clientId}/billing/statements/${last.slice(0, 7)}`)
}

/** A text on each page, by which the test knows that it is the right one, and how it is reached. */
const pages: readonly (readonly [text: string, open: () => Promise<Seen>])[] = [
  ['Identity, metering and billing', () => stranger().get('/')],
  ['Continue with Example SSO', () => stranger().get('/login')],
  ['is wrong', () => stranger().logIn('nobody@example.com', 'a wrong long password')],
  [`to continue to ${long}`, async () => follow(stranger(), await stranger().get(authorizePath()))],
  ['waits for your answer', () => invited.get('/login')],
  [`Join ${long}`, () => invited.get('/invitations')],
  ['to act for you?', () => invited.get(authorizePath())],
  ['the code that your device shows', () => invited.get('/oidc/device')],
  ['This code is wrong', enterWrongCode],
  ['This is not mine', enterDeviceCode],
  ['Set a new password', openReset],
  ['Open the whole link', () => stranger().get('/reset-password')],
  ['A mail with a link follows', () => stranger().get('/forgot-password')],
  ['This trial service sends no mail', forgetPassword],
  ['Create an account', () => stranger().get('/sign-up')],
  ['for newcomer@example.com', openSignUp],
  ['Follow its link', openMails],
  ['Log out?', () => invited.get('/api/v1/oidc/session/end')],
  ['by kind of problem', () => stranger().get('/errors')],
  ['No code matches', () => stranger().get('/errors?q=nothing+of+the+kind')],
  ['HTTP status', () => stranger().get('/errors/token_invalid')],
  ['The request failed', () => stranger().get('/pay/cs_sim_none')],
  ['Connect a payment account', () => owner.get(`/apps/${shop.clientId}/billing`)],
  ['Complete your payment account', openOnboarding],
  ['Leave without paying', () => openCheckout('payment')],
  ['The card was declined', () => openCheckout('payment', 'declined')],
  ['Confirm with your bank', () => openCheckout('card', 'confirmation')],
  ['There is nothing more to do', () => openCheckout('payment', 'works')],
  ['Nothing was paid', () => stranger().get('/pay/canceled')],
  ['No tax is computed', openInvoice],
  ['days without tickets are left out', openStatement],
]

describe.runIf(executablePath)('pages', () => {
  it('are accessible in both themes, and fit a phone', { timeout: 180_000 }, async () => {
    const page = await chrome.newPage({ viewport: { width: phone, height: 800 } })
    for (const [text, open] of pages) {
      const seen = await open()
      expect(seen.text).toContain(text)
      await page.setContent(seen.text)
      const width = await page.evaluate('document.documentElement.scrollWidth')
      const found = { light: await findIn(page, 'light'), dark: await findIn(page, 'dark') }
      expect({ text, width, found }).toEqual({
        text,
        width: phone,
        found: { light: [], dark: [] },
      })
    }
    await page.close()
  })

  it('have the theme that was chosen in the dashboard', async () => {
    const browser = stranger()
    expect((await browser.get('/login')).text).toContain('<html lang="en">')
    for (const theme of ['dark', 'light']) {
      browser.jar.set('tollgate_theme', theme)
      expect((await browser.get('/login')).text).toContain(`<html lang="en" data-theme="${theme}">`)
    }
    browser.jar.set('tollgate_theme', 'system"><b>')
    expect((await browser.get('/login')).text).toContain('<html lang="en">')
  })

  it('show the colours of the dashboard, and the colour of an app on its pages', async () => {
    const page = await chrome.newPage({ colorScheme: 'light' })
    const buttonColor = async (text: string): Promise<unknown> => {
      await page.setContent(text)
      return page.evaluate("getComputedStyle(document.querySelector('button')).backgroundColor")
    }
    expect(await buttonColor((await stranger().get('/login')).text)).toBe('rgb(26, 95, 208)')
    const login = await follow(stranger(), await stranger().get(authorizePath()))
    expect(await buttonColor(login.text)).toBe('rgb(255, 204, 0)')
    await page.close()
  })
})

async function findIn(page: Page, colorScheme: 'light' | 'dark'): Promise<string[]> {
  await page.emulateMedia({ colorScheme })
  return violations(page)
}
