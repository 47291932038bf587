import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { registerSecret } from '../../support/run/secrecy.ts'
import {
  executablePath,
  send,
  setUpDashboard,
  viewer,
  violations,
} from '../../support/web/dashboard.ts'

describe.runIf(executablePath)('set-up and palette of the dashboard', () => {
  const { clientId, open, logIn, owner, show, forgive, inviteViewer, spend, pushTicket } =
    setUpDashboard()
  beforeAll(inviteViewer)

  const step = (page: Page, title: string) => page.getByRole('region', { name: title })
  const progress = (page: Page) => page.getByRole('status', { name: 'Progress' })
  async function awaitDone(page: Page, steps: number): Promise<void> {
    await expect.poll(() => progress(page).innerText()).toContain(`${steps} of 6 steps`)
  }

  /** Reads a secret that is shown once, and confirms that it was stored. */
  async function store(page: Page, name: string): Promise<string> {
    const shown = page.getByRole('status', { name, exact: true })
    const secret = await shown.locator('code').first().innerText()
    registerSecret(secret)
    await shown.getByRole('button', { name: 'I have stored it' }).click()
    return secret
  }

  it('leads from nothing to the first ticket', async () => {
    const page = await owner()
    await page.getByRole('link', { name: 'Create an app' }).click()
    await page.getByLabel('Name', { exact: true }).fill('First steps')
    await page.getByRole('button', { name: 'Create the app' }).click()
    await store(page, 'Client secret')
    await page.waitForURL(/\/setup$/)
    const app = new URL(page.url()).pathname.split('/')[2] ?? ''
    await awaitDone(page, 2)
    await page.getByLabel('External id of the first user').fill('grace')
    await page.getByRole('button', { name: 'Create the user' }).click()
    await step(page, '3. First user and key')
      .getByText(/may spend \$/)
      .waitFor()
    await page.getByRole('button', { name: 'Create a key' }).click()
    const key = await store(page, 'The key')
    await awaitDone(page, 3)
    await page.getByRole('button', { name: 'Make a secret for a signer of your own' }).click()
    const flags = page.getByRole('region', { name: 'Flags of the signer' })
    await expect.poll(() => flags.innerText()).not.toContain('SECRET')
    const signerSecret = await store(page, 'Secret of the signer')
    await page.getByRole('button', { name: 'Send a test call for grace' }).click()
    const answer = page.getByRole('status', { name: 'Answer of the webhook' })
    await answer.getByText('200 ok').waitFor()
    await answer.getByText('It identifies the user grace of').waitFor()
    await awaitDone(page, 4)
    await page.reload()
    await awaitDone(page, 4)
    await step(page, '6. First ticket').getByText('No ticket has arrived yet.').waitFor()
    expect(await page.content()).not.toContain(key)
    expect(await page.content()).not.toContain(signerSecret)
    await pushTicket(`${app}:grace`)
    await page.getByText('The app works.').waitFor()
    await awaitDone(page, 6)
    await step(page, '6. First ticket').getByRole('link', { name: 'Overview' }).click()
    await page.getByRole('heading', { name: 'First steps', level: 1 }).waitFor()
    const tickets = page.locator('dt', { hasText: /^Tickets$/ }).locator('xpath=../dd')
    await expect.poll(() => tickets.innerText()).toMatch(/^1\n/)
    expect(await page.getByRole('link', { name: 'Set up', exact: true }).count()).toBe(0)
  })

  it('leads from the overview of an app without tickets to its set-up', async () => {
    const page = await owner(`/${clientId()}`)
    await page.getByRole('link', { name: 'Set up', exact: true }).click()
    await page.getByRole('heading', { name: 'Set-up', level: 1 }).waitFor()
    await step(page, '6. First ticket').getByText('No ticket has arrived yet.').waitFor()
    expect(await progress(page).innerText()).not.toContain('6 of 6')
  })

  it('explains why the webhook refuses a user without money', async () => {
    const page = await owner(`/${clientId()}`)
    // 15 USD; Starter includes less.
    await spend('poor', { data: { computed_fee: '5000000000000000' } })
    await expect
      .poll(async () => {
        await show(page, `/${clientId()}/setup?user=poor`)
        return step(page, '3. First user and key').innerText()
      })
      .toContain('may spend nothing')
    await page.getByRole('button', { name: 'Send a test call for poor' }).click()
    const answer = page.getByRole('status', { name: 'Answer of the webhook' })
    await answer.getByText(/^483 /).waitFor()
    expect(await answer.getByRole('listitem').count()).toBeGreaterThan(1)
    await answer.getByRole('link', { name: 'The decision among those' }).click()
    await page.getByRole('heading', { name: 'One decision, explained' }).waitFor()
  })

  it('shows a viewer the progress, and refuses its changes', async () => {
    const page = await open('/app')
    await logIn(page, viewer.email, viewer.password)
    await page.getByRole('button', { name: 'Accept' }).click()
    await page.getByRole('link', { name: 'Demo', exact: true }).waitFor()
    expect(await page.getByRole('link', { name: 'Create an app' }).count()).toBe(0)
    await show(page, '/new')
    await page.getByText('Only platform admins create apps here.').waitFor()
    await show(page, `/${clientId()}/setup`)
    await progress(page).getByText('You may read here').waitFor()
    expect(await page.getByRole('button', { name: /Create|Send|Make/ }).count()).toBe(0)
    const call = { path: `/api/v1/internal/apps/${clientId()}/signer/test-call`, method: 'POST' }
    expect(await send(page, { ...call, body: { externalUserId: 'poor' } })).toBe(403)
    expect(await send(page, { path: '/api/v1/apps', method: 'POST', body: { name: 'x' } })).toBe(
      403,
    )
    forgive(/403/)
  })

  it('finds pages, users and recent commands by keyboard alone', async () => {
    const page = await owner(`/${clientId()}`)
    const field = page.getByRole('combobox', { name: 'Search for a page' })
    const options = page.getByRole('listbox', { name: 'Commands' }).getByRole('option')
    const selected = page.locator('[role=option][aria-selected=true]')
    await page.keyboard.press('Control+k')
    await field.waitFor()
    await page.keyboard.type('invoi')
    await expect.poll(() => options.first().innerText()).toContain('Invoices')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Invoices', level: 1 }).waitFor()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await page.keyboard.press('Control+k')
    await expect.poll(() => options.first().innerText()).toMatch(/Invoices\s+Recent/)
    await page.keyboard.type('poo')
    await options.getByText('poor', { exact: true }).waitFor()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'poor', level: 1 }).waitFor()
    expect(await page.evaluate('JSON.stringify(localStorage)')).not.toContain('poor')
    await page.keyboard.press('Control+k')
    await page.keyboard.press('ArrowUp')
    await expect.poll(() => selected.innerText()).toContain('Account')
    await page.goBack()
    await page.getByRole('heading', { name: 'Invoices', level: 1 }).waitFor()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
  })

  it('finds a ticket of the app by its event id, and nothing by another one', async () => {
    await spend('tess')
    const page = await owner(`/${clientId()}/team`)
    const path = `/api/v1/internal/apps/${clientId()}/usage/requests?externalUserId=tess`
    const readId = (): Promise<string> =>
      page.evaluate(
        `fetch('${path}').then((answer) => answer.json()).then(({ items }) => items[0]?.eventId ?? '')`,
      )
    await expect.poll(readId).not.toBe('')
    const eventId = await readId()
    await page.keyboard.press('Control+k')
    const field = page.getByRole('combobox', { name: 'Search for a page' })
    await field.fill(eventId.replace(/^.{4}/, 'none'))
    await page.getByText('a ticket by its event id').waitFor()
    await field.fill(eventId)
    await page.getByRole('option', { name: 'ticket of tess' }).waitFor()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'One ticket, explained' }).waitFor()
    await page.getByRole('region', { name: 'One ticket, explained' }).getByText(eventId).waitFor()
    forgive(/404/)
  })

  it('names every entry of the navigation in the palette', async () => {
    const page = await owner(`/${clientId()}/team`)
    const views = page.getByRole('navigation', { name: 'Views' })
    await views.getByRole('link', { name: 'Audit log' }).waitFor()
    await views.getByRole('link', { name: 'Checks' }).waitFor()
    const entries = await views.getByRole('link').allInnerTexts()
    await page.keyboard.press('Control+k')
    const names = page.getByRole('option').locator('.name')
    await expect
      .poll(() => names.allInnerTexts())
      .toEqual(expect.arrayContaining([...entries, 'Receipts', 'My use']))
  })

  it('says after a lost answer that the app may exist, and then makes no second one', async () => {
    const page = await owner('/new')
    await page.getByLabel('Name', { exact: true }).fill('Lost')
    await page.route('**/api/v1/apps', async (route) => {
      if (route.request().method() !== 'POST') return route.continue()
      expect((await route.fetch()).status()).toBe(201)
      return route.abort()
    })
    await page.getByRole('button', { name: 'Create the app' }).click()
    await page.getByText('The app may have been created.').waitFor()
    const shown = page.getByRole('status', { name: 'Client secret' })
    expect(await shown.count()).toBe(0)
    await page.unroute('**/api/v1/apps')
    await page.getByRole('button', { name: 'Create the app' }).click()
    await store(page, 'Client secret')
    await show(page, '')
    expect(await page.getByRole('link', { name: 'Lost', exact: true }).count()).toBe(1)
    forgive(/ERR_FAILED/)
  })

  it('keeps the focus in the palette, returns it, and shows all shortcuts', async () => {
    const page = await owner(`/${clientId()}/team`)
    const button = page.getByRole('button', { name: /^Go to/ })
    await button.click()
    const focused = () => page.evaluate('document.activeElement.getAttribute("role")')
    await expect.poll(focused).toBe('combobox')
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme })
      expect(await violations(page)).toEqual([])
    }
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(await page.evaluate('document.activeElement.className')).toContain('open-palette')
    // A single character is a shortcut only where the palette has the focus (WCAG 2.1.4).
    await page.keyboard.press('?')
    // A dialog would keep the button from the pointer.
    await button.click()
    await expect.poll(focused).toBe('combobox')
    expect(await page.getByRole('dialog').count()).toBe(1)
    await page.keyboard.press('?')
    await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor()
    expect(await violations(page)).toEqual([])
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    // A question mark that is typed is a question mark.
    const address = page.getByLabel('E-mail address')
    await address.press('?')
    await expect.poll(() => address.inputValue()).toBe('?')
    expect(await page.getByRole('dialog').count()).toBe(0)
  })

  it('is accessible in both themes, and fits a phone', async () => {
    const page = await owner()
    for (const view of ['/new', `/${clientId()}/setup`]) {
      await page.setViewportSize({ width: 1280, height: 900 })
      await show(page, view)
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme })
        const found = await violations(page)
        expect({ view, colorScheme, found }).toEqual({ view, colorScheme, found: [] })
      }
      await page.setViewportSize({ width: 360, height: 800 })
      const width = await page.evaluate('document.documentElement.scrollWidth')
      expect({ view, width }).toEqual({ view, width: 360 })
    }
  })
})
