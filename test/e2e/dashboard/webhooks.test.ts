import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { startHookReceiver } from '../../../deploy/demo/hook-receiver.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import {
  confirmTyped,
  executablePath,
  send,
  setUpDashboard,
  viewer,
  violations,
} from '../../support/web/dashboard.ts'

describe.runIf(executablePath)('webhooks in the dashboard', () => {
  const { quickstart, clientId, open, logIn, owner, show, forgive, inviteViewer, spend } =
    setUpDashboard()
  beforeAll(inviteViewer)

  async function startReceiver() {
    const receiver = await startHookReceiver()
    onTestFinished(receiver.stop)
    return receiver
  }

  /** Adds an endpoint by the form and returns its secret. */
  async function add(page: Page, url: string): Promise<string> {
    await page.getByLabel('Address').fill(url)
    await page.getByLabel('Note').fill('the shop')
    await page.getByText('Events: all').click()
    await page.getByRole('checkbox', { name: 'user.created' }).check()
    await page.getByRole('checkbox', { name: 'key.created' }).check()
    await page.getByRole('button', { name: 'Add', exact: true }).click()
    const shown = page.getByRole('status', { name: 'Secret of the endpoint' })
    const secret = await shown.locator('code').innerText()
    expect(secret).toMatch(/^whsec_/)
    registerSecret(secret)
    await page.getByRole('button', { name: 'I have stored it' }).click()
    await shown.waitFor({ state: 'detached' })
    return secret
  }

  const deliveries = (page: Page) =>
    page.getByRole('region', { name: 'Table of deliveries' }).getByRole('row')

  it('adds an endpoint, shows its secret once, and what was delivered', async () => {
    const receiver = await startReceiver()
    const page = await owner(`/${clientId()}/webhooks`)
    receiver.trust(await add(page, receiver.url))
    await page.getByRole('link', { name: receiver.url }).click()
    await page.getByText('user.created, key.created').waitFor()
    await page.getByRole('button', { name: 'Send a test event' }).click()
    await deliveries(page).filter({ hasText: 'webhook.ping' }).getByText('delivered').waitFor()
    await spend('grace')
    await expect.poll(() => receiver.events().map(({ type }) => type)).toContain('user.created')
    await page.reload()
    const created = deliveries(page).filter({ hasText: 'user.created' })
    await created.getByText('delivered').waitFor()
    expect(await created.innerText()).toMatch(/HTTP 204 in \d+ ms/)
    await created.getByText('Show').click()
    await created.getByText('"externalUserId": "grace"').waitFor()
    expect(receiver.refused()).toBe(0)
    await remove(page)
  })

  it('shows why a delivery failed, and sends it again with the same id', async () => {
    const receiver = await startReceiver()
    const page = await owner(`/${clientId()}/webhooks`)
    const secret = await add(page, receiver.url)
    await page.getByRole('link', { name: receiver.url }).click()
    // The receiver does not know the secret yet, so it answers 400.
    await page.getByRole('button', { name: 'Send a test event' }).click()
    const ping = deliveries(page).filter({ hasText: 'webhook.ping' })
    await ping.getByText('HTTP 400').waitFor()
    await page.getByLabel('State').selectOption('delivered')
    await page.getByText('is in this state').waitFor()
    await page.waitForURL(/status=delivered/)
    await page.goBack()
    await ping.waitFor()
    receiver.trust(secret)
    await ping.getByText('Show').click()
    await ping.getByRole('button', { name: 'Send again' }).click()
    await expect.poll(() => receiver.events().length).toBe(1)
    await expect.poll(() => deliveries(page).getByText('HTTP 204').count()).toBeGreaterThan(0)
    await remove(page)
  })

  it('makes a second secret, disables and enables', async () => {
    const receiver = await startReceiver()
    const page = await owner(`/${clientId()}/webhooks`)
    await add(page, receiver.url)
    await page.getByRole('link', { name: receiver.url }).click()
    await page.getByRole('button', { name: 'New secret' }).click()
    await page.getByText('signed with both secrets for a day').waitFor()
    await page.getByRole('button', { name: 'Make a new secret' }).click()
    const secret = await page.getByText(/^whsec_/).innerText()
    registerSecret(secret)
    receiver.trust(secret)
    await page.getByRole('button', { name: 'I have stored it' }).click()
    await expect.poll(() => page.getByText(/hmac, made/).count()).toBe(2)
    await page.getByRole('button', { name: 'Send a test event' }).click()
    await expect.poll(() => receiver.events().length).toBe(1)
    await page.getByRole('button', { name: 'Disable' }).click()
    await page.getByText('It receives nothing until').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Disable' }).click()
    await page.getByText('disabled by a member').waitFor()
    expect(await page.getByRole('button', { name: 'Send a test event' }).isDisabled()).toBe(true)
    await page.getByRole('button', { name: 'Enable' }).click()
    await page.getByRole('button', { name: 'Disable' }).waitFor()
    await remove(page)
  })

  it('changes address, note and events, and keeps the secret and the log', async () => {
    const receiver = await startReceiver()
    const page = await owner(`/${clientId()}/webhooks`)
    receiver.trust(await add(page, `${receiver.url}?old`))
    await page.getByRole('link', { name: receiver.url }).click()
    await page.getByRole('button', { name: 'Send a test event' }).click()
    await deliveries(page).getByText('HTTP 204').waitFor()
    await page.getByRole('button', { name: 'Edit' }).click()
    const form = page.getByRole('form', { name: 'Edit the endpoint' })
    await form.getByLabel('Address').fill('ftp://example.com')
    await form.getByRole('button', { name: 'Save' }).click()
    await form.getByRole('alert').getByText('https').waitFor()
    await form.getByLabel('Address').fill(receiver.url)
    await form.getByLabel('Note').fill('the new shop')
    await form.getByText('Events: 2 types').click()
    await form.getByRole('checkbox', { name: 'key.created' }).uncheck()
    await form.getByRole('button', { name: 'Save' }).click()
    await form.waitFor({ state: 'detached' })
    const facts = page.getByRole('region', { name: 'Endpoint', exact: true })
    await facts.getByText('the new shop').waitFor()
    expect(await facts.getByText(receiver.url, { exact: true }).count()).toBe(1)
    expect(await facts.getByText('user.created', { exact: true }).count()).toBe(1)
    expect(await deliveries(page).getByText('HTTP 204').count()).toBe(1)
    await page.getByRole('button', { name: 'Send a test event' }).click()
    await expect.poll(() => receiver.events().length).toBe(2)
    expect(receiver.refused()).toBe(0)
    forgive(/400/)
    await remove(page)
  })

  it('explains a refused address', async () => {
    const page = await owner(`/${clientId()}/webhooks`)
    await page.getByLabel('Address').fill('ftp://example.com/hooks')
    await page.getByRole('button', { name: 'Add', exact: true }).click()
    await page.getByRole('alert').getByText('https').waitFor()
    expect(await page.getByLabel('Address').inputValue()).toBe('ftp://example.com/hooks')
    forgive(/400/)
  })

  it('lets a viewer read, and change nothing', async () => {
    const page = await open('/app')
    await logIn(page, viewer.email, viewer.password)
    await page.getByRole('button', { name: 'Accept' }).click()
    await page.getByRole('link', { name: 'Demo', exact: true }).waitFor()
    await show(page, `/${clientId()}/webhooks`)
    await page.getByText('No endpoint receives events yet.').waitFor()
    expect(await page.getByRole('main').getByRole('button').count()).toBe(0)
    const path = `/api/v1/apps/${clientId()}/webhook-endpoints`
    const body = { url: 'https://example.com' }
    expect(await send(page, { method: 'POST', path, body })).toBe(403)
    forgive(/403/)
  })

  it('is accessible in both themes, and fits a phone', { timeout: 120_000 }, async () => {
    const receiver = await startReceiver()
    const page = await owner(`/${clientId()}/webhooks`)
    receiver.trust(await add(page, receiver.url))
    await page.getByRole('link', { name: receiver.url }).click()
    await page.getByRole('button', { name: 'Send a test event' }).click()
    await deliveries(page).getByText('HTTP 204').waitFor()
    const view = new URL(page.url()).pathname
    for (const path of [view, view.replace(/\/[^/]*$/, '')]) {
      await page.goto(quickstart().platformUrl + path)
      await page.getByRole('table').waitFor()
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme })
        const found = await violations(page)
        expect({ path, colorScheme, found }).toEqual({ path, colorScheme, found: [] })
      }
      await page.setViewportSize({ width: 360, height: 800 })
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360)
      await page.setViewportSize({ width: 1280, height: 900 })
    }
  })

  async function remove(page: Page): Promise<void> {
    await page.getByRole('button', { name: 'Delete' }).click()
    await page.getByText('This cannot be undone.').waitFor()
    await confirmTyped(page, 'Delete')
    await page.getByText('No endpoint receives events yet.').waitFor()
    // The view may read its deliveries once more before it is left.
    forgive(/404/, /deliveries/)
  }
})
