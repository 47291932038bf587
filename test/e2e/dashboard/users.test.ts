import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { Locator, Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { basic } from '../../../deploy/cli/client.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import {
  confirmTyped,
  executablePath,
  send,
  setUpDashboard,
  viewer,
  violations,
} from '../../support/web/dashboard.ts'

const run = promisify(execFile)
/** External ids that a careless page would run, cut, or put into the wrong place of an address. */
const hostileIds = ['a/b?c#d%', '<img src=x onerror=alert(1)>', 'x'.repeat(200), 'مستخدم', '123']
const names = ['statement', 'keys', 'limits', 'usage', 'decisions']
const parts = ['', ...names.map((name) => `?part=${name}`)]

describe.runIf(executablePath)('the users in the dashboard', () => {
  const dashboard = setUpDashboard()
  const { quickstart, clientId, open, logIn, owner, show, forgive, inviteViewer, spend } = dashboard
  beforeAll(inviteViewer)

  const users = (): string => `/${clientId()}/users`
  const viewOf = (id: string, search = ''): string =>
    `${users()}/${encodeURIComponent(id)}${search}`

  /** Calls the API as the app's backend. */
  async function call(method: string, path: string, body?: unknown): Promise<unknown> {
    const { platformUrl, m2mClientId, m2mClientSecret } = quickstart()
    const answer = await fetch(`${platformUrl}/api/v1/apps/${clientId()}${path}`, {
      method,
      headers: {
        'content-type': 'application/json',
        authorization: basic(m2mClientId, m2mClientSecret),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    expect(answer.status).toBeLessThan(300)
    return answer.json()
  }
  const create = (externalUserId: string) => call('POST', '/users', { externalUserId })
  const figure = (page: Page, name: string) =>
    page.locator('dt', { hasText: new RegExp(`^${name}$`) }).locator('xpath=../dd')

  it('creates a user, and finds it while its id or address is typed; back shows what was', async () => {
    const page = await owner(users())
    await page.getByLabel('External id of the new user').fill('grace')
    await page.getByLabel('E-mail address (optional)').fill('grace@example.com')
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByText('The user exists:').waitFor()
    const rows = page.getByRole('region', { name: 'Table of users' }).getByRole('row')
    const search = page.getByLabel('Beginning of the external id or e-mail address')
    await create('a_other')
    await search.pressSequentially('Grace@ex')
    await page.waitForURL(/user=Grace/)
    await expect.poll(() => rows.count()).toBe(2)
    expect(await search.inputValue()).toBe('Grace@ex')
    await page.reload()
    await page.getByRole('row', { name: /grace@example\.com/ }).waitFor()
    await search.fill('nobody_')
    await page.getByText('that begins with').waitFor()
    await page.goBack()
    await expect.poll(() => search.inputValue()).toBe('')
    await page.getByRole('link', { name: 'a_other' }).waitFor()
    await search.fill('gr')
    await page.waitForURL(/user=gr$/)
    await expect.poll(() => rows.count()).toBe(2)
    await page.getByRole('link', { name: 'grace' }).first().click()
    await page.getByRole('heading', { name: 'grace', level: 1 }).waitFor()
  })

  it('lists all users page by page, and by status', async () => {
    for (let i = 0; i < 51; i++) await create(`user-${i}`)
    await call('DELETE', '/users?externalUserId=user-50')
    const page = await owner(users())
    const rows = page.getByRole('region', { name: 'Table of users' }).getByRole('row')
    await page.getByRole('button', { name: 'Show more' }).waitFor()
    await page.evaluate('window.scrollTo(0, document.body.scrollHeight)')
    await page.getByRole('link', { name: 'user-50' }).waitFor()
    expect(await page.getByRole('button', { name: 'Show more' }).count()).toBe(0)
    await page.getByLabel('Status').selectOption('inactive')
    await page.waitForURL(/status=inactive/)
    await expect.poll(() => rows.count()).toBe(2)
    await page.reload()
    await expect.poll(() => rows.count()).toBe(2)
    await page.getByRole('button', { name: 'Show all' }).click()
    await expect.poll(() => rows.count()).toBe(51)
  })

  it.each(hostileIds)('shows the id %j as text, and leads to its own view', async (id) => {
    await create(id)
    const page = await owner(`${users()}?user=${encodeURIComponent(JSON.stringify(id))}`)
    await page.getByRole('region', { name: 'Table of users' }).getByRole('link').click()
    await page.getByRole('heading', { name: id, level: 1 }).waitFor()
    await expect.poll(() => figure(page, 'May still spend').innerText()).toMatch(/^\$5\.00\n/)
    await page.reload()
    await page.getByRole('heading', { name: id, level: 1 }).waitFor()
    await page.getByRole('link', { name: 'Keys', exact: true }).click()
    await page.getByText('The user has no key.').waitFor()
    await page.setViewportSize({ width: 360, height: 800 })
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360)
    expect(await page.locator('img').count()).toBe(0)
  })

  it('gives exactly the credit that was entered, once even if it is sent twice', async () => {
    await create('lin')
    const page = await owner(viewOf('lin'))
    await figure(page, 'May still spend').waitFor()
    const give = page.getByRole('button', { name: 'Give credit' })
    const amount = page.getByLabel('Amount in dollars')
    for (const wrong of ['0', '-1', '1e3', '0.0000001', 'a'])
      await amount.fill(wrong).then(async () => expect(await give.isDisabled()).toBe(true))
    await amount.fill('0.100001')
    await page.getByText('Gives exactly 0.100001 USD.').waitFor()
    await give.click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('gets exactly 0.100001 USD').waitFor()
    await dialog.getByRole('button', { name: 'Give', exact: true }).dblclick()
    await page.getByText('Gave $0.10.').waitFor()
    await expect.poll(() => readBalance('lin')).toBe('5100001')
    expect(
      await figure(page, 'May still spend').locator('span').first().getAttribute('title'),
    ).toBe('5.100001 USD')
    // The service gives, but its answer is lost; the person tries again.
    await page.route('**/allowances', async (route) => {
      if (route.request().method() !== 'POST') return route.continue()
      await route.fetch()
      return route.abort()
    })
    await amount.fill('2')
    await give.click()
    await dialog.getByRole('button', { name: 'Give', exact: true }).click()
    await page.getByText('The service cannot be reached.').waitFor()
    await page.unroute('**/allowances')
    await dialog.getByRole('button', { name: 'Give', exact: true }).click()
    await page.getByText('Gave $2.00.').waitFor()
    await expect.poll(() => figure(page, 'Credit ever given').innerText()).toBe('$7.10')
    expect(await figure(page, 'Consumed in this period').innerText()).toBe('$0.00')
    await page.getByText('Nothing is held.').waitFor()
    expect(await readBalance('lin')).toBe('7100001')
    forgive(/ERR_FAILED/)
  })

  it('creates a key whose program runs, and shows its secret once', async () => {
    await create('ida')
    const page = await owner(viewOf('ida', '?part=keys'), {
      permissions: ['clipboard-read', 'clipboard-write'],
    })
    await page.getByLabel('Name of the key').fill('laptop')
    await page.getByRole('button', { name: 'Create a key' }).click()
    await page.getByRole('button', { name: 'Copy', exact: true }).click()
    await page.getByRole('button', { name: 'Copied', exact: true }).waitFor()
    const key = registerSecret(String(await page.evaluate('navigator.clipboard.readText()')))
    const program = page.getByLabel('A program that exchanges it')
    const text = async (language: string): Promise<string> => {
      await program.selectOption(language)
      return page.getByLabel(`Program in ${language}`).innerText()
    }
    const source = await text('TypeScript')
    const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', source])
    expect(stdout).toContain("balanceUsdMicros: '5000000'")
    const url = `${new URL(page.url()).origin}/api/v1/apps/${clientId()}/oidc/token`
    for (const language of ['curl', 'Python']) {
      expect(await text(language)).toContain(`'${url}'`)
      expect(await text(language)).toContain(`'${key}'`)
    }
    await page.getByRole('button', { name: 'I have stored it' }).click()
    await page.getByRole('row', { name: /laptop/ }).waitFor()
    expect(await page.locator('main').innerText()).not.toContain(key)
    await page.getByRole('button', { name: 'Revoke the key laptop' }).click()
    await page.getByText('A revoked key never works again').waitFor()
    await confirmTyped(page, 'Revoke')
    await page.getByRole('row', { name: /laptop.*revoked/ }).waitFor()
    const after = run(process.execPath, ['--input-type=module', '--eval', source])
    await expect(after).rejects.toThrow(/invalid_grant/)
  })

  it('sets and removes limits, and keeps those that are not edited', async () => {
    await create('max')
    await call('PUT', '/users/max/limits', {
      maxPrices: [{ type: 'live', app: 'acme/echo', maxWei: '1000' }],
    })
    const page = await owner(viewOf('max', '?part=limits'))
    await page.getByLabel('Dollars on a day (UTC)').fill('2,5')
    await page.getByText('Dollars on a day must be an amount above 0').waitFor()
    expect(await page.getByRole('button', { name: 'Save limits' }).isDisabled()).toBe(true)
    await page.getByLabel('Dollars on a day (UTC)').fill('2.5')
    await page.getByLabel('Calls in a minute').fill('60')
    await page.getByRole('button', { name: 'Save limits' }).click()
    await expect.poll(() => figure(page, 'Calls in a minute').innerText()).toBe('60')
    await page.getByText('Saved.').waitFor()
    expect(await call('GET', '/users/max/limits')).toEqual({
      usdMicrosPerDay: '2500000',
      usdMicrosPerSession: null,
      callsPerMinute: 60,
      concurrentSessions: null,
      maxPrices: [{ type: 'live', app: 'acme/echo', maxWei: '1000' }],
    })
    await page.getByLabel('Calls in a minute').fill('61')
    expect(await page.getByText('Saved.').count()).toBe(0)
    await page.getByLabel('Calls in a minute').fill('60')
    await page.getByRole('button', { name: 'Save limits' }).click()
    await page.getByText('Saved.').waitFor()
    await page.getByRole('button', { name: 'Remove all limits' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Remove all limits' }).click()
    await page.getByText('No limit is set.').waitFor()
    expect(await page.getByLabel('Calls in a minute').inputValue()).toBe('')
  })

  it('sets limits of a single key, and keeps those of the user', async () => {
    await create('kay')
    await call('POST', '/users/kay/keys', { label: 'phone' })
    await call('PUT', '/users/kay/limits', { callsPerMinute: 9 })
    const page = await owner(viewOf('kay', '?part=limits'))
    await page.getByRole('combobox', { name: 'Limits of' }).selectOption('the key phone')
    await page.waitForURL(/key=/)
    await page.getByText('The key has no limit of its own.').waitFor()
    await page.getByLabel('Calls in a minute').fill('3')
    await page.getByRole('button', { name: 'Save limits' }).click()
    await page.getByText('Saved.').waitFor()
    await page.reload()
    await expect.poll(() => figure(page, 'Calls in a minute').innerText()).toBe('3')
    await page.getByRole('button', { name: 'Remove all limits' }).click()
    await page.getByText('Only the limits of the user then apply').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Remove all limits' }).click()
    await page.getByText('The key has no limit of its own.').waitFor()
    await page.getByRole('combobox', { name: 'Limits of' }).selectOption('the user, with all keys')
    await expect.poll(() => figure(page, 'Calls in a minute').innerText()).toBe('9')
  })

  it('keeps a typed limit while the stored limits change', async () => {
    await create('kim')
    await call('PUT', '/users/kim/limits', { callsPerMinute: 5 })
    const page = await owner(viewOf('kim', '?part=limits'))
    await page.getByLabel('Sessions at the same time').fill('7')
    await page.getByRole('button', { name: 'Remove all limits' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Remove all limits' }).click()
    await page.getByText('No limit is set.').waitFor()
    expect(await page.getByLabel('Sessions at the same time').inputValue()).toBe('7')
  })

  it('shows a statement with balances, and charges by day while the owner pays', async () => {
    await spend('sam')
    await expect.poll(() => readBalance('sam')).toBe('4640000')
    const page = await owner(viewOf('sam', '?part=statement'))
    await page.getByRole('row', { name: /usage .* \$0\.36 -\$0\.36 \$4\.64/ }).waitFor()
    await page.getByRole('row', { name: /Total 1 \$0\.36 \$0\.36/ }).waitFor()
    const settings = `/api/v1/apps/${clientId()}/billing/settings`
    const setMode = (billingMode: string) =>
      send(page, { method: 'PUT', path: settings, body: { billingMode } })
    expect(await setMode('merchant')).toBe(200)
    await page.reload()
    await page.getByRole('row', { name: /credit given .* \$5\.00 \$5\.00 \$5\.00/ }).waitFor()
    expect(await page.getByRole('heading', { name: 'Charges by day' }).count()).toBe(0)
    expect(await setMode('owner_rollup')).toBe(200)
  })

  it('shows tickets and sessions of a month, and explains a ticket', async () => {
    await spend('ada')
    const page = await owner(viewOf('ada'))
    await expect.poll(() => readBalance('ada')).toBe('4640000')
    await page.getByRole('link', { name: 'Tickets and sessions' }).click()
    await page.getByRole('link', { name: 'Explain the ticket' }).click()
    await page.waitForURL(/ticket=/)
    const steps = page.getByRole('list', { name: 'Calculation' })
    await expect.poll(() => steps.innerText()).toContain('120000000000000')
    await page.reload()
    await expect.poll(() => figure(page, 'Charged to the user').innerText()).toBe('0.36 USD')
    await page.getByRole('link', { name: 'Close' }).click()
    await page.getByRole('link', { name: 'Sessions', exact: true }).click()
    await page.getByRole('region', { name: 'Table of sessions' }).waitFor()
    await chooseMonth(page, '2026-01')
    await page.getByText('The user had no session in this month.').waitFor()
    expect(page.url()).toContain('month=2026-01')
    await page.goBack()
    await page.getByRole('region', { name: 'Table of sessions' }).waitFor()
    await expect.poll(() => page.getByLabel('Month (UTC)').inputValue()).not.toBe('2026-01')
  })

  it('lets a person type a month where the browser has no picker', async () => {
    await create('amy')
    const page = await owner(viewOf('amy', '?part=statement'))
    // Such a browser takes the type for text.
    await page.addInitScript(`
      const { prototype } = HTMLInputElement
      const { get, set } = Object.getOwnPropertyDescriptor(prototype, 'type')
      const setType = function (type) { set.call(this, type === 'month' ? 'text' : type) }
      Object.defineProperty(prototype, 'type', { get, set: setType })`)
    await page.reload()
    const month = page.getByLabel('Month (UTC)')
    await month.fill('')
    await month.pressSequentially('2026-02')
    expect(await month.inputValue()).toBe('2026-02')
    expect(page.url()).not.toContain('month=')
    await month.press('Enter')
    await page.waitForURL(/month=2026-02/)
  })

  it('shows what an allowed call holds', async () => {
    await create('hal')
    await authorize(registerSecret(asKey(await call('POST', '/users/hal/keys', {})).apiKey), 1e12)
    const page = await owner(viewOf('hal'))
    const micros = async (amount: Locator): Promise<number> =>
      Math.round(parseFloat((await amount.getAttribute('title')) ?? '') * 1e6)
    const lent = page.getByRole('region', { name: 'Table of lent money' }).locator('.number span')
    const rest = page.getByText('Lent to signers').locator('span')
    expect(await micros(rest)).toBe((await micros(lent.first())) - (await micros(lent.last())))
    const calls = page.getByRole('region', { name: 'Table of calls without a ticket' })
    expect(await calls.getByRole('row').last().innerText()).toMatch(/\t1\tIts ticket is awaited/)
  })

  it('explains why calls are refused', async () => {
    await create('eve')
    const { apiKey } = asKey(await call('POST', '/users/eve/keys', {}))
    registerSecret(apiKey)
    expect(await authorize(apiKey, 900_000_000_000_000_000)).toContain('insufficient_balance')
    const page = await owner(viewOf('eve', '?part=decisions'))
    await page.getByText('insufficient_balance').waitFor()
    await page.getByRole('link', { name: 'Explain the decision' }).click()
    await page.getByRole('heading', { name: 'One decision, explained' }).waitFor()
    await page.getByRole('link', { name: 'About insufficient_balance' }).waitFor()
    await page.getByLabel('Code').fill('invalid_token')
    await page.getByRole('button', { name: 'Show', exact: true }).click()
    await page.getByText('No recorded decision has this code.').waitFor()
  })

  it('changes, ends and keeps a plan', async () => {
    await create('pia')
    const page = await owner(viewOf('pia'))
    await page.getByText('no other active plan').waitFor()
    const plan = { method: 'POST', path: `/api/v1/apps/${clientId()}/plans` }
    expect(await send(page, { ...plan, body: { name: 'Gift', type: 'free' } })).toBe(201)
    await page.reload()
    await page.getByLabel('Change to').selectOption({ label: 'Gift (free)' })
    await page.getByLabel('When').selectOption('immediate')
    await page.getByRole('button', { name: 'Change the plan' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Change the plan' }).click()
    await page.getByText('Changed, with effect at').waitFor()
    await expect.poll(() => figure(page, 'Name').innerText()).toBe('Gift')
    await page.getByRole('button', { name: 'End the plan' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'End the plan' }).click()
    await page.getByText('then the user is on Starter').first().waitFor()
    await page.getByRole('button', { name: 'Stay on the plan' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Stay on the plan' }).click()
    await page.getByText('then the user is on Starter').waitFor({ state: 'detached' })
  })

  it('reports a change of plan, also if the new plan is read before other parts', async () => {
    await create('rosa')
    const page = await owner(viewOf('rosa'))
    const path = `/api/v1/apps/${clientId()}/plans`
    for (const name of ['Present', 'Second present'])
      expect(await send(page, { method: 'POST', path, body: { name, type: 'free' } })).toBe(201)
    await page.reload()
    await page.getByLabel('Change to').selectOption({ label: 'Present (free)' })
    await page.getByLabel('When').selectOption('immediate')
    const allowance = Promise.withResolvers<void>()
    await page.route('**/rosa/allowances', async (route) => {
      await allowance.promise
      await route.continue()
    })
    await page.getByRole('button', { name: 'Change the plan' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Change the plan' }).click()
    await expect.poll(() => figure(page, 'Name').innerText()).toBe('Present')
    allowance.resolve()
    await page.getByText('Changed, with effect at').waitFor()
    await page.getByLabel('Change to').selectOption({ label: 'Second present (free)' })
    expect(await page.getByRole('dialog').count()).toBe(0)
  })

  it('repeats a change of plan whose answer was lost with its Idempotency-Key', async () => {
    await create('uma')
    const page = await owner(viewOf('uma'))
    const path = `/api/v1/apps/${clientId()}/plans`
    expect(await send(page, { method: 'POST', path, body: { name: 'Later', type: 'free' } })).toBe(
      201,
    )
    await page.reload()
    const keys: (string | undefined)[] = []
    await page.route('**/subscription/change', async (route) => {
      keys.push(route.request().headers()['idempotency-key'])
      if (keys.length > 1) return route.continue()
      await route.fetch()
      return route.abort()
    })
    const change = async (): Promise<void> => {
      await page.getByRole('button', { name: 'Change the plan' }).click()
      await page.getByRole('dialog').getByRole('button', { name: 'Change the plan' }).click()
    }
    await page.getByLabel('Change to').selectOption({ label: 'Later (free)' })
    await page.getByLabel('When').selectOption('next_billing_cycle')
    await change()
    await page.getByText('The service cannot be reached.').waitFor()
    await page.getByRole('button', { name: 'Cancel' }).click()
    await change()
    await page.getByText('Changed, with effect at').waitFor()
    await page.getByLabel('Change to').selectOption({ label: 'Later (free)' })
    await change()
    await expect.poll(() => keys.length).toBe(3)
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(keys[1]).toBe(keys[0])
    expect(keys[2]).not.toBe(keys[0])
    forgive(/ERR_FAILED/)
  })

  it('deactivates a user after it stated the effect, and activates it again', async () => {
    await create('joe')
    const page = await owner(viewOf('joe'))
    await page.getByRole('button', { name: 'Deactivate' }).click()
    await page.getByText('It ends every key, session and token').waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Deactivate' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Deactivate' }).click()
    await expect.poll(() => figure(page, 'Status').first().innerText()).toContain('inactive since')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'Activate', exact: true }).click()
    await page.getByText('keys that were revoked stay revoked', { exact: false }).waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Activate' }).click()
    await expect.poll(() => figure(page, 'Status').first().innerText()).toBe('active')
  })

  it('answers for a user that the app does not have', async () => {
    const page = await owner(viewOf('nobody'))
    await page.getByText('This app has no user').waitFor()
    expect(await page.getByRole('button', { name: /activate/i }).count()).toBe(0)
  })

  it('shows a viewer everything and offers no change; the server refuses one', async () => {
    const page = await open('/')
    await page.getByRole('link', { name: 'Dashboard' }).click()
    await logIn(page, viewer.email, viewer.password)
    await page.getByRole('button', { name: 'Accept' }).click()
    await page.getByRole('link', { name: 'Demo', exact: true }).waitFor()
    await show(page, users())
    expect(await page.getByRole('heading', { name: 'Create a user' }).count()).toBe(0)
    for (const part of parts) {
      await show(page, viewOf('ada', part))
      const actions = page.getByRole('button', { name: /create|give|change|end|save|activate/i })
      expect({ part, actions: await actions.count() }).toEqual({ part, actions: 0 })
      expect(await page.getByRole('alert').count()).toBe(0)
    }
    const path = `/api/v1/internal/apps/${clientId()}/users`
    for (const [method, url, body] of [
      ['POST', path, { externalUserId: 'x' }],
      ['POST', `${path}/ada/allowances`, { amountUsdMicros: '1' }],
      ['POST', `${path}/ada/keys`, {}],
      ['PUT', `${path}/ada/limits`, { callsPerMinute: 1 }],
      ['POST', `/api/v1/apps/${clientId()}/users/ada/subscription/change`, { planId: 'x' }],
    ] as const)
      expect(await send(page, { method, path: url, body })).toBe(403)
    forgive(/403/)
  })

  it('is accessible in every part, in both themes, and fits a phone', async () => {
    await spend('ada')
    const page = await owner(users(), { viewport: { width: 360, height: 800 } })
    for (const view of [users(), ...parts.map((part) => viewOf('ada', part))]) {
      await show(page, view)
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme })
        const found = await violations(page)
        expect({ view, colorScheme, found }).toEqual({ view, colorScheme, found: [] })
      }
      const width = await page.evaluate('document.documentElement.scrollWidth')
      expect({ view, width }).toEqual({ view, width: 360 })
    }
  }, 60_000)

  async function readBalance(id: string): Promise<string> {
    const answer = await call('GET', `/users/${encodeURIComponent(id)}/allowances`)
    return JSON.parse(JSON.stringify(answer)).balanceUsdMicros
  }

  /** Asks the sidecar, as a signer does, about a call at a price in wei. Returns its answer. */
  async function authorize(apiKey: string, wei: number): Promise<string> {
    const { sidecarUrl, webhookSecret } = quickstart()
    const state = { StateID: '0a0b0c0d', LastUpdate: new Date().toISOString(), Type: 'fixed' }
    const price = { InitialPricePerUnit: wei, InitialPixelsPerUnit: 1, SequenceNumber: 0 }
    const answer = await fetch(`${sidecarUrl}/authorize`, {
      method: 'POST',
      headers: { authorization: `Bearer ${webhookSecret}` },
      body: JSON.stringify({
        headers: { Authorization: [`Bearer ${apiKey}`] },
        state: { ...state, ...price, App: 'acme/echo', Balance: '0' },
      }),
    })
    return answer.text()
  }
})

async function chooseMonth(page: Page, month: string): Promise<void> {
  await page.getByLabel('Month (UTC)').fill(month)
  await page.getByRole('button', { name: 'Show', exact: true }).click()
}

const asKey = (answer: unknown): { apiKey: string } => JSON.parse(JSON.stringify(answer))
