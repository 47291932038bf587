import axe from 'axe-core'
import { Client } from 'pg'
import { type Browser, type BrowserContext, type Page, chromium } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect } from 'vitest'
import { findServiceToken } from '../../../deploy/local/data-dir.ts'
import { basic, connectCore } from '../../../deploy/cli/client.ts'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import { type TestService, startTestService } from '../deployment/service.ts'
import { registerSecret } from '../run/secrecy.ts'
import { signedTicket } from '../usage/signed-ticket.ts'

/** The browser's program. CI has Chromium, and fails if its tests are skipped. */
export const executablePath = process.env['TEST_CHROMIUM'] ?? ''
const flags = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]
const waitMs = 10_000

export const viewer = {
  email: 'viewer@example.com',
  password: registerSecret('a viewer with a long password'),
}

type ContextOptions = Parameters<Browser['newContext']>[0]

/**
 * Starts a service, with further settings if given, and a browser for the tests of a `describe`. A test fails if a page reports what
 * it must not: errors of scripts, refusals of the policy, dialogs.
 */
export function setUpDashboard(settings: Readonly<Record<string, string>> = {}) {
  let running: TestService
  let browser: Browser
  let complaints: { readonly text: string; readonly at: string }[] = []
  const forgiven: { readonly text: RegExp; readonly at: RegExp }[] = []
  const contexts: BrowserContext[] = []
  const quickstart = () => running.service.quickstart
  const clientId = (): string => quickstart().clientId

  beforeAll(async () => {
    running = await startTestService(settings)
    browser = await chromium.launch({ executablePath, args: flags })
  })
  afterAll(async () => {
    await browser?.close()
    await running?.stop()
  })
  afterEach(async () => {
    await Promise.all(contexts.splice(0).map((context) => context.close()))
    const patterns = forgiven.splice(0)
    const found = complaints.filter(
      ({ text, at }) => !patterns.some((each) => each.text.test(text) && each.at.test(at)),
    )
    complaints = []
    if (found.length === 0) return
    const lines = found.map(({ text, at }) => `${text} (${at})`)
    throw new Error(`the browser complained: ${lines.join('; ')}`)
  })

  /** The cookies of the owner's session, which later browsers of the file begin with. */
  let session: Awaited<ReturnType<BrowserContext['cookies']>> = []

  /** Opens a page in a browser of its own, whose complaints are collected. `cookies` are its first. */
  async function open(
    path: string,
    options: ContextOptions = {},
    cookies: typeof session = [],
  ): Promise<Page> {
    const context = await browser.newContext(options)
    contexts.push(context)
    if (cookies.length > 0) await context.addCookies(cookies)
    const page = await context.newPage()
    page.setDefaultTimeout(waitMs)
    page.on('console', (message) => {
      if (message.type() === 'error')
        complaints.push({ text: message.text(), at: message.location().url })
    })
    page.on('pageerror', ({ message }) => complaints.push({ text: message, at: page.url() }))
    page.on('dialog', (dialog) => {
      complaints.push({ text: `dialog: ${dialog.message()}`, at: page.url() })
      void dialog.dismiss()
    })
    await page.goto(quickstart().platformUrl + path)
    return page
  }

  /** Opens a view as the app's owner, and logs in unless an earlier session goes on. */
  async function openAsOwner(path: string, options: ContextOptions): Promise<Page> {
    const page = await open(path, options, session)
    if (new URL(page.url()).pathname === '/login') {
      await logIn(page)
      session = await page.context().cookies()
    }
    await page.locator('main h1').waitFor()
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
    await page.waitForURL(({ pathname }) => pathname !== '/login')
    await page.locator('main h1').waitFor()
  }

  return {
    quickstart,
    clientId,
    open,
    logIn,
    /** Opens a view as the app's owner, who is also a platform admin. */
    owner: (view = '', options: ContextOptions = {}): Promise<Page> =>
      openAsOwner(`/app${view}`, options),
    /** Opens a view and waits until it has all its data. */
    show: async (page: Page, view: string): Promise<void> => {
      await page.goto(`${quickstart().platformUrl}/app${view}`)
      await page.locator('main h1').waitFor()
      await awaitData(page)
    },
    /** Goes to a view as a link does, without loading the page, and waits until it has its data. */
    go: async (page: Page, view: string): Promise<void> => {
      const { pathname } = new URL(page.url())
      // Another search alone would keep the title, and with it what the view showed before.
      if (new URL(`/app${view}`, page.url()).pathname === pathname) await push(page, '/logged-in')
      await push(page, view)
      await awaitData(page)
    },
    /**
     * Forgives what pages of this test have reported, and report until its end, if text and address
     * match.
     */
    forgive: (text: RegExp, at = /^/): void => {
      forgiven.push({ text, at })
    },
    /** Creates the viewer's account and invites it. */
    inviteViewer: () => invite(running, { ...viewer, role: 'viewer' }),
    /** Creates a person's account, and invites it to the app if it is to have a role. */
    invite: (person: NewPerson) => invite(running, person),
    /** Logs the viewer in to the app on a device, which makes it a user. Returns the refresh token. */
    useAsViewer: async (): Promise<string> => {
      const { issuer } = quickstart()
      const post = async (path: string, fields: Record<string, string>) => {
        const body = new URLSearchParams({ client_id: clientId(), ...fields })
        const answer = await fetch(issuer + path, { method: 'POST', body })
        const texts: Record<string, string> = JSON.parse(await answer.text())
        return texts
      }
      const started = await post('/device/auth', {})
      const page = await open(`/oidc/device?user_code=${started['user_code']}`)
      await logIn(page, viewer.email, viewer.password)
      await page.getByRole('button', { name: 'Continue' }).click()
      await page.getByRole('button', { name: 'Connect the device' }).click()
      await page.getByText('The device is connected').waitFor()
      const device_code = started['device_code'] ?? ''
      const tokens = await post('/token', { grant_type: GrantType.deviceCode, device_code })
      registerSecret(tokens['access_token'] ?? '')
      return registerSecret(tokens['refresh_token'] ?? '')
    },
    /** Exchanges a token of an existing user of the app for a signer session. Returns its credential. */
    openSignerSession: (externalUserId: string) => openSignerSession(quickstart(), externalUserId),
    /** Inserts users `row-0001` to `row-NNNN`, the oldest of the app, faster than the API creates them. */
    seedUsers: async (count: number): Promise<void> => {
      const database = new Client({ connectionString: running.env['DATABASE_URL'] })
      await database.connect()
      await database.query(
        `insert into end_users (app_id, id, external_user_id, status, created_at, updated_at)
         select app_id, gen_random_uuid(), 'row-' || lpad(n::text, greatest(4, length(n::text)), '0'), 'active',
                timestamptz '2020-01-01' + n * interval '1 ms', now()
         from clients, generate_series(1, $2::integer) n
         where client_id = $1`,
        [clientId(), count],
      )
      await database.end()
    },
    /** Sends one ticket of 0.36 USD of an existing user of any app. */
    pushTicket: (authId: string, ticket: SentTicket = {}) =>
      pushTicket(quickstart(), authId, ticket),
    /** Sends one ticket of 0.36 USD of a user of the app. */
    spend: (externalUserId = 'ada', ticket: SentTicket = {}) =>
      spend(quickstart(), externalUserId, ticket),
  }
}

