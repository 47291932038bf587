import { randomBytes } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Page } from 'playwright-core'
import { basic } from '../../../deploy/cli/client.ts'
import {
  confirmTyped,
  executablePath,
  send,
  setUpDashboard,
  viewer as person,
  violations,
} from '../../support/web/dashboard.ts'
import { registerSecret } from '../../support/run/secrecy.ts'

type Answer = Record<string, string>

describe.runIf(executablePath)("a person's own use of an app", () => {
  const {
    quickstart,
    clientId,
    open,
    logIn,
    owner,
    show,
    inviteViewer,
    openSignerSession,
    useAsViewer,
    spend,
  } = setUpDashboard({
    DEVICE_POLL_SECONDS: '1',
  })
  beforeAll(inviteViewer)
  let refreshToken = ''
  let externalUserId = ''

  const post = async (url: string, fields: Answer): Promise<Answer> =>
    JSON.parse(
      await (await fetch(url, { method: 'POST', body: new URLSearchParams(fields) })).text(),
    )
  const oidc = (path: string, fields: Answer) =>
    post(quickstart().issuer + path, { client_id: clientId(), ...fields })

  /** Calls a route of the app's backend. */
  const backend = async (method: string, path: string, body: object = {}): Promise<Answer> => {
    const { m2mClientId, m2mClientSecret, platformUrl } = quickstart()
    const answer = await fetch(`${platformUrl}/api/v1/apps/${clientId()}${path}`, {
      method,
      headers: {
        'content-type': 'application/json',
        authorization: basic(m2mClientId, m2mClientSecret),
      },
      body: JSON.stringify(body),
    })
    expect(answer.status).toBeLessThan(300)
    return JSON.parse(await answer.text())
  }

  /** Returns the status with which the sidecar answers a signer's question about a credential. */
  async function authorize(credential: string): Promise<number> {
    const { sidecarUrl, webhookSecret } = quickstart()
    const answer = await fetch(`${sidecarUrl}/authorize`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${webhookSecret}` },
      body: JSON.stringify({
        headers: { Authorization: [`Bearer ${credential}`] },
        state: {
          StateID: randomBytes(4).toString('hex'),
          LastUpdate: new Date().toISOString(),
          SequenceNumber: 0,
          AuthID: '',
          Balance: '1',
          InitialPricePerUnit: 1,
          InitialPixelsPerUnit: 1,
          Type: 'fixed',
          App: 'acme/echo',
          AuthExpiry: 0,
        },
      }),
    })
    const body: { status?: number } = JSON.parse(await answer.text())
    return body.status ?? answer.status
  }

  const openMine = async (view = ''): Promise<Page> => {
    const page = await open('/app/me')
    await logIn(page, person.email, person.password)
    await show(page, `/me${view}`)
    return page
  }

  it('is empty for a person who has never logged in to an app', async () => {
    const page = await open('/app')
    await logIn(page, person.email, person.password)
    await page.getByRole('link', { name: 'My use' }).click()
    await page.getByText('You use no app yet.').waitFor()
    await show(page, `/me/${clientId()}`)
    expect(await page.locator('main').innerText()).toContain('You have never logged in to this app')
  })

  it('begins when the person logs in to an app on a device', async () => {
    const admin = await owner()
    const path = `/api/v1/apps/${clientId()}`
    expect(await send(admin, { method: 'PUT', path, body: { loginPolicy: 'anyone' } })).toBe(200)
    refreshToken = await useAsViewer()
    const page = await openMine()
    await page.getByRole('row', { name: /Demo .* active/ }).waitFor()
    externalUserId = await page.evaluate(
      `fetch('/api/v1/session').then((answer) => answer.json()).then((session) => 'user:' + session.accountId)`,
    )
  })

  it('shows what the person has spent by real tickets, and what is left', async () => {
    const page = await openMine()
    await page.getByRole('link', { name: 'Demo' }).click()
    const figure = (name: string) =>
      page.locator('dt', { hasText: name }).locator('xpath=../dd').first().innerText()
    await page.getByText('You made no call in this month.').first().waitFor()
    const before = await figure('Balance')
    await spend(externalUserId)
    await expect
      .poll(async () => {
        await show(page, `/me/${clientId()}`)
        return `${await figure('Charged to me')} ${await figure('Balance')}`
      })
      .toMatch(/^\$0\.36 .*\$4\.64/s)
    expect(before).toContain('$5.00')
    const calls = page.getByRole('region', { name: 'Table of my calls' }).getByRole('row')
    expect(await calls.count()).toBe(2)
    expect(await calls.last().innerText()).toContain('$0.36')
    const models = page.getByRole('region', { name: 'Table of models' })
    expect(await models.getByRole('row').last().innerText()).toContain('$0.36')
  })

  it('revokes a key, which the sidecar refuses afterwards', async () => {
    const path = `/users/${encodeURIComponent(externalUserId)}/keys`
    const key = registerSecret((await backend('POST', path, { label: 'Laptop' }))['apiKey'] ?? '')
    expect(await authorize(key)).toBe(200)
    const page = await openMine(`/${clientId()}?part=access`)
    await page.getByRole('button', { name: 'Revoke the key Laptop' }).click()
    await page.getByRole('button', { name: 'Cancel' }).click()
    expect(await authorize(key)).toBe(200)
    await page.getByRole('button', { name: 'Revoke the key Laptop' }).click()
    await confirmTyped(page, 'Revoke')
    await page.getByRole('row', { name: /Laptop .* revoked/ }).waitFor()
    await expect.poll(() => authorize(key)).toBe(401)
  })

  it('ends the login of a device, which the issuer refuses afterwards', async () => {
    const page = await openMine(`/${clientId()}?part=access`)
    expect(await page.locator('.tabs [aria-current]').allInnerTexts()).toEqual(['Keys and logins'])
    await page.getByRole('button', { name: 'End the login of' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'End the login' }).click()
    await page.getByText('No program or device is logged in to this app as you.').waitFor()
    const refreshed = await oidc('/token', {
      grant_type: 'refresh_token',
      refresh_token: refreshToken,
    })
    expect(refreshed['error']).toBe('invalid_grant')
  })

  it('is accessible in both themes, and fits a phone', async () => {
    const page = await openMine()
    await page.setViewportSize({ width: 360, height: 740 })
    for (const view of ['/me', `/me/${clientId()}`, `/me/${clientId()}?part=access`]) {
      await show(page, view)
      const width: number = await page.evaluate('document.documentElement.scrollWidth')
      expect({ view, width }).toEqual({ view, width: 360 })
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme })
        const found = await violations(page)
        expect({ view, colorScheme, found }).toEqual({ view, colorScheme, found: [] })
      }
    }
  })

  it('shows a deactivated user why it can do nothing', async () => {
    await backend('DELETE', `/users?externalUserId=${encodeURIComponent(externalUserId)}`)
    const page = await openMine()
    await page.getByRole('row', { name: /Demo .* ended/ }).waitFor()
    await page.getByRole('link', { name: 'Demo' }).click()
    await page.getByText('This app has ended your access').waitFor()
    expect(await page.getByRole('button', { name: /Revoke|End/ }).count()).toBe(0)
  })

  it("shows members a user's signer sessions; the sidecar refuses one that they ended", async () => {
    await backend('POST', '/users', { externalUserId: 'sid' })
    const credential = await openSignerSession('sid')
    expect(await authorize(credential)).toBe(200)
    const page = await owner(`/${clientId()}/users/sid?part=keys`)
    const sessions = page.getByRole('region', { name: 'Table of signer sessions' })
    await sessions.getByRole('button', { name: /^End the signer session/ }).click()
    await page.getByText('An ended session never works again').waitFor()
    await page.getByRole('button', { name: 'Cancel' }).click()
    expect(await authorize(credential)).toBe(200)
    await sessions.getByRole('button', { name: /^End the signer session/ }).click()
    await page.getByRole('button', { name: 'End the session' }).click()
    await sessions.getByRole('row', { name: /ended/ }).waitFor()
    expect(await sessions.getByRole('button').count()).toBe(0)
    await expect.poll(() => authorize(credential), { timeout: 20_000 }).toBe(401)
  })
})
