import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { registerSecret } from '../../support/run/secrecy.ts'
import { signedTicket } from '../../support/usage/signed-ticket.ts'
import {
  confirmTyped,
  executablePath,
  send,
  setUpDashboard,
  viewer,
  violations,
} from '../../support/web/dashboard.ts'
import { listOperateViews } from '../../support/web/walk/views.ts'

const hostile = '<img src=x onerror=alert(1)>'

describe.runIf(executablePath)('the views for platform admins', () => {
  const { quickstart, clientId, open, logIn, owner, show, forgive, inviteViewer, spend } =
    setUpDashboard()

  /** Sends an event of the signer, which need not become a ticket. */
  async function push(event: object): Promise<void> {
    const { sidecarUrl, webhookSecret } = quickstart()
    const { status } = await fetch(`${sidecarUrl}/events`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-webhook-secret': webhookSecret },
      body: JSON.stringify(event),
    })
    expect(status).toBe(202)
  }

  beforeAll(async () => {
    await inviteViewer()
    // 0.0005 ETH of an unknown app, and an event that no user is named in.
    for (const id of ['lost-1', 'lost-2'])
      await push(signedTicket({ id, authId: 'unknown:ada', computed_fee: '250000000000000' }))
    await push(signedTicket({ id: `nameless-${hostile}`, authId: '', computed_fee: '33' }))
  })

  const events = (page: Page) =>
    page.getByRole('region', { name: 'Table of events' }).getByRole('row')
  const reasonRow = (page: Page, reason: string) =>
    page.getByRole('region', { name: 'Table of reasons' }).getByRole('row', { name: reason })

  /** Opens the console once all events have arrived. */
  async function console(view = ''): Promise<Page> {
    const page = await owner(`/operate/quarantine${view}`)
    await expect
      .poll(async () => {
        await show(page, `/operate/quarantine${view}`)
        return events(page).count()
      })
      .toBeGreaterThan(1)
    return page
  }

  it('refuse others, and show that they lack the permission', async () => {
    const stranger = await open('/app/operate/quarantine')
    expect(new URL(stranger.url()).pathname).toBe('/login')
    await logIn(stranger, viewer.email, viewer.password)
    await stranger.getByRole('heading', { name: 'No permission', level: 1 }).waitFor()
    expect(await stranger.getByRole('link', { name: 'Quarantine' }).count()).toBe(0)
    expect(await violations(stranger)).toEqual([])
    const refused = await send(stranger, {
      method: 'POST',
      path: '/api/v1/internal/operate/quarantine/redrive',
      body: { reason: 'unknown_client' },
    })
    expect(refused).toBe(403)
    forgive(/403/)
  })

  it('show every setting and where it comes from, without secrets', async () => {
    const page = await owner('/operate/configuration')
    const rows = page.getByRole('region', { name: 'Table of settings' }).getByRole('row')
    const pepper = rows.filter({ hasText: 'SECRET_PEPPERS' })
    expect(await pepper.innerText()).toMatch(/secret[^]*\tnpm start\tset\tnone/)
    expect(await page.content()).not.toContain(quickstart().webhookSecret)
    const all = await rows.count()
    await page.getByLabel('Search').fill('signing_ttl')
    await expect.poll(() => rows.count()).toBeLessThan(all)
    const found = rows.filter({ hasText: 'SIGNING_TTL_SECONDS' }).first()
    expect(await found.innerText()).toMatch(/\tdefault\t(\d+)\t\1/)
    expect(new URL(page.url()).search).toBe('?search=signing_ttl')
    await page.reload()
    await found.waitFor()
    await page.getByLabel('Only settings that are set').click()
    await page.getByText('No setting matches.').waitFor()
  })

  it('show the money that waits by reason, with the filter in the address', async () => {
    const page = await console()
    await expect.poll(() => events(page).count()).toBe(4)
    const unknown = reasonRow(page, 'unknown_client')
    expect(await unknown.innerText()).toContain('0.0005 ETH')
    expect(await reasonRow(page, 'unattributed').innerText()).toContain('33 wei')
    await unknown.getByRole('link', { name: 'unknown_client' }).click()
    await page.waitForURL(/\?reason=unknown_client/)
    await expect.poll(() => events(page).count()).toBe(3)
    await page.reload()
    await expect.poll(() => events(page).count()).toBe(3)
    await page.goBack()
    await expect.poll(() => events(page).count()).toBe(4)
    await page.getByLabel('State').selectOption('discarded')
    await page.getByText('No event is discarded.').waitFor()
  })

  it('are led to by the overview of any app while events wait', async () => {
    const page = await owner(`/${clientId()}`)
    const attention = page.getByRole('region', { name: 'Needs attention' })
    await attention.getByText('3 signed events of all apps could not become tickets').waitFor()
    await attention.getByRole('link', { name: 'See quarantine' }).click()
    await page.getByRole('heading', { name: 'Quarantine', level: 1 }).waitFor()
    expect(new URL(page.url()).pathname).toBe('/app/operate/quarantine')
  })

  it('show an event as it arrived, and texts of strangers as text', async () => {
    const page = await console('?reason=unattributed')
    await page.getByRole('link', { name: /nameless/ }).click()
    await page.getByRole('heading', { name: 'Event in quarantine', level: 1 }).waitFor()
    const text = page.getByRole('region', { name: 'The event’s text' })
    expect(await text.innerText()).toContain(`nameless-${hostile}`)
    expect(await page.locator('img').count()).toBe(0)
  })

  it('redrive all events with a reason only after the effect was confirmed', async () => {
    const page = await console()
    const row = reasonRow(page, 'unknown_client')
    await row.getByRole('button', { name: 'Redrive all' }).click()
    await page.getByRole('dialog').getByText('Those that become tickets are charged').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Redrive all' }).click()
    const report = page.getByRole('region', { name: 'Redrive of unknown_client' })
    await report.getByText('0 became tickets, 2 stay.').waitFor()
    await report.getByText('Why they stay').click()
    await expect.poll(() => report.getByText('no app has the client id').count()).toBe(2)
  })

  it('redrive on while another state loads, show how far, and stop', async () => {
    for (const number of [1, 2, 3, 4, 5, 6]) await push({ id: `typeless-${number}` })
    const page = await console()
    await expect
      .poll(async () => {
        await show(page, '/operate/quarantine')
        return reasonRow(page, 'no_type').getByText('6', { exact: true }).count()
      })
      .toBe(1)
    const redriveAll = async (): Promise<void> => {
      await reasonRow(page, 'no_type').getByRole('button', { name: 'Redrive all' }).click()
      await page.getByRole('dialog').getByRole('button', { name: 'Redrive all' }).click()
    }
    const report = page.getByRole('region', { name: 'Redrive of no_type' })
    await redriveAll()
    await report.getByText('0 became tickets, 6 stay.').waitFor()
    await report.getByText('Why they stay').click()
    expect(await report.getByRole('listitem').count()).toBe(5)
    // From here on redrives and lists of discarded events never end.
    await page.route('**/quarantine/redrive', () => {})
    await page.route('**/quarantine?*status=discarded*', () => {})
    await redriveAll()
    await report.getByRole('progressbar', { name: 'Progress' }).waitFor()
    await page.getByLabel('State').selectOption('discarded')
    await page.getByRole('status', { name: 'Loading' }).waitFor()
    await report.getByRole('button', { name: 'Stop' }).click()
    await report.getByText('(stopped)').waitFor()
  })

  it('assign an event to a user, who pays for it, only after a confirmation', async () => {
    const page = await console('?reason=unknown_client')
    await page.getByRole('link', { name: 'lost-1' }).click()
    await page.getByLabel('Client id of the app').fill(clientId())
    await page.getByLabel('User', { exact: true }).fill('ada')
    const assign = page.getByRole('button', { name: 'Assign', exact: true })
    const dialog = page.getByRole('dialog', { name: 'Assign this event to ada?' })
    await assign.click()
    await dialog.getByText(`ada of the app ${clientId()} pays for the ticket`).waitFor()
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    await dialog.waitFor({ state: 'detached' })
    await page.reload()
    await page.getByText('open', { exact: true }).waitFor()
    await page.getByLabel('Client id of the app').fill(clientId())
    await page.getByLabel('User', { exact: true }).fill('ada')
    await assign.click()
    await dialog.getByRole('button', { name: 'Assign' }).click()
    await page.getByText(`${clientId()}:ada`).waitFor()
    await page.getByText('became a ticket').waitFor()
    expect(await page.getByRole('button', { name: 'Redrive' }).count()).toBe(0)
  })

  it('discard an event with the reason and the name of the person', async () => {
    const page = await console('?reason=unknown_client')
    await page.getByRole('link', { name: 'lost-2' }).click()
    await page.getByLabel('Why it is no ticket').fill('a test of the signer')
    await page.getByRole('button', { name: 'Discard', exact: true }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    await page.getByText('open', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Discard', exact: true }).click()
    await confirmTyped(page, 'Discard')
    await page.getByText('discarded', { exact: true }).waitFor()
    const facts = await page.getByRole('region', { name: 'Event', exact: true }).innerText()
    expect(facts).toContain('a test of the signer')
    expect(facts).toContain(quickstart().ownerEmail)
  })

  it('show why an event stays', async () => {
    const page = await console('?reason=unattributed')
    await page.getByRole('link', { name: /nameless/ }).click()
    await page.getByRole('button', { name: 'Redrive' }).click()
    const dialog = page.getByRole('dialog', { name: 'Redrive this event?' })
    await dialog.getByText(/its user pays 33 wei for it, once/).waitFor()
    await dialog.getByRole('button', { name: 'Redrive' }).click()
    const answer = await dialog.getByRole('alert').innerText()
    expect(answer).toContain('the event is still not a ticket: unattributed')
    forgive(/409/)
  })

  it('make a signer, show its secrets once, and remove it only when its name was typed', async () => {
    const page = await owner('/operate/signers')
    await page.getByText('There is no signer but').waitFor()
    await page.getByLabel('Name').fill('north')
    await page.getByLabel('Client ids of its apps').fill(clientId())
    await page.getByLabel('It may push events').check()
    await page.getByRole('button', { name: 'Make', exact: true }).click()
    const shown = page.getByRole('status', { name: 'Secret of north' })
    await shown.waitFor()
    const secrets = await shown.locator('code').allInnerTexts()
    expect(secrets).toEqual([expect.stringMatching(/^svc_sg_/), expect.stringMatching(/^svc_sg_/)])
    for (const secret of secrets) registerSecret(secret)
    await page.getByRole('button', { name: 'I have stored it' }).click()
    await page.reload()
    const row = page.getByRole('row', { name: /^north/ })
    await row.waitFor()
    expect(await page.getByText('svc_sg_').count()).toBe(0)
    expect(await row.innerText()).toContain(clientId())
    await row.getByRole('button', { name: 'Change the apps of north' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Client ids').fill('app_0123456789abcdef01234567')
    await dialog.getByRole('button', { name: 'Change the apps' }).click()
    await dialog.getByRole('alert').waitFor()
    await dialog.getByLabel('It signs for all apps').check()
    await dialog.getByRole('button', { name: 'Change the apps' }).click()
    await row.getByText('all apps').waitFor()
    forgive(/404/)
    await row.getByRole('button', { name: 'New secrets for north' }).click()
    await dialog.getByRole('button', { name: 'Make new secrets' }).click()
    await shown.waitFor()
    for (const secret of await shown.locator('code').allInnerTexts()) registerSecret(secret)
    await page.getByRole('button', { name: 'I have stored it' }).click()
    await row.getByRole('button', { name: 'Remove north' }).click()
    const remove = dialog.getByRole('button', { name: 'Remove' })
    expect(await remove.isDisabled()).toBe(true)
    await dialog.getByLabel('Type north to confirm').fill('north')
    await remove.click()
    await row.waitFor({ state: 'detached' })
  })

  it('show new secrets of a signer although their dialog is gone, until they are stored', async () => {
    const page = await owner('/operate/signers')
    const name = page.getByLabel('Name')
    const mayPush = page.getByLabel('It may push events')
    const make = page.getByRole('button', { name: 'Make', exact: true })
    const stored = page.getByRole('button', { name: 'I have stored it' })
    const secretsOf = (signer: string) => page.getByRole('status', { name: `Secret of ${signer}` })
    const register = async (signer: string): Promise<void> => {
      await secretsOf(signer).waitFor()
      const secrets = await secretsOf(signer).locator('code').allInnerTexts()
      for (const secret of secrets) registerSecret(secret)
    }
    await name.fill('south')
    await mayPush.check()
    await make.click()
    await register('south')
    await expect.poll(() => mayPush.isChecked()).toBe(false)
    await name.fill('west')
    expect(await make.isDisabled()).toBe(true)
    await stored.click()
    await make.click()
    await register('west')
    expect(await page.getByRole('row', { name: /^west/ }).innerText()).not.toContain('may push')
    await stored.click()

    const closed = Promise.withResolvers<void>()
    await page.route('**/signers/south/rotate', async (route) => {
      await closed.promise
      await route.continue()
    })
    const rotate = page.getByRole('button', { name: 'New secrets for south' })
    await rotate.click()
    await page.getByRole('dialog').getByRole('button', { name: 'Make new secrets' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Working …' }).waitFor()
    // The secrets show although the list is not read again.
    await page.route('**/api/v1/internal/operate/signers', () => {})
    // Browsers close a dialog at a second Escape, even if the page prevents it.
    await page.evaluate(`document.querySelector('dialog').close()`)
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    closed.resolve()
    await register('south')
    expect(await rotate.isDisabled()).toBe(true)
    await stored.click()
    await expect.poll(() => rotate.isDisabled()).toBe(false)
  })

  it('make no second secrets when a lost answer is tried again', async () => {
    const page = await owner('/operate/signers')
    const keys: (string | undefined)[] = []
    await page.route('**/signers/south/rotate', async (route) => {
      keys.push(route.request().headers()['idempotency-key'])
      if (keys.length > 1) return route.continue()
      await route.fetch()
      return route.abort()
    })
    const row = page.getByRole('row', { name: /^south/ })
    const secrets = async () => Number(await row.getByRole('cell').nth(2).innerText())
    const before = await secrets()
    await row.getByRole('button', { name: 'New secrets for south' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('button', { name: 'Make new secrets' }).click()
    await dialog.getByText('The service cannot be reached').waitFor()
    await dialog.getByRole('button', { name: 'Make new secrets' }).click()
    const shown = page.getByRole('status', { name: 'Secret of south' })
    await shown.waitFor()
    for (const secret of await shown.locator('code').allInnerTexts()) registerSecret(secret)
    expect(keys).toEqual([keys[0], keys[0]])
    // One for decisions and one for events.
    await expect.poll(secrets).toBe(before + 2)
    forgive(/ERR_FAILED/)
  })

  it('rotate the signing keys only after a word was typed', async () => {
    const page = await owner('/operate/signing-keys')
    const keys = page.getByRole('region', { name: 'Table of signing keys' })
    const active = keys.getByRole('row', { name: / active / })
    const before = await active.locator('code').innerText()
    await page.getByRole('button', { name: 'Rotate at once' }).click()
    const dialog = page.getByRole('dialog')
    const rotate = dialog.getByRole('button', { name: 'Rotate', exact: true })
    expect(await rotate.isDisabled()).toBe(true)
    await dialog.getByLabel('Type rotate to confirm').fill('rotate')
    await rotate.click()
    await dialog.waitFor({ state: 'detached' })
    await expect.poll(() => active.locator('code').innerText()).not.toBe(before)
    await keys.getByText('retired').waitFor()
  })

  it('show losses of a period in the address, and no difference', async () => {
    const page = await owner('/operate/losses')
    await page.getByText('Lost tickets').waitFor()
    await page.getByLabel('From').fill('2026-01-01')
    await page.getByLabel('To', { exact: true }).fill('2026-01-31')
    await page.getByRole('button', { name: 'Show', exact: true }).click()
    await page.waitForURL(/from=2026-01-01.*to=2026-01-31/)
    await page.getByText('Nothing was lost.').waitFor()
    await page.reload()
    expect(await page.getByLabel('From').inputValue()).toBe('2026-01-01')
    await page.getByRole('link', { name: 'Differences' }).click()
    await page.getByText('No difference is open.').waitFor()
    await page.getByLabel('Also resolved ones').click()
    await page.waitForURL(/all=true/)
    await page.getByText('No difference was found yet.').waitFor()
  })

  it('verify the books at once, with the result and when it ran', async () => {
    const page = await owner('/operate/checks')
    const books = page.getByRole('region', { name: 'Books' })
    await books.getByText('It has not run yet.').waitFor()
    await books.getByRole('button', { name: 'Verify now' }).click()
    const result = books.getByRole('status', { name: 'Result of Books' })
    await result.getByText('everything agrees').waitFor()
    expect(await result.innerText()).toContain(quickstart().ownerEmail)
    await page.reload()
    await result.getByText('everything agrees').waitFor()
    const metering = page.getByRole('region', { name: 'Metering backend' })
    await metering.getByText('there is nothing to compare with').waitFor()
    expect(await metering.getByRole('button').count()).toBe(0)
    const processor = page.getByRole('region', { name: 'Payment processor' })
    await processor.getByRole('button', { name: 'Reconcile now' }).click()
    const compared = processor.getByRole('status', { name: 'Result of Payment processor' })
    await compared.getByText(/accounts? compared/).waitFor()
  })

  it('show all apps, and change the quotas of one', async () => {
    const page = await owner('/operate/apps')
    const apps = page.getByRole('region', { name: 'Table of all apps' })
    await apps.getByText(clientId()).waitFor()
    await page.getByLabel('Part of a name').fill('no such app')
    await page.getByRole('button', { name: 'Search' }).click()
    await page.getByText('No app has “no such app”').waitFor()
    await page.getByLabel('Part of a name').fill(clientId())
    await page.getByRole('button', { name: 'Search' }).click()
    await page.waitForURL(new RegExp(`search=${clientId()}`))
    await apps.getByRole('link', { name: /^Quotas of/ }).click()
    const credit = page.getByRole('region', { name: 'Credit given through the API' })
    await credit.getByLabel('Quota, in dollars').fill('12.5')
    await credit.getByRole('button', { name: 'Save' }).click()
    await credit.getByText('of at most $12.50').waitFor()
    await credit.getByText('Saved.').waitFor()
    await credit.getByRole('button', { name: 'Use the deployment’s' }).click()
    await credit.getByText('of at most $12.50').waitFor({ state: 'detached' })
    const account = page.getByRole('region', { name: `Owner ${quickstart().ownerEmail}` })
    await account.getByLabel('Apps at most').fill('77')
    await account.getByRole('button', { name: 'Save' }).click()
    await account.getByText('of at most 77 apps').waitFor()
    await account.getByText('Saved.').waitFor()
    await account.getByText('that the account can pay for calls').waitFor()
    await account.getByRole('button', { name: 'Use the deployment’s' }).click()
    const others = account.getByText('of at most 77 apps')
    await expect.poll(() => others.count()).toBe(0)
  })

  it('show how far events were read, and what is held', async () => {
    await spend('42')
    const page = await owner('/operate/ingest')
    await page.getByText('Price of ETH').waitFor()
    const price = page.locator('dt', { hasText: 'Price of ETH' }).locator('xpath=../dd')
    expect(await price.innerText()).toContain('$3,000')
    await page.getByText(/\d rows wait/).waitFor()
    const streams = page.getByRole('region', { name: 'Table of streams' })
    await streams.getByRole('row', { name: /^direct partition 0 .*unknown/ }).waitFor()
    const sidecars = page.getByRole('region', { name: 'Table of sidecars' })
    await sidecars.getByRole('row', { name: / 0 s$/ }).first().waitFor()
    await page.route('**/internal/operate/ingest', async (route) => {
      const response = await route.fetch()
      const { sidecars: _, streams, ...status } = await response.json()
      const unread = { source: 'kafka:old:1', endReadAt: '2026-01-02T03:04:05.000Z' }
      await route.fulfill({
        response,
        json: { ...status, streams: [{ ...streams[0], ...unread }] },
      })
    })
    await page.reload()
    await page.getByRole('row', { name: /^kafka:old:1 .* end not read since .*2026/ }).waitFor()
    await page.getByText('Unknown: core is of an older release.').waitFor()
    await page.unroute('**/internal/operate/ingest')
    await show(page, '/operate/holds')
    await page.getByLabel('Client id of an app').fill(clientId())
    await page.getByRole('button', { name: 'Show', exact: true }).click()
    await page.waitForURL(/clientId=app_/)
    await page.getByRole('button', { name: 'Show all' }).click()
    await page.waitForURL(/holds$/)
    await show(page, `/operate/holds?clientId=${clientId()}&externalUserId=42`)
    expect(await page.getByLabel('User', { exact: true }).inputValue()).toBe('42')
    await show(page, '/operate')
    await page.waitForURL(/\/operate\/quarantine$/)
  })

  it('show how far test clocks are ahead, rounded down, and where the list ends', async () => {
    const page = await owner('/operate/test-clocks')
    await page.getByText('No clock was moved.').waitFor()
    const path = '/api/v1/apps'
    expect(
      await send(page, { method: 'POST', path, body: { name: 'Paint test', isTest: true } }),
    ).toBe(201)
    const { apps }: { apps: { clientId: string; name: string }[] } = await (
      await page.request.get(`${quickstart().platformUrl}${path}`)
    ).json()
    const id = apps.find(({ name }) => name === 'Paint test')?.clientId ?? ''
    const clocks = page.getByRole('region', { name: 'Table of test clocks' })
    for (const [advanceSeconds, ahead] of [
      [59, '59 s'],
      [3_540, '59 min'],
      [3_600, '1 h'],
    ] as const) {
      const move = { method: 'POST', path: `${path}/${id}/test-clock`, body: { advanceSeconds } }
      expect(await send(page, move)).toBe(200)
      await show(page, '/operate/test-clocks')
      await clocks
        .getByRole('row', { name: 'Paint test' })
        .getByText(ahead, { exact: true })
        .waitFor()
    }
    expect(await clocks.locator('caption').count()).toBe(0)
    await page.route('**/api/v1/internal/operate/test-clocks', async (route) => {
      const response = await route.fetch()
      const [clock]: object[] = JSON.parse(await response.text()).clocks
      const many = Array.from({ length: 1_000 }, (_, index) => ({ ...clock, clientId: `${index}` }))
      await route.fulfill({ response, json: { clocks: many } })
    })
    await page.reload()
    await clocks.getByText('The 1,000 clocks that are furthest ahead.').waitFor()
  })

  it('are accessible in both themes, and fit a phone', { timeout: 120_000 }, async () => {
    const page = await console()
    const link = page.getByRole('link', { name: /nameless/ })
    const quarantineId = (await link.getAttribute('href'))?.split('/').at(-1) ?? ''
    for (const { path: view } of listOperateViews({ clientId: clientId(), quarantineId })) {
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.setViewportSize({ width: 1280, height: 900 })
        await page.emulateMedia({ colorScheme })
        await show(page, view)
        const found = await violations(page)
        expect({ view, colorScheme, found }).toEqual({ view, colorScheme, found: [] })
      }
      await page.setViewportSize({ width: 360, height: 800 })
      const width = await page.evaluate('document.documentElement.scrollWidth')
      expect({ view, width }).toEqual({ view, width: 360 })
    }
  })
})