type Core = ReturnType<typeof connectCore>

interface NewPerson {
  readonly email: string
  readonly password: string
  readonly name?: string
  readonly role?: string
  readonly isPlatformAdmin?: boolean
}

const invite = (
  running: TestService,
  { email, password, name = '', role, isPlatformAdmin = false }: NewPerson,
): Promise<void> =>
  withCore(running, async (core) => {
    await core.accounts.createAccount({ email, password, name, isPlatformAdmin })
    const { clientId } = running.service.quickstart
    if (role !== undefined) await core.management.upsertMember({ clientId, email, role })
  })

async function withCore(
  { service }: TestService,
  use: (core: Core) => Promise<void>,
): Promise<void> {
  const token = (await findServiceToken(service.dataDir)) ?? ''
  const core = connectCore({ target: service.quickstart.coreTarget, token })
  try {
    await use(core)
  } finally {
    core.close()
  }
}

/** Waits until the view has all its data. */
export async function awaitData(page: Page): Promise<void> {
  await expect.poll(() => page.getByRole('status', { name: 'Loading' }).count()).toBe(0)
}

/** Changes the address to that of another view, and waits for the title of that view. */
async function push(page: Page, view: string): Promise<void> {
  await page.evaluate(`(() => {
    document.querySelector('main h1').dataset.isBefore = 'true'
    history.pushState({}, '', ${JSON.stringify(`/app${view}`)})
  })()`)
  // All views of Operate share one refusal.
  const title = page.locator('main h1:not([data-is-before])')
  await title
    .or(page.getByRole('heading', { name: 'No permission' }))
    .first()
    .waitFor()
}

