import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import {
  confirmTyped,
  executablePath,
  send,
  setUpDashboard,
  viewer,
  violations,
} from '../../support/web/dashboard.ts'

describe.runIf(executablePath)('money in the dashboard', () => {
  const { quickstart, clientId, open, logIn, owner, show, forgive, inviteViewer } = setUpDashboard()
  beforeAll(inviteViewer)

  /** Creates an app whose owner pays for it, and returns its id. */
  const createApp = (page: Page, name: string): Promise<string> =>
    page.evaluate(`(async () => {
      const { csrfToken } = await (await fetch('/api/v1/session')).json()
      const headers = { 'content-type': 'application/json', 'x-csrf-token': csrfToken }
      const body = JSON.stringify({ name: ${JSON.stringify(name)}, isCustomer: true })
      const answer = await fetch('/api/v1/apps', { method: 'POST', headers, body })
      return (await answer.json()).clientId
    })()`)

  /** Creates a plan of the platform app, which owners can take. Returns the status. */
  const createOwnerPlan = (page: Page, id: string): Promise<number> =>
    page.evaluate(`(async () => {
      const { csrfToken } = await (await fetch('/api/v1/session')).json()
      const account = await fetch('/api/v1/apps/${id}/billing/owner-plan')
      const { platformClientId } = await account.json()
      const headers = { 'content-type': 'application/json', 'x-csrf-token': csrfToken }
      const terms = { priceAmount: '30.00', includedUnits: '100', overageRateWei: '1' }
      const kind = { name: 'Team', type: 'subscription', status: 'active' }
      const body = JSON.stringify({ ...kind, ...terms, includedUsdMicros: '40000000' })
      const url = '/api/v1/apps/' + platformClientId + '/plans'
      return (await fetch(url, { method: 'POST', headers, body })).status
    })()`)

  const account = (page: Page, name: string) =>
    page
      .locator('dt', { hasText: new RegExp(`^${name}$`) })
      .locator('xpath=../dd')
      .innerText()

  it('tops up at a page of the processor, and shows the story of the balance', async () => {
    const page = await owner()
    const id = await createApp(page, 'Paid by its owner')
    await show(page, `/${id}/money`)
    expect(await account(page, 'Prepaid credit')).toBe('$0.00')
    await page.getByLabel('Top up').fill('0.10')
    await page.getByRole('button', { name: 'Pay', exact: true }).click()
    await page.getByRole('alert').waitFor()
    forgive(/422/)
    await page.getByLabel('Top up').fill('25')
    await page.getByRole('button', { name: 'Pay', exact: true }).click()
    await payAt(page)
    await page.waitForURL(new RegExp(`/app/${id}/money`))
    await page.getByText('as soon as the processor has reported it').waitFor()
    // The view reads again by itself.
    const row = page.getByRole('row', { name: /credit bought/ })
    await row.waitFor({ timeout: 20_000 })
    expect(await row.innerText()).toContain('$25.00')
    await expect.poll(() => account(page, 'Prepaid credit')).toBe('$25.00')
  })

  it('puts a card on file, and collects on request', async () => {
    const page = await owner()
    const id = await createApp(page, 'Paid by card')
    await show(page, `/${id}/money`)
    await page.getByRole('button', { name: /card/ }).click()
    await payAt(page)
    await page.waitForURL(new RegExp(`/app/${id}/money`))
    await page.getByText('Card on file').waitFor()
    await expect
      .poll(() => account(page, 'Card on file'), { timeout: 20_000 })
      .toMatch(/visa …\d{4}/)
    await page.getByRole('button', { name: 'Collect now' }).click()
    await page.getByText('the card on file is charged').waitFor()
    await confirmTyped(page, 'Collect')
    await page.getByText('are on no invoice').waitFor()
  })

  it('lets an owner whose users pay fill its own account, and take an owner plan', async () => {
    const page = await owner()
    const id = await createApp(page, 'Sells to users')
    expect(await createOwnerPlan(page, id)).toBe(201)
    const path = `/api/v1/apps/${id}/billing/settings`
    expect(await send(page, { method: 'PUT', path, body: { billingMode: 'merchant' } })).toBe(200)
    await show(page, `/${id}/money`)
    await page.getByRole('heading', { name: 'Your own account' }).waitFor()
    const before = await account(page, 'Prepaid credit')
    await page.getByLabel('Top up').fill('40')
    await page.getByRole('button', { name: 'Pay', exact: true }).click()
    await payAt(page)
    await page.waitForURL(new RegExp(`/app/${id}/money`))
    await expect.poll(() => account(page, 'Prepaid credit'), { timeout: 20_000 }).not.toBe(before)
    await page.getByRole('button', { name: 'Choose Team' }).click()
    await page.getByText('It covers all your apps').waitFor()
    await page.getByRole('button', { name: 'Take the plan' }).click()
    await page.getByText('Changed, with effect at').waitFor()
    await expect.poll(() => account(page, 'Your plan')).toBe('Team')
    expect(await violations(page)).toEqual([])
  })

  it('sets the ceiling of unpaid usage, and refuses one that is too low', async () => {
    const page = await owner(`/${clientId()}/money`)
    const card = page.getByRole('region', { name: 'Ceiling of unpaid usage' })
    const ceiling = card.getByLabel('Ceiling, in dollars')
    await ceiling.fill('0.50')
    await card.getByRole('button', { name: 'Save the ceiling' }).click()
    await card.getByRole('alert').waitFor()
    forgive(/409/)
    await ceiling.fill('33')
    await card.getByRole('button', { name: 'Save the ceiling' }).click()
    await page.getByText('may owe up to $33.00').waitFor()
    await card.getByText('Saved.').waitFor()
    await page.getByRole('button', { name: 'Use the default' }).click()
    await page.getByText(', the default').waitFor()
    await page.getByRole('button', { name: 'Use the default' }).waitFor({ state: 'detached' })
    expect(await page.getByRole('button', { name: 'Use the default' }).count()).toBe(0)
  })

  it('shows that the platform pays, and why there is no statement', async () => {
    const page = await owner(`/${clientId()}/money`)
    await page.getByText('The platform pays for this app').waitFor()
    await page.getByRole('button', { name: 'Download CSV' }).click()
    expect(await page.getByRole('alert').innerText()).toContain('Code')
    forgive(/404/)
  })

  it('leads to the account at the processor, and asks before it disconnects', async () => {
    // The processor leads back to PUBLIC_URL, so the session must be there.
    const home = quickstart().platformUrl.replace('127.0.0.1', 'localhost')
    const page = await open('/login')
    await page.goto(`${home}/app`)
    await logIn(page)
    const id = await createApp(page, 'Sells itself')
    await page.goto(`${home}/app/${id}/money`)
    await page.getByRole('button', { name: 'Connect an account' }).click()
    await page.waitForURL((url) => !url.pathname.startsWith('/app/'))
    await page.getByRole('button', { name: 'Complete the account' }).click()
    await page.waitForURL((url) => url.pathname.includes(id))
    await page.goto(`${home}/app/${id}/money`)
    await page.getByRole('button', { name: 'Disconnect' }).click()
    await page.getByText('can sell nothing until').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Disconnect' }).click()
    await page.getByRole('button', { name: 'Connect an account' }).waitFor()
    expect(await page.getByRole('heading', { name: 'Payment account' }).innerText()).toContain(
      'disconnected',
    )
  })

  it('lets a viewer read, and change nothing', async () => {
    const page = await open('/app')
    await logIn(page, viewer.email, viewer.password)
    await page.getByRole('button', { name: 'Accept' }).click()
    await page.getByRole('link', { name: 'Demo', exact: true }).waitFor()
    await show(page, `/${clientId()}/money`)
    const names = await page.getByRole('main').getByRole('button').allInnerTexts()
    expect(names).toEqual(['Download CSV'])
    const path = `/api/v1/apps/${clientId()}/billing/overage`
    expect(await send(page, { method: 'PUT', path, body: { ceilingUsdMicros: null } })).toBe(403)
    forgive(/403/)
  })

  it('is accessible in both themes, and fits a phone', { timeout: 120_000 }, async () => {
    const page = await owner()
    const id = await createApp(page, 'Seen')
    await show(page, `/${id}/money`)
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme })
      expect(await violations(page)).toEqual([])
    }
    await page.setViewportSize({ width: 360, height: 800 })
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360)
    expect(quickstart().platformUrl).toBe(new URL(page.url()).origin)
  })

  /** Pays at the simulated processor's page with its first test card. */
  async function payAt(page: Page): Promise<void> {
    await page.waitForURL((url) => !url.pathname.startsWith('/app/'))
    await page.locator('form button').first().click()
  }
})
