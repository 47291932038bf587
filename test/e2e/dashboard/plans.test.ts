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

describe.runIf(executablePath)('plans and receipts in the dashboard', () => {
  const { clientId, open, logIn, owner, show, forgive, inviteViewer, spend } = setUpDashboard()
  beforeAll(async () => {
    await inviteViewer()
    await spend('ada')
  })

  interface Plan {
    readonly id: string
    readonly name: string
    readonly version: number
    readonly overageRateUsd: string | null
    readonly includedUsdMicros: string | null
  }

  /** Returns what the API answers to the page's session. */
  const readPlans = (page: Page): Promise<Plan[]> =>
    page.evaluate(`fetch('/api/v1/apps/${clientId()}/plans').then((answer) => answer.json())`)

  /** Creates a plan by the form, and waits for the list. */
  async function create(page: Page, name: string): Promise<void> {
    await page.getByRole('link', { name: 'New plan' }).click()
    await page.getByLabel('Name').fill(name)
    await page.getByLabel('Included usage, in dollars').fill('5')
    await page.getByLabel('Usage costs').fill('150')
    await page.getByRole('button', { name: 'Create the plan' }).click()
    await page.getByRole('row', { name: new RegExp(name) }).waitFor()
  }

  it('creates a plan, shows the price of a job before, and makes a version of a change', async () => {
    const page = await owner(`/${clientId()}/plans`)
    await page.getByRole('link', { name: 'New plan' }).click()
    await page.getByLabel('Name').fill('Maker')
    await page.getByLabel('Included usage, in dollars').fill('5')
    await page.getByLabel('Usage costs').fill('150')
    await page.getByLabel('A job that costs').fill('0.02')
    await page.getByText('$0.03', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Create the plan' }).click()
    const row = page.getByRole('row', { name: /Maker/ })
    expect(await row.innerText()).toContain('150 % of the network price')
    expect(await readPlans(page)).toContainEqual(
      expect.objectContaining({
        name: 'Maker',
        version: 1,
        includedUsdMicros: '5000000',
        overageRateUsd: '0.0000015',
      }),
    )
    await row.getByRole('link', { name: 'Edit Maker' }).click()
    const percent = page.getByLabel('Usage costs')
    expect(await percent.inputValue()).toBe('150')
    await percent.fill('120.5')
    await page.getByRole('button', { name: 'Save as version 2' }).click()
    await page.getByText('120.5 % of the network price').waitFor()
    await page.getByRole('link', { name: /version \d+ of Maker/ }).click()
    await page.getByText('1 of 8 terms differ.').waitFor()
    const costs = page.getByRole('row', { name: /^Usage costs/ })
    expect(await costs.innerText()).toMatch(/150 %.*\s120\.5 %.*\schanged/)
    await page.getByRole('combobox', { name: /^with/ }).selectOption('1')
    await page.getByText('No term differs.').waitFor()
    await page.reload()
    await page.getByText('No term differs.').waitFor()
    await page.getByRole('link', { name: 'All plans' }).click()
    await page.getByRole('button', { name: 'Delete Maker' }).click()
    await page.getByText('Nobody can choose it any more.').waitFor()
    await confirmTyped(page, 'Delete')
    await row.waitFor({ state: 'detached' })
  })

  it('keeps what the form does not show, and a plan that includes nothing', async () => {
    const page = await owner(`/${clientId()}/plans`)
    const path = `/api/v1/apps/${clientId()}/plans`
    const body = { name: 'Zero', type: 'usage', includedUsdMicros: '0' }
    expect(await send(page, { method: 'POST', path, body })).toBe(201)
    await page.reload()
    await page.getByRole('link', { name: 'Edit Zero' }).click()
    expect(await page.getByLabel('Included usage, in dollars').inputValue()).toBe('0.00')
    await page.getByLabel('Name').fill('Nothing')
    await page.getByRole('button', { name: 'Save as version 2' }).click()
    await page.getByRole('row', { name: /Nothing/ }).waitFor()
    const saved = (await readPlans(page)).find(({ name }) => name === 'Nothing')
    expect(saved?.includedUsdMicros).toBe('0')
  })

  it('tries a draft on past tickets', async () => {
    const page = await owner(`/${clientId()}/plans/new`)
    await page.getByLabel('Name').fill('Double')
    await page.getByLabel('Usage costs').fill('200')
    const revenue = page.getByRole('row', { name: /^Revenue/ })
    await expect
      .poll(async () => {
        await page.getByRole('button', { name: 'Try', exact: true }).click()
        await revenue.waitFor()
        return revenue.innerText()
      })
      .toMatch(/Revenue\s+\$0\.36\s+\$0\.72/)
    await page.getByText('Users with tickets: 1, of whom 1 would pay more').waitFor()
    const widths = await page
      .locator('.pairs > div')
      .filter({ hasText: 'Revenue' })
      .locator('rect')
      .evaluateAll((bars: { getAttribute(name: string): string | null }[]) =>
        bars.map((bar) => Number(bar.getAttribute('width'))),
      )
    expect((widths[1] ?? 0) / (widths[0] ?? 0)).toBeCloseTo(2)
    await page.getByRole('button', { name: 'Last month' }).click()
    const [first] = new Date(new Date().setUTCDate(0)).toISOString().split(/-\d\dT/)
    expect(await page.getByLabel('From (UTC)').inputValue()).toBe(`${first}-01`)
    expect(await page.getByLabel('Before (UTC)').inputValue()).toMatch(/-01$/)
    expect((await readPlans(page)).map(({ name }) => name)).not.toContain('Double')
  })

  it('checks the signed receipt of a ticket, and finds what was changed in it', async () => {
    const usage = `/${clientId()}/users/ada?part=usage`
    const page = await owner(usage)
    await expect
      .poll(async () => {
        await show(page, usage)
        return page.getByRole('link', { name: /^Explain the ticket/ }).count()
      })
      .toBe(1)
    await page.getByRole('link', { name: /^Explain the ticket/ }).click()
    await page.getByRole('link', { name: 'Check its signed receipt' }).click()
    await page.getByText('This receipt is right.').waitFor()
    const rows = page.getByRole('region', { name: 'Table of checks' }).getByRole('row')
    expect(await rows.filter({ hasText: 'Signature of the receipt' }).innerText()).toContain(
      'right',
    )
    expect(await page.getByRole('main').innerText()).toMatch(/User\s+ada\s/)
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme })
      expect({ colorScheme, found: await violations(page) }).toEqual({ colorScheme, found: [] })
    }
    await page.setViewportSize({ width: 360, height: 800 })
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360)
    const field = page.getByLabel('The JSON of the receipt')
    const document: { receipt: string; proof: object } = JSON.parse(await field.inputValue())
    const wrong = page.getByText('This receipt is wrong.')
    await field.fill(JSON.stringify({ ...document, proof: { ...document.proof, treeSize: 2 } }))
    await wrong.waitFor()
    expect(await wrong.innerText()).toContain('Place in the charge')
    const [head, body = '', signature] = document.receipt.split('.')
    const cheaper = atob(body.replaceAll('-', '+').replaceAll('_', '/')).replace('"0.36"', '"0.16"')
    const forged = [head, Buffer.from(cheaper, 'latin1').toString('base64url'), signature].join('.')
    await field.fill(JSON.stringify({ ...document, receipt: forged }))
    await expect.poll(() => wrong.innerText()).toContain('Signature of the receipt')
    expect(await page.getByText('Network cost in USD').count()).toBe(0)
    await field.fill('nothing')
    await page.getByText('This is not a JSON object.').waitFor()
    const keys = page.getByLabel('Public keys that you kept')
    await page.getByText('Keys', { exact: true }).click()
    await keys.fill('{"keys":[]}')
    await field.fill(JSON.stringify(document))
    await page.getByText('is not among the 0 trusted keys').waitFor()
  })

  it('explains what is wrong before and after it is sent, and keeps what was typed', async () => {
    const page = await owner(`/${clientId()}/plans/new`)
    await page.getByLabel('Name').fill('Wrong')
    await page.getByLabel('Usage costs').fill('1,5')
    await page.getByText('must be per cent of the network price').waitFor()
    const button = page.getByRole('button', { name: 'Create the plan' })
    expect(await button.isDisabled()).toBe(true)
    await page.getByLabel('Usage costs').fill('150')
    await page.getByRole('button', { name: 'Add a price' }).click()
    await page.getByLabel('Pipeline 1', { exact: true }).fill('no-such-pipeline')
    await button.click()
    await page.getByRole('alert').waitFor()
    expect(await page.getByLabel('Pipeline 1', { exact: true }).inputValue()).toBe(
      'no-such-pipeline',
    )
    forgive(/400/)
  })

  it('changes what Starter includes', async () => {
    const page = await owner(`/${clientId()}/plans`)
    const included = page.getByLabel('Included usage of each period')
    await included.fill('nothing')
    await page.getByText('Type dollars').waitFor()
    await included.fill('7.5')
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    await page.getByText('Saved.').waitFor()
    await page.reload()
    expect(await included.inputValue()).toBe('7.50')
  })

  it('lets a viewer read, and change nothing', async () => {
    const page = await open('/app')
    await logIn(page, viewer.email, viewer.password)
    await page.getByRole('button', { name: 'Accept' }).click()
    await page.getByRole('link', { name: 'Demo', exact: true }).waitFor()
    await show(page, `/${clientId()}/plans`)
    await page.getByRole('row', { name: /Starter/ }).waitFor()
    expect(await page.getByRole('main').getByRole('button').count()).toBe(0)
    expect(await page.getByRole('link', { name: 'New plan' }).count()).toBe(0)
    await show(page, `/${clientId()}/plans/new`)
    await page.getByText('may not change plans').waitFor()
    const path = `/api/v1/apps/${clientId()}/plans`
    expect(await send(page, { method: 'POST', path, body: { name: 'x' } })).toBe(403)
    forgive(/403/)
  })

  it('is accessible in both themes, and fits a phone', { timeout: 120_000 }, async () => {
    const page = await owner(`/${clientId()}/plans`)
    await create(page, 'Seen')
    for (const view of ['/plans', '/plans/new']) {
      await show(page, `/${clientId()}${view}`)
      if (view !== '/plans') await page.getByRole('button', { name: 'Add a price' }).click()
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme })
        const found = await violations(page)
        expect({ view, colorScheme, found }).toEqual({ view, colorScheme, found: [] })
      }
      await page.setViewportSize({ width: 360, height: 800 })
      const width = await page.evaluate('document.documentElement.scrollWidth')
      expect({ view, width }).toEqual({ view, width: 360 })
      await page.setViewportSize({ width: 1280, height: 900 })
    }
  })
})