/** Types what the open dialog asks for, and runs its act, which is disabled before. */
export async function confirmTyped(page: Page, action: string): Promise<void> {
  const dialog = page.getByRole('dialog')
  const button = dialog.getByRole('button', { name: action, exact: true })
  expect(await button.isDisabled()).toBe(true)
  const label = await dialog.locator('label').innerText()
  const [, asked = ''] = /^Type (.+) to confirm/.exec(label) ?? []
  await dialog.getByRole('textbox').fill(asked)
  await button.click()
}

/** Sends a change with the page's session and its token, as a program could. Returns the status. */
export const send = (
  page: Page,
  { method, path, body }: { method: string; path: string; body: unknown },
): Promise<number> =>
  page.evaluate(`(async () => {
    const { csrfToken } = await (await fetch('/api/v1/session')).json()
    const headers = { 'content-type': 'application/json', 'x-csrf-token': csrfToken }
    const body = ${JSON.stringify(JSON.stringify(body))}
    const method = ${JSON.stringify(method)}
    return (await fetch(${JSON.stringify(path)}, { method, headers, body })).status
  })()`)

/**
 * Returns what axe finds on the page. In the dark theme it checks only the contrast: elements, names
 * and order are those of the light theme, which each test checks first.
 */
export async function violations(page: Page): Promise<string[]> {
  // The page's policy refuses new script elements, so it runs as a program of the browser.
  await page.evaluate(`window.axe === undefined && (() => { ${axe.source} })()`)
  const { violations }: AxeResult = await page.evaluate(`axe.run({
    resultTypes: ['violations'],
    ...(matchMedia('(prefers-color-scheme: dark)').matches && { runOnly: ['color-contrast'] }),
  })`)
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

interface SentTicket {
  /** When the signer signed it; now if absent. */
  readonly signedAt?: Date
  /** Further fields of the event's data. */
  readonly data?: object
}

async function spend(
  quickstart: Quickstart,
  externalUserId: string,
  ticket: SentTicket,
): Promise<void> {
  const { clientId, platformUrl } = quickstart
  const created = await fetch(`${platformUrl}/api/v1/apps/${clientId}/users`, {
    method: 'POST',
    headers: { ...json, authorization: basic(quickstart.m2mClientId, quickstart.m2mClientSecret) },
    body: JSON.stringify({ externalUserId }),
  })
  expect(created.status).toBeLessThan(300)
  await pushTicket(quickstart, `${clientId}:${externalUserId}`, ticket)
}

async function openSignerSession(
  { clientId, platformUrl, issuer, m2mClientId, m2mClientSecret }: Quickstart,
  externalUserId: string,
): Promise<string> {
  const authorization = basic(m2mClientId, m2mClientSecret)
  const user = `/api/v1/apps/${clientId}/users/${encodeURIComponent(externalUserId)}`
  const minted = await fetch(`${platformUrl}${user}/token`, {
    method: 'POST',
    headers: { ...json, authorization },
    body: '{}',
  })
  const exchanged = await fetch(`${issuer}/token`, {
    method: 'POST',
    headers: { authorization },
    body: new URLSearchParams({
      grant_type: GrantType.tokenExchange,
      subject_token: await readToken(minted),
      subject_token_type: TokenType.accessToken,
    }),
  })
  const credential = await readToken(exchanged)
  expect(credential).toMatch(/^svc_ss_/)
  return credential
}

async function readToken(answer: Response): Promise<string> {
  const { access_token = '' }: { access_token?: string } = JSON.parse(await answer.text())
  return registerSecret(access_token)
}

type Quickstart = TestService['service']['quickstart']

const json = { 'content-type': 'application/json' }

async function pushTicket(
  { sidecarUrl, webhookSecret }: Quickstart,
  authId: string,
  { signedAt = new Date(), data = {} }: SentTicket,
): Promise<void> {
  // 120,000 gwei at 3,000 USD for one ETH.
  const ticket = signedTicket({ authId, computed_fee: '120000000000000' })
  const signed = { current_time: signedAt.toISOString(), current_time_unix: signedAt.getTime() }
  const pushed = await fetch(`${sidecarUrl}/events`, {
    method: 'POST',
    headers: { ...json, 'x-webhook-secret': webhookSecret },
    body: JSON.stringify({
      ...ticket,
      timestamp: `${signedAt.getTime()}`,
      data: { ...ticket.data, ...signed, ...data },
    }),
  })
  expect(pushed.status).toBe(202)
}
