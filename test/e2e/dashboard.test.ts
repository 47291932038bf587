import axe from 'axe-core'
import { type Browser, type BrowserContext, type Page, chromium } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { findServiceToken } from '../../deploy/all-in-one/data-dir.ts'
import { basic, connectCore } from '../../deploy/cli/client.ts'
import { type TestService, startTestService } from '../support/deployment/service.ts'
import { registerSecret } from '../support/run/secrecy.ts'
import { signedTicket } from '../support/usage/signed-ticket.ts'

/** The dashboard in a real browser, on a real service. CI has Chromium, and fails if this is skipped. */
const executablePath = process.env['TEST_CHROMIUM'] ?? ''
const flags = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]
const hostile = '<img src=x onerror=alert(1)><b>"\'&'
const viewerEmail = 'viewer@example.com'
const viewerPassword = registerSecret('a viewer with a long password')
const waitMs = 10_000
const views = ['', '/invoices', '/team', '/audit'] as const

let running: TestService
let browser: Browser
/** What pages reported that must not be: errors of scripts, refusals of the policy, dialogs. */
let complaints: string[] = []
const contexts: BrowserContext[] = []

describe.runIf(executablePath)('the dashboard', () => {
  beforeAll(async () => {
    running = await startTestService()
    browser = await chromium.launch({ executablePath, args: flags })
    const core = connectCore({
      target: quickstart().coreTarget,
      token: (await findServiceToken(running.service.dataDir)) ?? '',
    })
    try {
      const viewer = { email: viewerEmail, name: '', password: viewerPassword }
      await core.accounts.createAccount({ ...viewer, isPlatformAdmin: false })
      const invited = { clientId: clientId(), email: viewerEmail, role: 'viewer' }
      await core.management.upsertMember(invited)
    } finally {
      core.close()
    }
  })
  afterAll(async () => {
    await browser?.close()
    await running?.stop()
  })
  afterEach(async () => {
    await Promise.all(contexts.splice(0).map((context) => context.close()))
    const found = complaints
    complaints = []
    if (found.length > 0) throw new Error(`the browser complained: ${found.join('; ')}`)
  })

  it('sends a stranger to the login, and back to the view that was wanted', async () => {
    const page = await open(`/app/${clientId()}/team`)
    expect(new URL(page.url()).pathname).toBe('/login')
    await logIn(page)
    expect(new URL(page.url()).pathname).toBe(`/app/${clientId()}/team`)
    await page.getByRole('heading', { name: 'Team', level: 1 }).waitFor()
    await page.reload()
    await page.getByRole('heading', { name: 'Team', level: 1 }).waitFor()
  })

  it('leads from the apps to the figures of one, which are those of the API', async () => {
    await spend()
    const page = await owner()
    await expect.poll(async () => (await readBilling(page)).cycle.usage.requestCount).toBe(1)
    await page.getByRole('link', { name: 'Demo', exact: true }).click()
    await page.getByRole('heading', { name: 'Demo', level: 1 }).waitFor()
    const figure = (name: string) =>
      page.locator('dt', { hasText: name }).locator('xpath=../dd').innerText()
    expect(await figure('Tickets')).toBe('1')
    // 120,000 gwei at 3,000 USD for one ETH.
    expect(await figure('Network cost')).toMatch(/^\$0\.36\n/)
    const { cycle } = await readBilling(page)
    await page.getByText('As a table').click()
    const days = page.getByRole('region', { name: 'Table of days' }).getByRole('row')
    const used = cycle.timeline.filter(({ requestCount }) => requestCount > 0)
    expect(await days.count()).toBe(used.length + 1)
  })

  it('invites, and asks before it withdraws an invitation', async () => {
    const page = await owner(`/${clientId()}/team`)
    await page.getByLabel('E-mail address').fill('new@example.com')
    await page.getByRole('combobox', { name: 'Role', exact: true }).selectOption('admin')
    await page.getByRole('button', { name: 'Invite' }).click()
    const row = page.getByRole('row', { name: /new@example\.com/ })
    expect(await row.innerText()).toContain('admin')
    const withdraw = row.getByRole('button', { name: 'Withdraw the invitation of' })
    await withdraw.click()
    await page.getByRole('button', { name: 'Cancel' }).click()
    expect(await row.count()).toBe(1)
    await withdraw.click()
    await page.getByRole('dialog').getByRole('button', { name: 'Withdraw' }).click()
    await row.waitFor({ state: 'detached' })
  })

  it('lets an invited person accept; a viewer sees nothing to change, and is refused', async () => {
    const page = await open('/')
    await page.getByRole('link', { name: 'Dashboard' }).click()
    await logIn(page, viewerEmail, viewerPassword)
    await page.getByText('You are not a member of any app.').waitFor()
    await page.getByRole('button', { name: 'Accept' }).click()
    await page.getByRole('link', { name: 'Demo', exact: true }).click()
    await page.getByRole('link', { name: 'Team' }).click()
    const members = page.getByRole('region', { name: 'Table of members' })
    await members.getByText(viewerEmail).waitFor()
    expect(await page.getByRole('button', { name: /Invite|Remove|Withdraw/ }).count()).toBe(0)
    expect(await page.getByRole('combobox').count()).toBe(0)
    expect(await page.getByRole('link', { name: 'Audit log' }).count()).toBe(0)
    const path = `/api/v1/apps/${clientId()}/admins`
    expect(await put(page, path, { email: 'x@example.com', role: 'viewer' })).toBe(403)
    complaints = complaints.filter((line) => !line.includes('403'))
  })

  it('changes a role only after the effect was confirmed, and only in the list', async () => {
    const page = await owner(`/${clientId()}/team`)
    const role = page.getByRole('combobox', { name: `Role of ${viewerEmail}` })
    await role.selectOption('admin')
    await page.getByText('can read and change everything here').waitFor()
    await page.keyboard.press('Escape')
    expect(await role.inputValue()).toBe('viewer')
    await page.reload()
    expect(await role.inputValue()).toBe('viewer')
    await role.selectOption('admin')
    await page.getByRole('button', { name: 'Change the role' }).click()
    await expect.poll(() => role.inputValue()).toBe('admin')
    await page.reload()
    expect(await role.inputValue()).toBe('admin')
    await page.getByLabel('E-mail address').fill(viewerEmail.toUpperCase())
    await page.getByText('is a member already').waitFor()
    expect(await page.getByRole('button', { name: 'Invite' }).isDisabled()).toBe(true)
  })

  it('keeps the filter of the audit log in the address', async () => {
    const page = await owner(`/${clientId()}/audit`)
    await page.getByRole('row', { name: /app_created/ }).waitFor()
    await page.getByLabel('Action').fill('app_created')
    await page.getByRole('button', { name: 'Show', exact: true }).click()
    await page.waitForURL(/action=app_created/)
    const rows = page.getByRole('region', { name: 'Table of entries' }).getByRole('row')
    await expect.poll(() => rows.count()).toBe(2)
    await page.reload()
    await expect.poll(() => rows.count()).toBe(2)
    await page.getByLabel('Action').fill('nothing_of_the_kind')
    await page.getByRole('button', { name: 'Show', exact: true }).click()
    await page.getByText('Nobody did “nothing_of_the_kind”.').waitFor()
    await page.goBack()
    await expect.poll(() => rows.count()).toBe(2)
    await page.getByRole('button', { name: 'Show all' }).click()
    await expect.poll(() => rows.count()).toBeGreaterThan(2)
  })

  it('shows texts of tenants as text', async () => {
    await rename(hostile)
    const page = await owner()
    await page.getByRole('link', { name: hostile }).click()
    await page.getByRole('heading', { name: hostile, level: 1 }).waitFor()
    expect(await page.title()).toBe(`${hostile} · tollgate`)
    expect(await page.locator('img, main b').count()).toBe(0)
    await rename('Demo')
  })

  it('loads scripts, styles and data of this service only', async () => {
    const page = await owner()
    const response = await page.goto(`${quickstart().platformUrl}/app`)
    const policy = (await response?.headerValue('content-security-policy')) ?? ''
    expect(policy).toContain("default-src 'none'")
    expect(policy).not.toMatch(/unsafe|https?:|\*/)
    const script = page.waitForResponse(/\/app\/assets\/.*\.js$/)
    await page.reload()
    const loaded = await script
    expect(await loaded.headerValue('content-encoding')).toBe('br')
    expect(Number(await loaded.headerValue('content-length'))).toBeLessThan(250_000)
    expect(await loaded.headerValue('cache-control')).toContain('immutable')
  })

  it('says that the session has ended, and leads to the login', async () => {
    const page = await owner()
    await page.context().clearCookies()
    await page.getByRole('link', { name: 'Demo', exact: true }).click()
    await page.getByRole('link', { name: 'Log in again' }).first().click()
    await page.waitForURL(/\/login\?return_to=/)
    expect(new URL(page.url()).searchParams.get('return_to')).toBe(`/app/${clientId()}`)
    complaints = complaints.filter((line) => !/40[14]/.test(line))
  })

  it('says that the service cannot be reached, and tries again on demand', async () => {
    const page = await owner()
    await page.route('**/billing/invoices*', (route) => route.abort())
    await page.getByRole('link', { name: 'Demo', exact: true }).click()
    await page.getByRole('link', { name: 'Invoices' }).click()
    await page.getByText('The service cannot be reached.').waitFor()
    await page.unroute('**/billing/invoices*')
    await page.getByRole('button', { name: 'Try again' }).click()
    await page.getByText('No invoice was issued yet.').waitFor()
    expect(await page.getByRole('alert').count()).toBe(0)
    complaints = complaints.filter((line) => !line.includes('ERR_FAILED'))
  })

  it('is accessible in every view, in both themes', { timeout: 60_000 }, async () => {
    const page = await owner('', { viewport: { width: 1280, height: 900 } })
    for (const view of ['', ...views.map((path) => `/${clientId()}${path}`)]) {
      await show(page, view)
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme })
        const found = await violations(page)
        expect({ view, colorScheme, found }).toEqual({ view, colorScheme, found: [] })
      }
    }
  })

  it('fits a phone in every view', async () => {
    const page = await owner('', { viewport: { width: 360, height: 800 } })
    for (const view of ['', ...views.map((path) => `/${clientId()}${path}`)]) {
      await show(page, view)
      const width = await page.evaluate('document.documentElement.scrollWidth')
      expect({ view, width }).toEqual({ view, width: 360 })
    }
  })

  it('keeps the theme that was chosen', async () => {
    const page = await owner('', { colorScheme: 'light' })
    const background = () =>
      page.evaluate('getComputedStyle(document.documentElement).backgroundColor')
    const light = await background()
    const button = page.getByRole('button', { name: /^Theme/ })
    await button.click()
    expect([await button.innerText(), await background()]).toEqual(['Theme: Light', light])
    await button.click()
    const dark = await background()
    expect(dark).not.toBe(light)
    await page.reload()
    expect([await button.innerText(), await background()]).toEqual(['Theme: Dark', dark])
    await button.click()
    expect([await button.innerText(), await background()]).toEqual(['Theme: System', light])
    await page.emulateMedia({ colorScheme: 'dark' })
    expect(await background()).toBe(dark)
  })

  it('draws the chart in the colours of the theme', async () => {
    const page = await owner(`/${clientId()}`, { colorScheme: 'light' })
    // The accent colours of both themes.
    const hasPixels = (color: string) =>
      page.evaluate(`(() => {
        const canvas = document.querySelector('.chart canvas')
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
        for (let i = 0; i < data.length; i += 4)
          if (\`\${data[i]},\${data[i + 1]},\${data[i + 2]}\` === '${color}') return true
        return false
      })()`)
    await page.locator('.chart canvas').waitFor()
    await expect.poll(() => hasPixels('31,111,235')).toBe(true)
    await page.emulateMedia({ colorScheme: 'dark' })
    await expect.poll(() => hasPixels('110,168,255')).toBe(true)
    expect(await hasPixels('31,111,235')).toBe(false)
  })
})

