import type { Page, Response } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { readSize } from '../../support/run/sizes.ts'
import {
  executablePath,
  send,
  setUpDashboard,
  viewer,
  violations,
} from '../../support/web/dashboard.ts'

/** The dashboard in a real browser, on a real service. */
const hostile = '<img src=x onerror=alert(1)><b>"\'&'
const longList = readSize('TEST_TABLE_ROWS')
/** Views without a test file of their own. */
const views = ['', '/invoices', '/team', '/audit'] as const

describe.runIf(executablePath)('the dashboard', () => {
  const {
    quickstart,
    clientId,
    open,
    logIn,
    owner,
    show,
    forgive,
    inviteViewer,
    spend,
    seedUsers,
  } = setUpDashboard()
  beforeAll(inviteViewer)

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
    await expect.poll(() => figure('Tickets')).toBe('1\nno tickets before')
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
    await logIn(page, viewer.email, viewer.password)
    await page.getByText('You are not a member of any app.').waitFor()
    await page.getByRole('button', { name: 'Accept' }).click()
    await page.getByRole('link', { name: 'Demo', exact: true }).click()
    await page.getByRole('link', { name: 'Team' }).click()
    const members = page.getByRole('region', { name: 'Table of members' })
    await members.getByText(viewer.email).waitFor()
    expect(await page.getByRole('button', { name: /Invite|Remove|Withdraw/ }).count()).toBe(0)
    expect(await page.getByRole('combobox').count()).toBe(0)
    expect(await page.getByRole('link', { name: 'Audit log' }).count()).toBe(0)
    const path = `/api/v1/apps/${clientId()}/admins`
    expect(
      await send(page, {
        method: 'PUT',
        path: path,
        body: { email: 'x@example.com', role: 'viewer' },
      }),
    ).toBe(403)
    forgive(/403/)
  })

  it('changes a role only after the effect was confirmed, and only in the list', async () => {
    const page = await owner(`/${clientId()}/team`)
    const role = page.getByRole('combobox', { name: `Role of ${viewer.email}` })
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
    await page.getByLabel('E-mail address').fill(viewer.email.toUpperCase())
    await page.getByText('is a member already').waitFor()
    expect(await page.getByRole('button', { name: 'Invite' }).isDisabled()).toBe(true)
  })

  it('keeps the filter of the audit log in the address', async () => {
    const page = await owner(`/${clientId()}/audit`)
    await page.getByRole('row', { name: /app_created/ }).waitFor()
    await page.getByLabel('Action').selectOption('app_created')
    await page.waitForURL(/action=app_created/)
    const rows = page.getByRole('region', { name: 'Table of entries' }).getByRole('row')
    await expect.poll(() => rows.count()).toBe(2)
    await page.reload()
    await expect.poll(() => rows.count()).toBe(2)
    await page
      .getByRole('row', { name: /app_created/ })
      .getByRole('link')
      .last()
      .click()
    await page.waitForURL(/actor=/)
    await expect.poll(() => page.getByLabel('By').inputValue()).not.toBe('')
    await expect.poll(() => rows.count()).toBe(2)
    await page.getByLabel('By').fill('m2m_of_nobody')
    await page.getByRole('button', { name: 'Show', exact: true }).click()
    await page.getByText('No entry fits the filter.').waitFor()
    await page.goBack()
    await expect.poll(() => rows.count()).toBe(2)
    await page.getByLabel('To', { exact: true }).fill('2020-01-31')
    await page.getByRole('button', { name: 'Show', exact: true }).click()
    await page.getByText('No entry fits the filter.').waitFor()
    const exported = await page.getByRole('link', { name: 'Export these' }).getAttribute('href')
    expect(exported).toMatch(/action=app_created&actor=.+&until=2020-02-01T00%3A00%3A00.000Z$/)
    await page.getByRole('button', { name: 'Show all' }).click()
    await expect.poll(() => rows.count()).toBeGreaterThan(2)
    await show(page, `/${clientId()}/audit?action=filled`)
    expect(await page.getByLabel('Action').inputValue()).toBe('filled')
  })

  it('leads to each view, and logs out', async () => {
    const page = await owner(`/${clientId()}`)
    const views = page.getByRole('navigation', { name: 'Views' })
    await views.getByRole('link', { name: 'Receipts' }).click()
    await page.getByRole('heading', { name: 'Receipts', level: 1 }).waitFor()
    await views.getByRole('link', { name: 'Set-up' }).click()
    await page.getByRole('heading', { name: 'Set-up', level: 1 }).waitFor()
    await views.getByRole('link', { name: 'Mails' }).click()
    await page.getByRole('heading', { name: 'Mails', level: 1 }).waitFor()
    await page.goBack()
    await page.getByRole('button', { name: 'Log out' }).click()
    await page.getByRole('heading', { name: 'You are logged out' }).waitFor()
    await page.goto(`${quickstart().platformUrl}/app`)
    expect(new URL(page.url()).pathname).toBe('/login')
  })

  it(
    'shows of a long list the rows near the window, and keeps the row with the focus',
    async () => {
      await seedUsers(longList)
      const page = await owner(`/${clientId()}/users?user=row-`)
      const rows = page.getByRole('region', { name: 'Table of users' }).getByRole('row')
      const table = page.getByRole('table')
      const lastName = `row-${longList}`
      expect(await table.getAttribute('aria-rowcount')).toBe('-1')
      // The end of the list loads the next page, without a click.
      await expect
        .poll(
          async () => {
            await page.evaluate('window.scrollTo(0, document.body.scrollHeight)')
            return table.getAttribute('aria-rowcount')
          },
          { timeout: 20_000 + longList * 2 },
        )
        .toBe(`${longList + 1}`)
      expect(await rows.count()).toBeLessThan(120)
      const last = page.getByRole('row', { name: lastName })
      await expect
        .poll(async () => {
          await page.evaluate('window.scrollTo(0, document.body.scrollHeight)')
          return last.count()
        })
        .toBe(1)
      expect(await last.getAttribute('aria-rowindex')).toBe(`${longList + 1}`)
      expect(await violations(page)).toEqual([])
      await last.getByRole('link').focus()
      await page.evaluate('window.scrollTo(0, 0)')
      await page.getByRole('row', { name: 'row-0001 ' }).waitFor()
      expect(await page.evaluate('document.activeElement.textContent')).toBe(lastName)
    },
    60_000 + longList * 5,
  )

  it('shows texts of tenants as text', async () => {
    await rename(hostile)
    const page = await owner()
    await page.getByRole('link', { name: hostile }).click()
    await page.getByRole('heading', { name: hostile, level: 1 }).waitFor()
    await expect.poll(() => page.title()).toBe(`${hostile} · tollgate`)
    expect(await page.locator('img, main b').count()).toBe(0)
    await rename('Demo')
  })

  it('loads scripts, styles and data of this service only', async () => {
    const page = await owner()
    const response = await page.goto(`${quickstart().platformUrl}/app`)
    const policy = (await response?.headerValue('content-security-policy')) ?? ''
    expect(policy).toContain("default-src 'none'")
    expect(policy).not.toMatch(/unsafe|https?:|\*/)
    const scripts: Response[] = []
    page.on('response', (loaded) => {
      if (/\/app\/assets\/.*\.js$/.test(loaded.url())) scripts.push(loaded)
    })
    await show(page, `/${clientId()}`)
    const headers = await Promise.all(scripts.map((loaded) => loaded.allHeaders()))
    // The view and what it shares with others are scripts of their own.
    expect(headers.length).toBeGreaterThan(2)
    for (const header of headers) {
      expect(header['content-encoding']).toBe('br')
      expect(header['cache-control']).toContain('immutable')
    }
    const size = headers.reduce((sum, header) => sum + Number(header['content-length']), 0)
    expect(size).toBeLessThan(250_000)
  })

  it('shows that the session has ended, and continues after a login in a new tab', async () => {
    const page = await owner()
    await page.context().clearCookies()
    await page.getByRole('link', { name: 'Demo', exact: true }).click()
    const opened = page.context().waitForEvent('page')
    // One for the view, which reads several answers.
    const login = page.getByRole('link', { name: 'Log in again' })
    await page.getByText('It shows again after the login.').first().waitFor()
    await expect.poll(() => login.count()).toBe(1)
    await login.click()
    const tab = await opened
    await logIn(tab)
    await tab.getByRole('heading', { name: 'You are logged in', level: 1 }).waitFor()
    // The view goes on by itself.
    await page.getByRole('heading', { name: 'Demo', level: 1 }).waitFor()
    await expect.poll(() => page.getByText('Your session has ended.').count()).toBe(0)
    forgive(/40[14]/)
  })

  it('shows that figures were read before the session ended', async () => {
    const page = await owner(`/${clientId()}`)
    await page.locator('.stats').waitFor()
    await page.clock.install()
    await page.context().clearCookies()
    // A window that gets the focus reads again what is older than seconds.
    await page.clock.fastForward(20_000)
    await page.evaluate("window.dispatchEvent(new Event('visibilitychange'))")
    await page.getByText('This data is from before the session ended.').first().waitFor()
    expect(await page.locator('.stats').count()).toBe(1)
    forgive(/40[14]/)
  })

  it('shows that the service cannot be reached, and tries again on demand', async () => {
    const page = await owner()
    await page.route('**/billing/invoices*', (route) => route.abort())
    await page.getByRole('link', { name: 'Demo', exact: true }).click()
    await page.getByRole('link', { name: 'Invoices' }).click()
    await page.getByText('The service cannot be reached.').waitFor()
    await page.unroute('**/billing/invoices*')
    await page.getByRole('button', { name: 'Try again' }).click()
    await page.getByText('No invoice was issued to').waitFor()
    expect(await page.getByRole('alert').count()).toBe(0)
    forgive(/ERR_FAILED/)
  })

  it('is accessible in every view, in both themes', { timeout: 120_000 }, async () => {
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

  it('shows the parts of the design system, accessible in every state', async () => {
    const page = await owner('/design', { viewport: { width: 360, height: 800 } })
    await page.getByRole('heading', { name: 'Design', level: 1 }).waitFor()
    await page.getByRole('button', { name: 'Show a secret' }).click()
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360)
    const check = async (): Promise<void> => {
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme })
        expect(await violations(page)).toEqual([])
      }
    }
    await check()
    for (const name of ['Ask to type a name', 'After a refusal']) {
      await page.getByRole('button', { name }).click()
      await check()
      await page.keyboard.press('Escape')
    }
    expect(await page.getByRole('navigation').getByRole('link', { name: 'Design' }).count()).toBe(0)
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
    await page.goto(`${quickstart().platformUrl}/login`)
    expect(await background()).toBe(dark)
    await page.goBack()
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
    await expect.poll(() => hasPixels('26,95,208')).toBe(true)
    await page.emulateMedia({ colorScheme: 'dark' })
    await expect.poll(() => hasPixels('110,168,255')).toBe(true)
    expect(await hasPixels('26,95,208')).toBe(false)
  })

  /** Returns what the API answers to the page's session. */
  const readBilling = (page: Page): Promise<Billing> =>
    page.evaluate(`fetch('/api/v1/apps/${clientId()}/billing').then((answer) => answer.json())`)

  async function rename(name: string): Promise<void> {
    const page = await owner()
    expect(
      await send(page, { method: 'PUT', path: `/api/v1/apps/${clientId()}`, body: { name } }),
    ).toBe(200)
  }
})

interface Billing {
  readonly cycle: {
    readonly usage: { readonly requestCount: number }
    readonly timeline: readonly { readonly requestCount: number }[]
  }
}
