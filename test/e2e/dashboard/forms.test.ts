import type { Locator, Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import {
  confirmTyped,
  executablePath,
  send,
  setUpDashboard,
  viewer,
} from '../../support/web/dashboard.ts'

/** Forms and the keyboard: what was typed stays, and the focus is where a person goes on. */
describe.runIf(executablePath)('the forms of the dashboard', () => {
  const { quickstart, clientId, owner, logIn, forgive, inviteViewer, spend } = setUpDashboard()
  beforeAll(async () => {
    await inviteViewer()
    await spend('ada')
  })

  const ada = (search = ''): string => `/${clientId()}/users/ada${search}`
  const endSession = (page: Page): Promise<void> => page.context().clearCookies()
  const focused = (page: Page): Promise<string> =>
    page.evaluate('document.activeElement.textContent || document.activeElement.tagName')

  /** Follows "Log in again" at a form or in a dialog to its tab, and logs in there. */
  async function logInAgain(page: Page, at: Locator): Promise<void> {
    const opened = page.context().waitForEvent('page')
    await at.getByRole('link', { name: 'Log in again (new tab)' }).last().click()
    const tab = await opened
    await logIn(tab)
    await tab.getByRole('heading', { name: 'You are logged in', level: 1 }).waitFor()
  }

  it('keeps a gift that was typed before the session ended, and gives it after a login', async () => {
    const page = await owner(ada())
    const amount = page.getByLabel('Amount in dollars')
    await amount.fill('3.25')
    await page.getByLabel('Reason').selectOption('promo')
    await endSession(page)
    const give = page.getByRole('button', { name: 'Give credit' })
    await give.click()
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('button', { name: 'Give', exact: true }).click()
    await dialog.getByText('Your session has ended.').waitFor()
    await logInAgain(page, dialog)
    await dialog.getByText('You are logged in again.').waitFor()
    await expect.poll(() => page.getByText('Your session has ended.').count()).toBe(0)
    expect(await amount.inputValue()).toBe('3.25')
    expect(await page.getByLabel('Reason').inputValue()).toBe('promo')
    await dialog.getByRole('button', { name: 'Give', exact: true }).click()
    await page.getByText('Gave $3.25.').waitFor()
    forgive(/40[134]/)
  })

  it('keeps a plan that was typed, and saves it under a session that another tab began', async () => {
    const page = await owner(`/${clientId()}/plans/new`)
    await page.getByLabel('Name').fill('Patience')
    await page.getByLabel('Usage costs').fill('150')
    await endSession(page)
    const save = page.getByRole('button', { name: 'Create the plan' })
    await save.click()
    await logInAgain(page, page.locator('main'))
    expect(await page.getByLabel('Name').inputValue()).toBe('Patience')
    expect(await page.getByLabel('Usage costs').inputValue()).toBe('150')
    // A login outside the dashboard, so that this tab has the token of the session before.
    await endSession(page)
    const tab = await page.context().newPage()
    await tab.goto(`${quickstart().platformUrl}/login?return_to=/invitations`)
    await logIn(tab)
    await save.click()
    await page.getByRole('row', { name: /Patience/ }).waitFor()
    forgive(/40[134]/)
  })

  it('begins with empty forms when another account has logged in, and sends nothing as it', async () => {
    const page = await owner(ada())
    await page.getByLabel('Amount in dollars').fill('9')
    await endSession(page)
    const tab = await page.context().newPage()
    await tab.goto(`${quickstart().platformUrl}/login?return_to=/invitations`)
    await logIn(tab, viewer.email, viewer.password)
    const answered = page.waitForResponse(/\/allowances$/)
    await page.getByRole('button', { name: 'Give credit' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Give', exact: true }).click()
    // The viewer has not accepted its invitation, so the app is hidden from it.
    expect((await answered).status()).toBe(404)
    await page.getByText(viewer.email).first().waitFor()
    await expect.poll(() => page.getByLabel('Amount in dollars').count()).toBe(0)
    forgive(/40[134]/)
  })

  it('moves the focus to the title of a view, and back after a confirmed act', async () => {
    const page = await owner(`/${clientId()}/users`)
    const path = `/api/v1/internal/apps/${clientId()}/users/ada/keys`
    expect(await send(page, { method: 'POST', path, body: { label: 'laptop' } })).toBe(201)
    const user = page.getByRole('link', { name: 'ada', exact: true })
    await user.waitFor()
    // The first view is read with the document.
    expect(await page.evaluate('document.activeElement.tagName')).toBe('BODY')
    await user.click()
    await expect.poll(() => focused(page)).toBe('ada')
    // Parts of a view keep the focus where it was.
    await page.getByRole('link', { name: 'Keys', exact: true }).click()
    await page.getByRole('row', { name: /laptop/ }).waitFor()
    expect(await focused(page)).toBe('Keys')
    const revoke = page.getByRole('button', { name: 'Revoke the key laptop' })
    await revoke.click()
    await page.keyboard.press('Escape')
    await expect.poll(() => focused(page)).toBe('Revoke')
    await revoke.click()
    await confirmTyped(page, 'Revoke')
    await revoke.waitFor({ state: 'detached' })
    await expect.poll(() => focused(page)).toBe('ada')
  })

  it('shows exact amounts and UTC in place, and folds navigation and account of a phone', async () => {
    const page = await owner(ada(), { viewport: { width: 360, height: 800 } })
    const money = page.locator('dt', { hasText: 'Credit ever given' }).locator('xpath=../dd/span')
    const rounded = await money.innerText()
    const link = page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Team' })
    const exact = page.getByRole('button', { name: 'Exact values' })
    expect(await page.getByRole('link', { name: 'Team' }).count()).toBe(0)
    expect(await exact.count()).toBe(0)
    await page.getByText('Menu', { exact: true }).click()
    await exact.press('Enter')
    await expect.poll(() => money.innerText()).toBe(await money.getAttribute('title'))
    expect(await page.locator('time').first().innerText()).toMatch(/ UTC$/)
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360)
    await exact.press('Enter')
    await expect.poll(() => money.innerText()).toBe(rounded)
    await link.click()
    await page.getByRole('heading', { name: 'Team', level: 1 }).waitFor()
    await expect.poll(() => link.isVisible()).toBe(false)
  })
})