interface Billing {
  readonly cycle: {
    readonly usage: { readonly requestCount: number }
    readonly timeline: readonly { readonly requestCount: number }[]
  }
}

const quickstart = () => running.service.quickstart
const clientId = (): string => quickstart().clientId

type ContextOptions = Parameters<Browser['newContext']>[0]

/** Opens a page in a browser of its own, whose complaints are collected. */
async function open(path: string, options: ContextOptions = {}): Promise<Page> {
  const context = await browser.newContext(options)
  contexts.push(context)
  const page = await context.newPage()
  page.setDefaultTimeout(waitMs)
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  page.on('pageerror', ({ message }) => complaints.push(message))
  page.on('dialog', (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`)
    void dialog.dismiss()
  })
  await page.goto(quickstart().platformUrl + path)
  return page
}

async function logIn(
  page: Page,
  email: string = quickstart().ownerEmail ?? '',
  password: string = quickstart().ownerPassword ?? '',
): Promise<void> {
  await page.getByLabel('E-mail address').fill(email)
  await page.getByLabel('Password').fill(password)
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.locator('main h1').waitFor()
}

/** Opens a view as the owner. */
async function owner(view = '', options: ContextOptions = {}): Promise<Page> {
  const page = await open(`/app${view}`, options)
  await logIn(page)
  return page
}

/** Opens a view and waits until it has all its data. */
async function show(page: Page, view: string): Promise<void> {
  await page.goto(`${quickstart().platformUrl}/app${view}`)
  await page.locator('main h1').waitFor()
  await expect.poll(() => page.getByRole('status', { name: 'Loading' }).count()).toBe(0)
}

/** Returns what the API answers to the page's session. */
const readBilling = (page: Page): Promise<Billing> =>
  page.evaluate(`fetch('/api/v1/apps/${clientId()}/billing').then((answer) => answer.json())`)

/** Sends a change with the page's session and its token, as a program could. Returns the status. */
const put = (page: Page, path: string, body: unknown): Promise<number> =>
  page.evaluate(`(async () => {
    const { csrfToken } = await (await fetch('/api/v1/session')).json()
    const headers = { 'content-type': 'application/json', 'x-csrf-token': csrfToken }
    const body = ${JSON.stringify(JSON.stringify(body))}
    return (await fetch(${JSON.stringify(path)}, { method: 'PUT', headers, body })).status
  })()`)

/** Returns what axe finds on the page. */
async function violations(page: Page): Promise<string[]> {
  // The page's policy refuses new script elements, so it runs as a program of the browser.
  await page.evaluate(axe.source)
  const { violations }: AxeResult = await page.evaluate('axe.run()')
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html }) => `${id}: ${html.slice(0, 120)}`),
  )
}

interface AxeResult {
  readonly violations: readonly {
    readonly id: string
    readonly nodes: readonly { readonly html: string }[]
  }[]
}

/** Books one ticket of a user of the app. */
async function spend(): Promise<void> {
  const { platformUrl, sidecarUrl, webhookSecret, m2mClientId, m2mClientSecret } = quickstart()
  const json = { 'content-type': 'application/json' }
  const created = await fetch(`${platformUrl}/api/v1/apps/${clientId()}/users`, {
    method: 'POST',
    headers: { ...json, authorization: basic(m2mClientId, m2mClientSecret) },
    body: JSON.stringify({ externalUserId: 'ada' }),
  })
  expect(created.status).toBeLessThan(300)
  const pushed = await fetch(`${sidecarUrl}/events`, {
    method: 'POST',
    headers: { ...json, 'x-webhook-secret': webhookSecret },
    body: JSON.stringify(
      signedTicket({ authId: `${clientId()}:ada`, computed_fee: '120000000000000' }),
    ),
  })
  expect(pushed.status).toBe(202)
}

async function rename(name: string): Promise<void> {
  const page = await owner()
  expect(await put(page, `/api/v1/apps/${clientId()}`, { name })).toBe(200)
}
