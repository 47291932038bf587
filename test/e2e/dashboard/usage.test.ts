import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import {
  awaitData,
  executablePath,
  send,
  setUpDashboard,
  viewer,
  violations,
} from '../../support/web/dashboard.ts'

/** The overview and the usage of ranges, and live spend, in a real browser on a real service. */
const dayMs = 86_400_000

describe.runIf(executablePath)('usage in the dashboard', () => {
  const { quickstart, clientId, open, logIn, owner, show, forgive, inviteViewer, spend } =
    setUpDashboard({ LOSS_GRACE_SECONDS: '1' })
  const daysAgo = (days: number) => new Date(Date.now() - days * dayMs)

  beforeAll(async () => {
    await inviteViewer()
    // One lies in the seven days before the latest seven, and none before these.
    await spend('ada', { signedAt: daysAgo(9), data: { session_id: 'early' } })
    await spend('ada', { signedAt: daysAgo(3), data: { session_id: 'later' } })
    await spend('grace', {
      signedAt: daysAgo(2),
      data: { session_id: 'later', app: 'llm/llama', pipeline: 'llm', model_id: 'llama' },
    })
    // Tickets 1 to 4 of the session never arrive.
    await spend('grace', { signedAt: daysAgo(1), data: { session_id: 'gap', sequence_number: 0 } })
    await spend('grace', { signedAt: daysAgo(1), data: { session_id: 'gap', sequence_number: 5 } })
    const page = await owner()
    const isBooked = async () => (await readUsage(page, {})).totals.requestCount === 5
    await vi.waitUntil(isBooked, { timeout: 20_000 })
    await page.context().close()
  })

  it('shows the figures that the API answers for the range, and their change', async () => {
    const page = await owner(`/${clientId()}?range=7d`)
    await expect.poll(() => figure(page, 'Tickets')).toBe('4\n+300 %, 1 before')
    await expect.poll(() => figure(page, 'Active users')).toBe('2\n+100 %, 1 before')
    const { totals } = await readUsage(page, lastSevenDays())
    expect(totals.requestCount).toBe(4)
    const shown = {
      'Network cost': totals.networkFeeUsdMicros,
      'Charged to the owner': totals.ownerChargeUsdMicros,
      'Billed to end users': totals.endUserBillableUsdMicros,
    }
    for (const [name, micros] of Object.entries(shown)) {
      const exact = `${BigInt(micros) / 1_000_000n}.${micros.slice(-6).padStart(6, '0')} USD`
      const value = page.locator('dt', { hasText: name }).locator('xpath=../dd/span')
      expect([name, await value.getAttribute('title')]).toEqual([name, exact])
    }
    // Four tickets of 120,000 gwei.
    const eth = page.getByTitle('0.00048 ETH (480,000,000,000,000 wei)')
    expect(await eth.innerText()).toBe('0.00048 ETH')
    await page.getByRole('button', { name: '30 days' }).click()
    await expect.poll(() => figure(page, 'Tickets')).toBe('5\nno tickets before')
    await expect.poll(() => figure(page, 'Active users')).toBe('2\nno users before')
  })

  it("charts hours of up to seven days and days of more, with the API's figures as a table", async () => {
    for (const [range, step] of [
      ['7d', 'hour'],
      ['30d', 'day'],
    ] as const) {
      const page = await owner(`/${clientId()}?range=${range}`)
      await page.getByRole('heading', { name: `Tickets by ${step}` }).waitFor()
      await page.locator('.chart canvas').waitFor()
      await page.getByText('As a table').click()
      const rows = page.getByRole('region', { name: `Table of ${step}s` }).locator('tbody tr')
      const dates = step === 'hour' ? lastSevenDays() : lastThirtyDays()
      const { byDay = [], byHour = [] } = await readUsage(page, { ...dates, groupBy: step })
      const used = [...byDay, ...byHour].filter(({ requestCount }) => requestCount > 0)
      expect(used.length).toBeGreaterThan(2)
      const tickets = rows.locator('td:nth-child(2)')
      await expect
        .poll(() => tickets.allInnerTexts())
        .toEqual(used.map(({ requestCount }) => `${requestCount}`))
      const hours = await rows
        .locator('time')
        .evaluateAll((all: { dateTime: string }[]) => all.map(({ dateTime }) => dateTime))
      expect(hours).toEqual(
        byHour.filter(({ requestCount }) => requestCount > 0).map(({ hour }) => hour),
      )
      await page.getByLabel('Figure').selectOption('Charged to the owner')
      await page.getByRole('heading', { name: `Charged to the owner by ${step}` }).waitFor()
      expect(new URL(page.url()).search).toBe(`?range=${range}&figure=owner`)
    }
  })

  it('divides the chart by the costliest models, with a table', async () => {
    const page = await owner(`/${clientId()}?range=7d&figure=network`)
    await page.getByLabel('Bars').selectOption('The five costliest models')
    await page.getByRole('heading', { name: 'Network cost by hour and model' }).waitFor()
    expect(new URL(page.url()).search).toBe('?range=7d&figure=network&split=model')
    await page.reload()
    const legend = page.getByRole('list', { name: 'Layers of the chart' }).getByRole('listitem')
    await expect.poll(() => legend.allInnerTexts()).toContain('llm: llama')
    await page.locator('.chart canvas').waitFor()
    await page.getByText('As a table').click()
    const table = page.getByRole('region', { name: 'Table of models by hour' })
    expect(await table.locator('thead th').allInnerTexts()).toEqual([
      'Hour from',
      ...(await legend.allInnerTexts()),
      'Sum',
    ])
    const column = (await legend.allInnerTexts()).indexOf('llm: llama') + 2
    const { totals } = await readUsage(page, { ...lastSevenDays(), modelId: 'llama' })
    expect(totals.requestCount).toBe(1)
    // Only one hour has a ticket of this model.
    const cells = await table.locator(`tbody tr > :nth-child(${column})`).allInnerTexts()
    expect(cells.filter((text) => text !== '$0.00')).toEqual(['$0.36'])
    await page.getByLabel('Bars').selectOption('All models together')
    await page.getByRole('heading', { name: 'Network cost by hour', exact: true }).waitFor()
  })

  it('shows one model by a link in a table, over reload and back', async () => {
    const page = await owner(`/${clientId()}?range=7d`)
    const top = page.getByRole('region', { name: 'Table of pipelines and models' })
    await top.getByRole('link', { name: 'llama', exact: true }).click()
    await page.waitForURL(/\/usage\?range=7d&.*model=llama/)
    const only = page.getByRole('group', { name: 'Pipeline and model' })
    await only.getByText('Only pipeline llm, model llama').waitFor()
    await expect.poll(() => figure(page, 'Tickets')).toBe('1\nno tickets before')
    await page.reload()
    await expect.poll(() => figure(page, 'Tickets')).toBe('1\nno tickets before')
    const users = page.getByRole('region', { name: 'Table of users' }).locator('tbody tr')
    await expect.poll(() => firstCells(users)).toEqual(['grace'])
    expect(await page.getByRole('button', { name: 'Sessions' }).count()).toBe(0)
    await page.getByText('As a table').click()
    const hours = page.getByRole('region', { name: 'Table of hours' }).locator('tbody tr')
    await expect.poll(() => hours.count()).toBe(1)
    await users.getByRole('link', { name: 'grace' }).click()
    await top.waitFor()
    await page.goBack()
    await users.getByRole('link', { name: 'grace' }).waitFor()
    await page.getByRole('button', { name: 'Show all models' }).click()
    await expect.poll(() => figure(page, 'Tickets')).toBe('4\n+300 %, 1 before')
    expect(await only.count()).toBe(0)
    await page.goBack()
    await expect.poll(() => figure(page, 'Tickets')).toBe('1\nno tickets before')
    await page.goBack()
    await page.getByRole('heading', { name: 'Demo', level: 1 }).waitFor()
  })

  it('keeps range, grouping and user in the address, over reload and back', async () => {
    const page = await owner(`/${clientId()}`)
    await page.getByRole('button', { name: '7 days' }).waitFor()
    const visited = Number(await page.evaluate('history.length'))
    // Keys outside the picker choose nothing (WCAG 2.1.4).
    await page.getByRole('link', { name: 'All users' }).press('8')
    await page.getByRole('button', { name: '30 days' }).press('3')
    await page.waitForURL(/range=7d/)
    expect(await page.evaluate('history.length')).toBe(visited + 1)
    await page.getByRole('link', { name: 'All users' }).click()
    await page.waitForURL(/\/usage\?range=7d&by=user/)
    const users = page.getByRole('region', { name: 'Table of users' }).locator('tbody tr')
    await expect.poll(() => firstCells(users)).toEqual(['grace', 'ada'])
    await page.reload()
    await expect.poll(() => firstCells(users)).toEqual(['grace', 'ada'])
    expect(await pressed(page)).toEqual(['7 days', 'Users'])
    await users.getByRole('link', { name: 'ada' }).click()
    await page.waitForURL(/user=ada/)
    await expect.poll(() => figure(page, 'Tickets')).toBe('1\nas before, 1 before')
    await page.getByRole('button', { name: 'Sessions' }).click()
    const sessions = page.getByRole('region', { name: 'Table of sessions' }).locator('tbody tr')
    await expect.poll(() => firstCells(sessions)).toEqual(['later\nada'])
    await page.goBack()
    await page.goBack()
    await expect.poll(() => firstCells(users)).toEqual(['grace', 'ada'])
    await page.goBack()
    await page.getByRole('heading', { name: 'Demo', level: 1 }).waitFor()
    expect(await pressed(page)).toEqual(['7 days'])
  })

  it('shows chosen days, the rows of a grouping by cost, and their share', async () => {
    const page = await owner(`/${clientId()}/usage?by=pipeline_model`)
    await page.getByRole('button', { name: 'Custom' }).click()
    const [from, to] = [daysAgo(3), daysAgo(2)].map((day) => day.toISOString().slice(0, 10))
    await page.getByLabel('First day (UTC)').fill(from ?? '')
    await page.getByLabel('Last day (UTC)').fill(to ?? '')
    await page.locator('.ranges').getByRole('button', { name: 'Show' }).click()
    await page.waitForURL(new RegExp(`from=${from}&to=${to}`))
    const table = page.getByRole('region', { name: 'Table of pipelines and models' })
    await expect.poll(() => table.locator('tbody tr').count()).toBe(2)
    await expect
      .poll(() => table.innerText())
      .toMatch(/llm\s+llama\s+1\s+\$0\.36\s+\$0\.36\s+\$0\.36\s+50\.0 %/)
    await page.getByLabel('Only the user').fill('nobody-of-the-kind')
    await page.getByLabel('Only the user').press('Enter')
    await page.getByRole('alert').first().waitFor()
    await page.getByRole('button', { name: 'Show all users' }).click()
    await expect.poll(() => table.locator('tbody tr').count()).toBe(2)
    forgive(/404/)
  })

  it('shows fifty rows at once, with the page in the address', async () => {
    const signedAt = daysAgo(75)
    await Promise.all(
      Array.from({ length: 51 }, (_, index) =>
        spend('many', { signedAt, data: { session_id: `session-${index}` } }),
      ),
    )
    const day = signedAt.toISOString().slice(0, 10)
    const page = await owner(`/${clientId()}/usage?by=session&from=${day}&to=${day}`)
    await page.getByText('Page 1 of 2, 51 rows in all').waitFor()
    const rows = page.getByRole('region', { name: 'Table of sessions' }).locator('tbody tr')
    expect(await rows.count()).toBe(50)
    await page.getByRole('button', { name: 'Next' }).click()
    await page.waitForURL(/page=2/)
    await page.reload()
    await expect.poll(() => rows.count()).toBe(1)
    await page.goBack()
    await expect.poll(() => rows.count()).toBe(50)
    await page.getByRole('button', { name: 'Next' }).click()
    await page.getByRole('button', { name: '90 days' }).click()
    await page.waitForURL(/range=90d/)
    expect(new URL(page.url()).searchParams.has('page')).toBe(false)
  })

  it('shows figures of the earlier range dimmed until those of the chosen one arrive', async () => {
    for (const view of ['', '/usage']) {
      const page = await owner(`/${clientId()}${view}?range=7d`)
      const opacities = async (): Promise<unknown> => {
        const shown = "[...document.querySelectorAll('.shares tbody, .chart')]"
        return page.evaluate(
          `[...new Set(${shown}.map((each) => getComputedStyle(each).opacity))].join()`,
        )
      }
      await page.locator('.shares tbody tr').first().waitFor()
      await page.locator('.chart canvas').waitFor()
      await expect.poll(opacities).toBe('1')
      const answers = Promise.withResolvers<void>()
      await page.route(/\/usage\?.*startDate/, async (route) => {
        await answers.promise
        await route.continue()
      })
      await page.getByRole('button', { name: '30 days' }).click()
      await expect.poll(opacities).toBe('0.6')
      answers.resolve()
      await expect.poll(opacities).toBe('1')
    }
  })

  it('shows the times of models with their figures until those of another range arrive', async () => {
    const page = await owner(`/${clientId()}/usage?range=7d&figure=network&split=model`)
    const top = page.getByRole('region', { name: 'Table of pipelines and models' })
    const link = await top.getByRole('link', { name: 'llama', exact: true }).getAttribute('href')
    expect(link).toContain('figure=network&split=model')
    await page.getByText('As a table').click()
    const hours = page.getByRole('region', { name: 'Table of models by hour' }).locator('tbody tr')
    await expect.poll(() => hours.count()).toBeGreaterThan(2)
    const shown = await hours.allInnerTexts()
    const answers = Promise.withResolvers<void>()
    await page.route(/\/usage\?.*groupBy=hourly_top_models/, async (route) => {
      await answers.promise
      await route.continue()
    })
    await page.getByRole('button', { name: '24 hours' }).click()
    await page.locator('section[aria-busy="true"]', { has: page.locator('#times') }).waitFor()
    expect(await hours.allInnerTexts()).toEqual(shown)
    answers.resolve()
    // The newest ticket of a model is older.
    await hours.first().waitFor({ state: 'detached' })
  })

  it('shows no losses of all users below the figures of one user', async () => {
    const page = await owner(`/${clientId()}/usage?range=7d&by=loss&user=ada`)
    await page.getByRole('region', { name: 'Table of pipelines and models' }).waitFor()
    expect(await page.getByRole('region', { name: 'Table of losses' }).count()).toBe(0)
    await page.getByRole('button', { name: 'Show all users' }).click()
    await page.getByRole('region', { name: 'Table of losses' }).waitFor()
  })

  it('names losses on the overview, and leads to them', async () => {
    const page = await owner(`/${clientId()}?range=7d`)
    const item = page.getByRole('listitem').filter({ hasText: 'Losses' })
    await item.getByText('4 tickets of the range never arrived').waitFor()
    await item.getByRole('link', { name: 'See losses' }).click()
    const row = page.getByRole('region', { name: 'Table of losses' }).locator('tbody tr')
    await expect.poll(() => firstCells(row)).toEqual(['gap'])
    expect(await pressed(page)).toEqual(['7 days', 'Losses'])
  })

  it('shows a ticket within two seconds, adds it to the last minute, and pauses', async () => {
    const page = await owner(`/${clientId()}/usage`)
    const state = page.getByRole('status', { name: 'Connection' })
    await expect.poll(() => state.innerText()).toBe('Live')
    const rows = page.getByRole('region', { name: 'Table of live charges' }).locator('tbody tr')
    const delays: number[] = []
    for (const count of [1, 2, 3]) {
      await spend('ada')
      const sentAt = Date.now()
      await expect.poll(() => rows.count(), { interval: 25, timeout: 10_000 }).toBe(count)
      delays.push(Date.now() - sentAt)
    }
    // A busy machine may delay one of them.
    expect(Math.min(...delays)).toBeLessThan(2_000)
    await page.getByText('billed to end users for 3 tickets since').waitFor()
    expect(await page.locator('.minute strong').innerText()).toBe('$1.08')
    expect(await rows.first().innerText()).toMatch(/ada\s+1\s+\$0\.36\s+\$0\.36\s+\$0\.36/)
    await page.getByRole('button', { name: 'Pause' }).click()
    expect(await state.innerText()).toBe('Paused')
    await expect.poll(openStreams).toBe(0)
    await spend('grace')
    await page.getByRole('button', { name: 'Resume' }).click()
    await expect.poll(() => state.innerText()).toBe('Live')
    await spend('linus')
    await rows.getByText('linus').waitFor()
    expect(await rows.count()).toBeLessThanOrEqual(5)
    // The ticket of the pause may be booked after it.
    await page.getByText(/billed to end users for [12] tickets? since/).waitFor()
  })

  it('adds a ticket to the last minute of the overview', async () => {
    const page = await owner(`/${clientId()}`)
    const now = page.getByRole('region', { name: 'Now', exact: true })
    await expect.poll(() => now.getByRole('status').innerText()).toBe('Live')
    await spend('ada')
    await now.getByText('billed to end users for 1 ticket since').waitFor()
    expect(await now.locator('strong').innerText()).toBe('$0.36')
  })

  it('shows a charge that arrived just before the pause, and sums from a resumption', async () => {
    const page = await owner(`/${clientId()}/usage`)
    const state = page.getByRole('status', { name: 'Connection' })
    await expect.poll(() => state.innerText()).toBe('Live')
    await page.getByRole('button', { name: 'Pause' }).click()
    const time = new Date().toISOString()
    const amounts = { networkFeeUsdExact: '1', ownerChargeUsdExact: '1', balanceUsdExact: '1' }
    const ids = { chargeId: 'c', endUserId: 'e', externalUserId: 'hedy' }
    const charge = { ...ids, ...amounts, costUsdExact: '1.25', ticketCount: 1, time }
    await page.route('**/usage/stream*', (route) =>
      route.fulfill({
        contentType: 'text/event-stream',
        body: `id: 1\nevent: charge\ndata: ${JSON.stringify(charge)}\n\n`,
      }),
    )
    // The timers of the page stop, so that it draws no batch by itself.
    await page.clock.install()
    await page.clock.pauseAt(Date.now() + 1_000)
    await page.getByRole('button', { name: 'Resume' }).click()
    await expect.poll(() => state.innerText()).toBe('Reconnecting …')
    const rows = page.getByRole('region', { name: 'Table of live charges' }).locator('tbody tr')
    expect(await rows.count()).toBe(0)
    await page.getByRole('button', { name: 'Pause' }).click()
    await rows.getByText('hedy').waitFor()
    expect(await page.locator('.minute strong').innerText()).toBe('$1.25')
  })

  it('closes the stream on the server when the view is left', async () => {
    const page = await owner(`/${clientId()}/usage`)
    await expect.poll(openStreams).toBe(1)
    await page.getByRole('link', { name: 'Users', exact: true }).click()
    await page.getByRole('heading', { name: 'Users', level: 1 }).waitFor()
    await expect.poll(openStreams).toBe(0)
    await page.goBack()
    await expect.poll(openStreams).toBe(1)
    await page.close()
    await expect.poll(openStreams).toBe(0)
  })

  it('shows that it reconnects while the service cannot be reached, and continues', async () => {
    const page = await owner(`/${clientId()}/usage`)
    const state = page.getByRole('status', { name: 'Connection' })
    await expect.poll(() => state.innerText()).toBe('Live')
    const address = '**/usage/stream*'
    await page.route(address, (route) => route.abort())
    await page.getByRole('button', { name: 'Pause' }).click()
    await page.getByRole('button', { name: 'Resume' }).click()
    await expect.poll(() => state.innerText()).toBe('Reconnecting …')
    await page.unroute(address)
    await expect.poll(() => state.innerText(), { timeout: 20_000 }).toBe('Live')
    forgive(/ERR_FAILED/)
  })

  it('shows a viewer everything but secrets, which the server refuses', async () => {
    const page = await open('/app')
    await logIn(page, viewer.email, viewer.password)
    await page.getByRole('button', { name: 'Accept' }).click()
    await page.getByRole('link', { name: 'Demo', exact: true }).click()
    await expect.poll(() => figure(page, 'Tickets')).toMatch(/^\d+\n/)
    const losses = page.getByRole('listitem').filter({ hasText: 'Losses' })
    await losses.getByText('4 tickets of the range never arrived').waitFor()
    await awaitData(page)
    expect(await page.getByText('Not checked').count()).toBe(0)
    await page.getByRole('link', { name: 'Usage', exact: true }).click()
    // Overview has a stream, too.
    await page.getByRole('heading', { name: 'Usage', level: 1 }).waitFor()
    const state = page.getByRole('status', { name: 'Connection' })
    await expect.poll(() => state.innerText()).toBe('Live')
    await spend('hopper')
    await page.getByRole('region', { name: 'Table of live charges' }).getByText('hopper').waitFor()
    const status = await page.evaluate(
      `fetch('/api/v1/apps/${clientId()}/signer-secrets').then((answer) => answer.status)`,
    )
    expect(status).toBe(403)
    forgive(/403/)
  })

  it('is accessible and fits a phone with every grouping', { timeout: 120_000 }, async () => {
    const page = await owner('', { viewport: { width: 360, height: 800 } })
    for (const by of ['pipeline_model', 'user', 'session', 'loss']) {
      await show(page, `/${clientId()}/usage?range=7d&split=model&by=${by}`)
      await page.getByText('As a table').click()
      await page.getByRole('button', { name: 'Custom' }).click()
      expect([by, await page.evaluate('document.documentElement.scrollWidth')]).toEqual([by, 360])
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme })
        expect({ by, colorScheme, found: await violations(page) }).toEqual({
          by,
          colorScheme,
          found: [],
        })
      }
    }
  })

  it('explains an empty app', async () => {
    const page = await owner()
    const body = { name: 'Empty', isCustomer: true }
    expect(await send(page, { method: 'POST', path: '/api/v1/apps', body })).toBe(201)
    await page.reload()
    await page.getByRole('link', { name: 'Empty', exact: true }).click()
    await expect.poll(() => figure(page, 'Tickets')).toBe('0\nno tickets before')
    await expect.poll(() => figure(page, 'Active users')).toBe('0\nno users before')
    await expect.poll(() => page.getByText('No ticket was signed in this range.').count()).toBe(3)
    // Its owner pays, so it needs no account at the processor.
    await page.getByText('Nothing needs attention.').waitFor()
    expect(await page.locator('.chart').count()).toBe(0)
    await show(page, `${new URL(page.url()).pathname.slice('/app'.length)}/usage?by=loss`)
    await page.getByText('No session of this range lost a ticket.').waitFor()
    await page.getByText('New tickets show here at once.').waitFor()
  })

  /** The streams of live spend that the service has open. */
  async function openStreams(): Promise<number> {
    const metrics = await (await fetch(`${quickstart().adminUrl}/metrics`)).text()
    return Number(/^tollgate_usage_streams(?:\{[^}]*\})? (\d+)/m.exec(metrics)?.[1])
  }

  /** Returns what the API answers to the page's session. */
  const readUsage = (page: Page, query: Record<string, string>): Promise<Usage> => {
    const search = new URLSearchParams({ include: 'retail', ...query })
    return page.evaluate(
      `fetch('/api/v1/internal/apps/${clientId()}/usage?${search}').then((answer) => answer.json())`,
    )
  }
})

