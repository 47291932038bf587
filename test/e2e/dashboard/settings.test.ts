import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { basic } from '../../../deploy/cli/client.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import {
  executablePath,
  send,
  setUpDashboard,
  viewer,
  violations,
} from '../../support/web/dashboard.ts'
import { newForeignKey, signForeign, startForeignIssuer } from '../../support/web/foreign-issuer.ts'

describe.runIf(executablePath)('settings in the dashboard', () => {
  const { quickstart, clientId, open, logIn, owner, show, forgive, inviteViewer } = setUpDashboard()
  beforeAll(inviteViewer)

  const settings = () => owner(`/${clientId()}/settings`)
  const section = (page: Page, name: string) => page.getByRole('region', { name, exact: true })

  /** Returns the status of the token endpoint for a secret of the app's backend. */
  const tokenStatus = async (secret: string): Promise<number> => {
    const { platformUrl, m2mClientId } = quickstart()
    const { status } = await fetch(`${platformUrl}/api/v1/oidc/token`, {
      method: 'POST',
      headers: { authorization: basic(m2mClientId, secret) },
      body: new URLSearchParams({ grant_type: 'client_credentials' }),
    })
    return status
  }

  it('changes the name, and keeps it', async () => {
    const page = await settings()
    const app = section(page, 'App')
    await app.getByLabel('Name', { exact: true }).fill('Demo of a shop')
    // Another member changes what this one leaves as it is.
    const path = `/api/v1/apps/${clientId()}`
    expect(await send(page, { method: 'PUT', path, body: { developerName: 'Shop & Co' } })).toBe(
      200,
    )
    await app.getByLabel('Website').fill('https://shop.example')
    await app.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('heading', { name: 'Demo of a shop' }).waitFor()
    expect(await app.getByLabel('Developer').inputValue()).toBe('Shop & Co')
    await app.getByText('Saved.').waitFor()
    await app.getByLabel('Developer').fill('Shop')
    expect(await app.getByText('Saved.').count()).toBe(0)
    await page.reload()
    expect(await app.getByLabel('Website').inputValue()).toBe('https://shop.example')
  })

  it('makes a second client secret', async () => {
    const page = await settings()
    await page.getByRole('button', { name: 'New secret' }).click()
    await page.getByText('keep working for a while').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Make a secret' }).click()
    const shown = page.getByRole('status', { name: 'Client secret' })
    const secret = await shown.locator('code').innerText()
    registerSecret(secret)
    expect(await tokenStatus(secret)).toBe(200)
    expect(await tokenStatus(quickstart().m2mClientSecret)).toBe(200)
    await page.getByRole('link', { name: 'Team' }).click()
    await page.getByText('Client secret is not shown again.').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click()
    expect(await shown.locator('code').innerText()).toBe(secret)
    await page.getByRole('button', { name: 'I have stored it' }).click()
    await page.reload()
    await page.getByText('has a secret').waitFor()
    expect(await page.content()).not.toContain(secret)
    const secrets = page.getByRole('list', { name: 'Client secrets' }).getByRole('listitem')
    expect(await secrets.count()).toBe(2)
    expect(await secrets.first().innerText()).toMatch(/, ends /)
    expect(await secrets.last().innerText()).not.toMatch(/ends/)
  })

  it('keeps what was typed when an address is refused', async () => {
    const page = await settings()
    const addresses = section(page, 'Redirect addresses')
    const login = addresses.getByLabel('After a login')
    await login.fill('https://shop.example/back\nhttp://shop.example/back')
    await addresses.getByRole('button', { name: 'Save addresses' }).click()
    await addresses.getByRole('alert').waitFor()
    expect(await login.inputValue()).toContain('http://shop.example/back')
    await login.fill('https://shop.example/back')
    await addresses.getByRole('button', { name: 'Save addresses' }).click()
    await addresses.getByText('Saved.').waitFor()
    await page.reload()
    expect(await login.inputValue()).toBe('https://shop.example/back')
    forgive(/400/)
  })

  it('adds an origin, and asks before it removes it', async () => {
    const page = await settings()
    const origins = section(page, 'Origins of browsers')
    await origins.getByLabel('Origin').fill('https://shop.example')
    await origins.getByRole('button', { name: 'Add origin' }).click()
    const remove = origins.getByRole('button', { name: 'Remove https://shop.example' })
    await remove.click()
    await page.getByText('browsers block calls').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click()
    await remove.waitFor({ state: 'detached' })
    expect(await origins.innerText()).toContain('No web page may call')
  })

  it('trusts a provider of its own, and explains its tokens rule by rule', async () => {
    const key = await newForeignKey('a')
    const idp = await startForeignIssuer([key])
    onTestFinished(idp.stop)
    const page = await settings()
    const providers = section(page, 'Identity providers')
    await providers.getByLabel('Issuer').fill(idp.url)
    await providers.getByLabel('Audiences').fill('shop')
    await providers.getByRole('button', { name: 'Trust', exact: true }).click()
    await providers.getByText('audiences shop').waitFor()
    await providers.getByText('Try a token').click()
    const check = async (audience: string) => {
      const now = Math.floor(Date.now() / 1000)
      const claims = { iss: idp.url, aud: audience, sub: 'ada', iat: now, exp: now + 600 }
      await providers.getByLabel('Token (JWT)').fill(await signForeign(key, claims))
      await providers.getByRole('button', { name: 'Check' }).click()
    }
    const rule = (name: string) => providers.getByRole('row', { name: new RegExp(`^${name} `) })
    await check('shop')
    await providers.getByText('accepted', { exact: true }).waitFor()
    expect(await rule('signature').innerText()).toContain('passed')
    await check('other')
    await providers.getByText('refused', { exact: true }).waitFor()
    expect(await rule('audience').innerText()).toContain('failed')
    await providers.getByRole('button', { name: `Edit ${idp.url}` }).click()
    const rules = providers.getByRole('form', { name: `Rules of ${idp.url}` })
    expect(await rules.getByLabel('Audiences').inputValue()).toBe('shop')
    await rules.getByLabel('Audiences').fill('shop\nother')
    await rules.getByText('Further rules').click()
    await rules.getByLabel('Prefix').fill('idp-')
    await rules.getByRole('button', { name: 'Replace the rules' }).click()
    await providers.getByText('users by sub after idp-, audiences shop, other').waitFor()
    await check('other')
    await providers.getByText('idp-ada').waitFor()
    await providers.getByRole('button', { name: `Stop trusting ${idp.url}` }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Stop trusting' }).click()
    await page.getByText('No provider of your own is trusted.').waitFor()
  })

  it('makes a secret for a signer of its own, and revokes it after it was typed', async () => {
    const page = await settings()
    const secrets = section(page, 'Secrets of your own signer')
    await secrets.getByText('There is none.').waitFor()
    await secrets.getByLabel('Opens').selectOption('events')
    await secrets.getByRole('button', { name: 'Make a secret' }).click()
    const shown = page.getByRole('status', { name: 'Secret of the signer' })
    registerSecret(await shown.locator('code').innerText())
    await page.getByRole('button', { name: 'I have stored it' }).click()
    await page.reload()
    const row = secrets.getByRole('row', { name: 'events (/events)' })
    await row.getByText('when revoked').waitFor()
    await row.getByRole('button').click()
    const dialog = page.getByRole('dialog')
    const confirm = dialog.getByRole('button', { name: 'Revoke' })
    expect(await confirm.isDisabled()).toBe(true)
    await dialog.getByLabel('Type revoke to confirm').fill('revoke')
    await confirm.click()
    await secrets.getByText('There is none.').waitFor()
  })

  it('replaces a client secret at once, and keeps keys on demand', async () => {
    const page = await settings()
    await page.getByRole('button', { name: 'Replace the secret at once' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Keep the API keys').check()
    await dialog.getByLabel('Type replace').fill('replace')
    const request = page.waitForRequest(/credentials\?/)
    await dialog.getByRole('button', { name: 'Replace' }).click()
    const sent = await request
    expect(sent.url()).toContain('revokeOld=true&keepKeys=true')
    expect(await sent.headerValue('idempotency-key')).toMatch(/^[0-9a-f]{32}$/)
    const shown = page.getByRole('status', { name: 'Client secret' })
    const secret = await shown.locator('code').innerText()
    registerSecret(secret)
    expect(await tokenStatus(secret)).toBe(200)
    expect(await tokenStatus(quickstart().m2mClientSecret)).toBe(401)
  })

  it('moves the clock of a test app after it was typed, and shows the effects', async () => {
    const page = await settings()
    await section(page, 'App').waitFor()
    expect(await section(page, 'Test clock').count()).toBe(0)
    const body = { name: 'Timed', isTest: true }
    expect(await send(page, { method: 'POST', path: '/api/v1/apps', body })).toBe(201)
    await show(page, '')
    await page.getByRole('link', { name: 'Timed' }).click()
    await page.getByRole('link', { name: 'Settings' }).click()
    const clock = section(page, 'Test clock')
    await clock.getByText('not at all').waitFor()
    await clock.getByLabel('Days').fill('31')
    await clock.getByRole('button', { name: 'Move the clock ahead' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('heading', { name: 'Move the clock 31 days ahead?' }).waitFor()
    const confirm = dialog.getByRole('button', { name: 'Move the clock' })
    expect(await confirm.isDisabled()).toBe(true)
    await dialog.getByLabel('Type move to confirm').fill('move')
    await confirm.click()
    const effects = clock.getByRole('status', { name: 'Effects of the move' })
    await effects.getByText('Periods renewed').waitFor()
    await clock.getByText('31 days, 0 hours').waitFor()
    expect(await violations(page)).toEqual([])
  })

  it('deletes an app only after its client id was typed, and shows why it may not', async () => {
    const page = await settings()
    const path = '/api/v1/apps'
    expect(await send(page, { method: 'POST', path, body: { name: 'To be deleted' } })).toBe(201)
    await show(page, '')
    await page.getByRole('link', { name: 'To be deleted' }).click()
    await page.getByRole('link', { name: 'Settings' }).click()
    await section(page, 'Delete the app').getByRole('button').click()
    const dialog = page.getByRole('dialog')
    const confirm = dialog.getByRole('button', { name: 'Delete the app' })
    expect(await confirm.isDisabled()).toBe(true)
    await dialog.getByLabel('Type app_').fill(clientId())
    expect(await confirm.isDisabled()).toBe(true)
    await dialog.getByLabel('Type app_').fill(new URL(page.url()).pathname.split('/')[2] ?? '')
    await confirm.click()
    await page.getByRole('heading', { name: 'Apps', level: 1 }).waitFor()
    await expect.poll(() => page.getByRole('link', { name: 'To be deleted' }).count()).toBe(0)
  })

  it('lets a viewer read, and change nothing', async () => {
    const page = await open('/app')
    await logIn(page, viewer.email, viewer.password)
    await page.getByRole('button', { name: 'Accept' }).click()
    await page.getByRole('link', { name: /^Demo/ }).waitFor()
    await show(page, `/${clientId()}/settings`)
    const buttons = page.getByRole('main').getByRole('button')
    expect(new Set(await buttons.allInnerTexts())).toEqual(new Set(['Copy']))
    expect(await page.getByLabel('Name', { exact: true }).isEditable()).toBe(false)
    const path = `/api/v1/apps/${clientId()}/credentials?target=m2m`
    expect(await send(page, { method: 'POST', path, body: {} })).toBe(403)
    forgive(/403/)
  })

  it('is accessible in both themes, and fits a phone', async () => {
    const page = await settings()
    await show(page, `/${clientId()}/settings`)
    await page.getByText('Try a token').click()
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme })
      expect(await violations(page)).toEqual([])
    }
    await page.setViewportSize({ width: 360, height: 800 })
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360)
  })
})
