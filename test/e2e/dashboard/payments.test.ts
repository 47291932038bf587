import { readFile } from 'node:fs/promises'
import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import {
  executablePath,
  send,
  setUpDashboard,
  viewer as person,
  violations,
} from '../../support/web/dashboard.ts'

/** An app whose users pay it: its owner, and a person who is a user of it. */
describe.runIf(executablePath)('payments of users in the dashboard', () => {
  const dashboard = setUpDashboard({ DEVICE_POLL_SECONDS: '1' })
  const { quickstart, clientId, open, logIn, owner, show, forgive, spend } = dashboard
  beforeAll(dashboard.inviteViewer)
  let externalUserId = ''

  const openMine = async (): Promise<Page> => {
    const page = await open('/app/me')
    await logIn(page, person.email, person.password)
    await show(page, `/me/${clientId()}?part=payments`)
    return page
  }

  const figure = (page: Page, name: string) =>
    page
      .locator('dt', { hasText: new RegExp(`^${name}$`) })
      .locator('xpath=../dd')
      .innerText()

  /** Pays at the simulated processor's page with a test card, and comes back. */
  async function payWith(page: Page, card: RegExp): Promise<void> {
    await page.waitForURL((url) => !url.pathname.startsWith('/app/'))
    await page.getByRole('radio', { name: card }).check()
    await page.locator('form button').first().click()
    await page.waitForURL((url) => url.pathname.startsWith('/app/'))
    await page.getByText('as soon as the processor has reported it').waitFor()
  }

  /** Spends 21 dollars, and collects what is not covered. */
  async function collectFrom(page: Page, user: string): Promise<void> {
    await spend(user, { data: { computed_fee: '7000000000000000' } })
    await expect
      .poll(async () => {
        await show(page, `/${clientId()}/money?user=${encodeURIComponent(user)}`)
        return figure(page, 'Not yet invoiced')
      })
      .not.toMatch(/none|\$0\.00/)
    await page.getByRole('button', { name: 'Collect now' }).click()
    await page.getByLabel('Type collect to confirm').fill('collect')
    await page.getByRole('dialog').getByRole('button', { name: 'Collect' }).click()
    await page.getByText('Queued: it is collected within seconds.').waitFor()
  }

  /** Waits until the list shows the user's invoice with the status. */
  const showInvoice = async (page: Page, user: string, status: string): Promise<void> => {
    await expect
      .poll(
        async () => {
          await show(page, `/${clientId()}/invoices?user=${encodeURIComponent(user)}`)
          return page.getByRole('row').nth(1).innerText()
        },
        { timeout: 30_000 },
      )
      .toContain(status)
  }

  it('begin when the owner lets users pay, which needs an account', async () => {
    // The processor leads back to PUBLIC_URL, so the session must be there.
    const home = `${quickstart().platformUrl.replace('127.0.0.1', 'localhost')}/app`
    const page = await open('/login')
    await page.goto(home)
    await logIn(page)
    const path = `/api/v1/apps/${clientId()}`
    const settings = `${path}/billing/settings`
    expect(await send(page, { method: 'PUT', path, body: { loginPolicy: 'anyone' } })).toBe(200)
    const body = { isPlatformOwned: false }
    expect(await send(page, { method: 'PUT', path: settings, body })).toBe(200)
    const missing = page.getByText('No account at the payment processor is connected')
    await page.goto(`${home}/${clientId()}`)
    await page.getByText(/Nothing needs attention|Needs attention/).waitFor()
    expect(await missing.count()).toBe(0)

    await page.goto(`${home}/${clientId()}/money`)
    await page.getByRole('button', { name: 'Let users pay' }).click()
    await page.getByText('users can pay nothing until one is').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Let users pay' }).click()
    await page.getByText('Users pay this app: each has').waitFor()
    await page.goto(`${home}/${clientId()}`)
    await missing.waitFor()

    await page.goto(`${home}/${clientId()}/money`)
    await page.getByRole('button', { name: 'Connect an account' }).click()
    await page.getByRole('button', { name: 'Complete the account' }).click()
    await page.waitForURL((url) => url.pathname.includes(clientId()))
    await page.goto(`${home}/${clientId()}/money`)
    await page.getByRole('button', { name: 'Disconnect' }).waitFor()
  })

  it('have terms that a platform admin sets', async () => {
    const page = await owner(`/${clientId()}/money`)
    const terms = page.getByRole('region', { name: 'The platform’s terms' })
    const cut = terms.getByLabel('Cut, in percent')
    await cut.fill('100.5')
    await terms.getByText('Type a percentage up to 100').waitFor()
    await cut.fill('12.5')
    await terms.getByRole('button', { name: 'Save the cut' }).click()
    await terms.getByText('12.5 % from').waitFor()
    await terms.getByLabel('Active users at most').fill('500')
    await terms.getByRole('button', { name: 'Save the cap of users' }).click()
    await terms.getByRole('definition').filter({ hasText: /^500$/ }).waitFor()
    await terms.getByRole('button', { name: 'Use the deployment’s' }).click()
    await terms.getByText(', the deployment’s').waitFor()
    expect(await terms.getByRole('alert').count()).toBe(0)
  })

  it('top up what a person has, which shows without a reload', async () => {
    await dashboard.useAsViewer()
    const page = await openMine()
    externalUserId = await page.evaluate(
      `fetch('/api/v1/session').then((answer) => answer.json()).then((session) => 'user:' + session.accountId)`,
    )
    await page.getByLabel('Top up').fill('10')
    await page.getByRole('button', { name: 'Pay' }).click()
    await payWith(page, /4242/)
    const row = page.getByRole('row', { name: /credit bought/ })
    await row.waitFor({ timeout: 30_000 })
    expect(await row.innerText()).toContain('$10.00')
    await expect.poll(() => figure(page, 'Prepaid credit')).toBe('$10.00')

    // The payment put its card on file.
    await page.getByRole('button', { name: 'Change the card' }).click()
    await payWith(page, /0341/)
    await expect.poll(() => figure(page, 'Card on file'), { timeout: 30_000 }).toMatch(/visa …0341/)
  })

  it('fail with a declined card, and succeed with another one', { timeout: 120_000 }, async () => {
    const page = await owner()
    await collectFrom(page, externalUserId)
    await showInvoice(page, externalUserId, 'overdue')
    await show(page, `/${clientId()}`)
    await page.getByText('is overdue and tried again').waitFor()
    await page.getByRole('link', { name: 'See invoices' }).click()
    const chosen = page.locator('.tabs [aria-current]')
    await expect.poll(() => chosen.allInnerTexts()).toEqual(['To users'])

    const mine = await openMine()
    const invoices = mine.getByRole('region', { name: 'Table of my invoices' })
    expect(await invoices.getByRole('row').last().innerText()).toMatch(/overdue\s+\$6\.00/)
    const booked = mine.getByRole('row', { name: /INV-/ }).last()
    expect(await booked.innerText()).toContain('$6.00')
    await mine.getByRole('button', { name: 'Change the card' }).click()
    await payWith(mine, /4242/)
    await expect
      .poll(
        async () => {
          await show(mine, `/me/${clientId()}?part=payments`)
          return invoices.getByRole('row').last().innerText()
        },
        { timeout: 30_000 },
      )
      .toContain('paid')
    expect(await mine.getByRole('row', { name: /payment/ }).innerText()).toContain('$6.00')
  })

  it('are listed by state and user, and stored as a file', async () => {
    const page = await owner(`/${clientId()}/money`)
    // A midnight during the test pays out.
    const held = page.getByRole('region', { name: 'Balance and payouts' })
    await held.getByText(/^\$\d+\.\d\d available, \$0\.00 pending$/).waitFor()
    await held.getByText(/Nothing paid out yet|po_sim_/).waitFor()
    await page.route('**/billing/payouts?*', (route) => route.fulfill({ status: 503, body: '{}' }))
    await show(page, `/${clientId()}/money`)
    await held.getByRole('alert').waitFor()
    expect(await held.getByText('Nothing paid out yet').count()).toBe(0)
    forgive(/503/)
    await page.unroute('**/billing/payouts?*')
    await page.getByRole('link', { name: 'Payments of users' }).click()
    const rows = page.getByRole('region', { name: 'Table of payments' }).getByRole('row')
    await expect.poll(() => rows.count()).toBeGreaterThan(2)
    expect(await rows.last().innerText()).toMatch(/top-up\s+received\s+\$10\.00\s+\$0\.00/)
    await page.getByLabel('State').selectOption('refunded')
    await page.getByText('No payment fits the filter.').waitFor()
    expect(new URL(page.url()).search).toBe('?state=refunded')
    await page.getByRole('button', { name: 'Show all' }).click()
    await expect.poll(() => rows.count()).toBeGreaterThan(2)
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Download CSV' }).click(),
    ])
    expect(file.suggestedFilename()).toBe('payments.csv')
    const table = await readFile(await file.path(), 'utf8')
    expect(table).toMatch(/^createdAt,.*amountUsd/)
    expect(table).toContain(',top_up,10.00,')
    await page.getByLabel('User (external id)').fill('nobody_')
    await page.getByRole('button', { name: 'Show', exact: true }).click()
    await page.getByText('No payment fits the filter.').waitFor()
  })

  it('are credited in part by a credit note, after its amount was typed', async () => {
    const page = await owner()
    await showInvoice(page, externalUserId, 'paid')
    await page.getByRole('link', { name: 'INV-000001' }).click()
    const make = page.getByRole('button', { name: 'Make a credit note' })
    await page.getByLabel('Reason').fill('Slow answers')
    await page.getByLabel('Amount in dollars').fill('6.01')
    await page.getByText('At most $6.00, in whole cents.').waitFor()
    expect(await make.isDisabled()).toBe(true)
    await page.getByLabel('Amount in dollars').fill('1.5')
    await make.click()
    const confirm = page.getByRole('dialog').getByRole('button', { name: 'Credit' })
    expect(await confirm.isDisabled()).toBe(true)
    await page.getByLabel('Type 1.50 to confirm').fill('1.50')
    await confirm.click()
    await page.getByRole('row', { name: /Credited since/ }).waitFor()
    await page.getByRole('status').getByRole('link', { name: 'CN-000001' }).click()
    const corrected = page.getByRole('link', { name: 'INV-000001' })
    await corrected.waitFor()
    await page.getByText('Slow answers').waitFor()
    expect(await page.getByRole('heading', { name: 'Correct this invoice' }).count()).toBe(0)
    await corrected.click()
    const notes = page.getByRole('region', { name: 'Table of credit notes' })
    const row = notes.getByRole('row', { name: /CN-000001/ })
    await row.waitFor()
    expect(await row.innerText()).toMatch(/credit\s+Slow answers\s+-\$1\.50/)
  })

  it('are not owed after the invoice was voided, and a second time is refused', async () => {
    const page = await owner()
    await collectFrom(page, 'bob')
    await showInvoice(page, 'bob', '$16.00')
    await show(page, `/${clientId()}/money`)
    await page.getByRole('button', { name: 'Pay for all users' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Pay for all users' }).click()
    await page.getByText("something of the app's users is unpaid; collect it first").waitFor()
    forgive(/409/)

    const openBobs = async (opened: Page) => {
      await show(opened, `/${clientId()}/invoices?user=bob`)
      await opened.getByRole('link', { name: 'INV-000002' }).click()
      await opened.getByLabel('Reason').fill('A mistake of ours')
      await opened.getByRole('button', { name: 'Void the invoice' }).click()
      await opened.getByLabel('Type INV-000002 to confirm').fill('INV-000002')
    }
    const other = await owner()
    await openBobs(page)
    await openBobs(other)
    await page.getByRole('dialog').getByRole('button', { name: 'Void' }).click()
    await page.getByText('void', { exact: true }).waitFor()
    await other.getByRole('dialog').getByRole('button', { name: 'Void' }).click()
    await other.getByText('the invoice is void already').waitFor()
    forgive(/409/)
    await show(page, `/${clientId()}/invoices?payer=users`)
    const rows = page.getByRole('region', { name: 'Table of invoices' }).getByRole('row')
    await page.getByLabel('Status').selectOption('void')
    await page.getByText('1 in all').waitFor()
    expect(await rows.last().innerText()).toMatch(/INV-000002.*void/s)
    expect(new URL(page.url()).search).toBe('?payer=users&status=void')
    const answers = Promise.withResolvers<void>()
    await page.route('**/billing/invoices?*status=uncollectible*', async (route) => {
      await answers.promise
      await route.continue()
    })
    await page.getByLabel('Status').selectOption('uncollectible')
    await rows.first().waitFor({ state: 'detached' })
    answers.resolve()
    await page.getByText('No document has this status.').waitFor()
    await show(page, `/${clientId()}/invoices?payer=owner`)
    await page.getByText('No invoice was issued to this app’s owner').waitFor()
    expect(await page.getByLabel('User (external id)').count()).toBe(0)
  })

  it('are accessible in both themes, and fit a phone', { timeout: 120_000 }, async () => {
    const page = await openMine()
    await page.setViewportSize({ width: 360, height: 740 })
    const admin = await owner()
    await admin.setViewportSize({ width: 360, height: 740 })
    await show(admin, `/${clientId()}/invoices`)
    const address = await admin.getByRole('link', { name: 'INV-000001' }).getAttribute('href')
    const views = [
      [page, `/me/${clientId()}?part=payments`],
      [admin, (address ?? '').replace('/app', '')],
      [admin, `/${clientId()}/money/payments`],
    ] as const
    for (const [shown, view] of views) {
      await show(shown, view)
      const width: number = await shown.evaluate('document.documentElement.scrollWidth')
      expect({ view, width }).toEqual({ view, width: 360 })
      for (const colorScheme of ['light', 'dark'] as const) {
        await shown.emulateMedia({ colorScheme })
        const found = await violations(shown)
        expect({ view, colorScheme, found }).toEqual({ view, colorScheme, found: [] })
      }
    }
  })

  it('leave lost calls among what needs attention', async () => {
    const page = await owner()
    await page.route('**/usage/loss?*', async (route) => {
      const response = await route.fetch()
      const body = JSON.parse(await response.text())
      const calls = { ...body.calls, lostCount: 2, lostUsdMicros: '720000' }
      await route.fulfill({ response, json: { ...body, calls } })
    })
    await show(page, `/${clientId()}`)
    await page.getByText('2 signed calls have no ticket and are not charged').waitFor()
    expect(await page.getByText('0 tickets of the range').count()).toBe(0)
    await page.unroute('**/usage/loss?*')
  })
})