const figure = (page: Page, name: string): Promise<string> =>
  page
    .locator('dt', { hasText: name })
    .locator('xpath=../dd')
    .evaluate((dd: { children: Iterable<{ innerText: string }> }) =>
      [...dd.children]
        .slice(0, 2)
        .map(({ innerText }) => innerText)
        .join('\n'),
    )

/** The dates of the latest seven UTC days, until now. */
const lastSevenDays = () => ({
  startDate: new Date(Date.now() - 6 * dayMs).toISOString().slice(0, 10),
})

const lastThirtyDays = () => ({
  startDate: new Date(Date.now() - 29 * dayMs).toISOString().slice(0, 10),
})

const firstCells = (rows: ReturnType<Page['locator']>): Promise<string[]> =>
  rows.locator('th').allInnerTexts()

const pressed = (page: Page): Promise<string[]> =>
  page.locator('button[aria-pressed="true"]').allInnerTexts()

interface Sums {
  readonly requestCount: number
  readonly networkFeeUsdMicros: string
  readonly ownerChargeUsdMicros: string
  readonly endUserBillableUsdMicros: string
}

interface Usage {
  readonly totals: Sums
  readonly byDay?: readonly (Sums & { readonly date: string })[]
  readonly byHour?: readonly (Sums & { readonly hour: string })[]
}
