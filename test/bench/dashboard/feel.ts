import { type Browser, type BrowserContext, type Page, chromium } from 'playwright-core'
import { createPool } from '../../../core/lib/sql.ts'
import { appId, userId } from '../../../core/shared/ids.ts'
import { basic } from '../../../deploy/cli/client.ts'
import { generateHistory, monthRange } from '../../support/usage/history.ts'
import type { Bench, Finding } from '../row.ts'
import { newDataDir, startCommand, startService } from '../service.ts'
import { median, middleHalf } from '../stats.ts'
import { count } from '../table.ts'

const users = 100
const hours = 100
const range = `from=${monthRange.startDate}&to=${monthRange.endDate}`
const views = { overview: '', usage: '/usage' } as const
/** The shortest duration that browsers report of an event. */
const shortestMs = 16

/**
 * Measures the dashboard in Chromium, on an app with a million tickets in the shown month: the first
 * paint of two views with an empty cache, the time until their figures show, and the slowest of some
 * clicks and keys, from the event to the paint after it.
 */
export async function dashboardFeel(bench: Bench): Promise<Finding[]> {
  if (bench.chromium === null) {
    bench.say('dashboard: left out, needs TEST_CHROMIUM')
    return []
  }
  const rounds = bench.quick ? 5 : 15
  const app = await startApp(bench)
  const browser = await chromium.launch({
    executablePath: bench.chromium,
    args: ['--no-sandbox', '--disable-gpu'],
  })
  bench.defer(() => browser.close())
  const state = await logIn(browser, app)
  const open = () => browser.newContext({ storageState: state })
  const findings: Finding[] = []
  for (const [name, path] of Object.entries(views)) {
    const url = `${app.url}/app/${app.clientId}${path}?${range}`
    const loads: Load[] = []
    // The first round warms up the service.
    for (let round = -1; round < rounds; round++) {
      const load = await inPage(await open(), (page) => measureLoad(page, url))
      if (round >= 0) loads.push(load)
    }
    findings.push(...describeLoads(name, loads))
  }
  const slowest: number[] = []
  for (let round = 0; round < rounds; round++)
    slowest.push(await inPage(await open(), (page) => measureInteraction(page, app)))
  findings.push({
    name: 'dashboard, slowest of clicks and keys until the next paint',
    unit: 'ms',
    value: median(slowest),
    spread: middleHalf(slowest),
    target: { atMost: 100 },
    detail: `${count(app.tickets)} tickets; a shorter one than ${shortestMs} ms counts as 0`,
  })
  return findings
}

interface App {
  readonly url: string
  readonly clientId: string
  readonly email: string
  readonly password: string
  readonly tickets: number
}

/** Starts the service on a database in which the first app has a month of tickets. */
async function startApp(bench: Bench): Promise<App> {
  const databaseUrl = await (await bench.server()).create()
  const dataDir = await newDataDir(bench)
  const { quickstart } = await startService(bench, startCommand, { dataDir, databaseUrl })
  const { clientId, platformUrl, m2mClientId, m2mClientSecret } = quickstart
  for (let user = 0; user < users; user++) {
    const created = await fetch(`${platformUrl}/api/v1/apps/${clientId}/users`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        authorization: basic(m2mClientId, m2mClientSecret),
      },
      body: JSON.stringify({ externalUserId: `user-${user}` }),
    })
    if (!created.ok) throw new Error(`no user was created: ${await created.text()}`)
  }
  const pool = createPool({ url: databaseUrl, max: 2, name: 'bench', statementTimeoutMs: 0 })
  pool.on('error', () => undefined)
  try {
    const { rows } = await pool.query<{ app: string; id: string }>(
      `select u.app_id as app, u.id from end_users u join clients c on c.app_id = u.app_id
       where c.client_id = $1 and u.external_user_id like 'user-%'`,
      [clientId],
    )
    const perHour = bench.quick ? 10 : 100
    const tickets = await generateHistory(
      pool,
      rows.map(({ app, id }) => ({ appId: appId(app), userId: userId(id), hours, perHour })),
    )
    const { ownerEmail: email = '', ownerPassword: password = '' } = quickstart
    return { url: platformUrl, clientId, email, password, tickets }
  } finally {
    await pool.end()
  }
}

/** Returns the cookies of a session of the app's owner. */
async function logIn(browser: Browser, { url, email, password }: App) {
  const context = await browser.newContext()
  const page = await context.newPage()
  await page.goto(`${url}/login`)
  await page.getByLabel('E-mail address').fill(email)
  await page.getByLabel('Password').fill(password)
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.locator('main h1').waitFor()
  const state = await context.storageState()
  await context.close()
  return state
}

async function inPage<T>(context: BrowserContext, use: (page: Page) => Promise<T>): Promise<T> {
  try {
    return await use(await context.newPage())
  } finally {
    await context.close()
  }
}

/** Waits until the view has all its data. */
async function showAll(page: Page): Promise<void> {
  await page.locator('main .stats dd, main table').first().waitFor()
  await page.getByRole('status', { name: 'Loading' }).first().waitFor({ state: 'detached' })
}

interface Load {
  readonly paintMs: number
  readonly figuresMs: number
  /** Compressed. */
  readonly scriptBytes: number
}

async function measureLoad(page: Page, url: string): Promise<Load> {
  await page.goto(url)
  await showAll(page)
  return page.evaluate(`(() => {
    const figuresMs = performance.now()
    const [paint] = performance.getEntriesByName('first-contentful-paint')
    const scripts = performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('.js'))
    const scriptBytes = scripts.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0)
    return { paintMs: paint.startTime, figuresMs, scriptBytes }
  })()`)
}

const describeLoads = (name: string, loads: readonly Load[]): Finding[] => {
  const paints = loads.map(({ paintMs }) => paintMs)
  const figures = loads.map(({ figuresMs }) => figuresMs)
  const kilobytes = (median(loads.map(({ scriptBytes }) => scriptBytes)) / 1e3).toFixed(0)
  return [
    {
      name: `dashboard, first paint of ${name}, empty cache`,
      unit: 'ms',
      value: median(paints),
      spread: middleHalf(paints),
      target: { atMost: 1_000 },
      detail: `${kilobytes} kB of script`,
    },
    {
      name: `dashboard, all figures of ${name}`,
      unit: 'ms',
      value: median(figures),
      spread: middleHalf(figures),
      target: null,
      detail: `of ${users} users`,
    },
  ]
}

/** Chooses ranges and types into a search. Returns the longest time from an event to a paint. */
async function measureInteraction(page: Page, { url, clientId }: App): Promise<number> {
  await page.goto(`${url}/app/${clientId}/usage?${range}`)
  await showAll(page)
  await page.evaluate(`(() => {
    window.slowestMs = 0
    new PerformanceObserver((list) => {
      for (const { interactionId, duration } of list.getEntries())
        if (interactionId) window.slowestMs = Math.max(window.slowestMs, duration)
    }).observe({ type: 'event', durationThreshold: ${shortestMs} })
  })()`)
  for (const name of ['7 days', 'Year']) {
    await page.getByRole('button', { name, exact: true }).click()
    await showAll(page)
  }
  await page.getByRole('link', { name: 'Users', exact: true }).click()
  await page.getByRole('searchbox').pressSequentially('user-42')
  // Browsers report an event after the paint that follows it.
  return page.evaluate('new Promise((resolve) => setTimeout(() => resolve(window.slowestMs), 500))')
}
