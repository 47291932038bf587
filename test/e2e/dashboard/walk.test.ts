import type { Page, Request } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { registerSecret } from '../../support/run/secrecy.ts'
import { executablePath, setUpDashboard, viewer } from '../../support/web/dashboard.ts'
import {
  type Control,
  type Role,
  controls,
  listRequests,
  may,
  roles,
} from '../../support/web/walk/rights.ts'
import {
  type SeededApp,
  createSender,
  returnAddress,
  seedApp,
} from '../../support/web/walk/seed.ts'
import { type Access, type Place, listOwnViews, listViews } from '../../support/web/walk/views.ts'

/**
 * Walks over all views of an app in which every text that a tenant or a stranger controls is hostile:
 * markup that would run, a quote that would end an attribute, a text from right to left, a long word.
 */
const hostile = (place: Place): string =>
  (place === 'issuer claim' ? markUp('claim') : `${markUp(place)}مستخدم`).padEnd(95, 'w')

const markUp = (text: string): string => `"><x-text>${text}</x-text><img/src=x/onerror=alert(1)>`

/** On a busy machine. */
const timeout = 180_000

interface Person {
  readonly email: string
  readonly password: string
}
const person = (name: string): Person => ({
  email: `${name}@example.com`,
  password: registerSecret(`a long password of ${name}`),
})
const people = {
  stranger: person('stranger'),
  viewer: person('member'),
  admin: person('editor'),
  owner: person('owner'),
}

describe.runIf(executablePath)('every view and page', () => {
  const dashboard = setUpDashboard({ DEVICE_POLL_SECONDS: '1' })
  const { quickstart, clientId, open, logIn, owner, go, forgive } = dashboard
  let app: SeededApp

  beforeAll(async () => {
    app = await seedApp(dashboard, await owner(), hostile)
    // The mails of invitations have the app's name.
    await dashboard.inviteViewer()
    for (const [role, { email, password }] of Object.entries(people))
      await dashboard.invite({
        email,
        password,
        name: hostile('member'),
        ...(role !== 'stranger' && { role }),
      })
  })
  afterAll(() => app?.stop())

  const home = (): string => quickstart().platformUrl

  /** Logs a person in, who accepts every invitation. */
  async function enter({ email, password }: Person): Promise<Page> {
    const page = await open('/app')
    await logIn(page, email, password)
    const send = await createSender(page)
    const { invitations }: { invitations: { id: string }[] } = await (
      await send('GET', '/api/v1/invitations')
    ).json()
    for (const { id } of invitations) await send('POST', `/api/v1/invitations/${id}/accept`, {})
    return page
  }

  /** Collects requests of the page that leave the service. */
  function watchRequests(page: Page): string[] {
    const left: string[] = []
    const own = new URL(home()).port
    page.on('request', (request: Request) => {
      const { protocol, port } = new URL(request.url())
      if (protocol.startsWith('http') && port !== own) left.push(request.url())
    })
    return left
  }

  /** Expects each text to show literally, and no element that a text made. */
  async function expectTexts(page: Page, at: string, texts: readonly Place[]): Promise<void> {
    const read = async () => {
      const shown: string = await page.evaluate(readTexts)
      return { at, missing: texts.filter((place) => !shown.includes(hostile(place))) }
    }
    await expect.poll(read).toEqual({ at, missing: [] })
    const made = await page.locator(madeByTexts).count()
    expect({ at, made }).toEqual({ at, made: 0 })
  }

  it(
    'shows hostile texts as text in every view of a member and an operator',
    { timeout },
    async () => {
      await enter(people.viewer)
      const page = await owner()
      const left = watchRequests(page)
      for (const { path, texts } of listViews(app)) {
        await go(page, path)
        await expectTexts(page, path, texts)
        await expectNoRefusal(page, path)
      }
      expect(left).toEqual([])
    },
  )

  it('shows them as text in every view of a person who uses the app', { timeout }, async () => {
    await dashboard.useAsViewer()
    const page = await open('/app/me')
    await logIn(page, viewer.email, viewer.password)
    const left = watchRequests(page)
    const { accountId } = await (await page.request.get(`${home()}/api/v1/session`)).json()
    await app.use(`user:${accountId}`)
    for (const { path, texts } of listOwnViews(app)) {
      await go(page, path)
      await expectTexts(page, path, texts)
    }
    expect(left).toEqual([])
  })

  it(
    'shows them as text on pages of the login, of payments and of mails',
    { timeout },
    async () => {
      const page = await owner()
      const left = watchRequests(page)
      const started = await fetch(`${quickstart().issuer}/device/auth`, {
        method: 'POST',
        body: new URLSearchParams({ client_id: clientId() }),
      })
      const { user_code }: { user_code: string } = JSON.parse(await started.text())
      const billing = `/apps/${clientId()}/billing`
      const pages: [path: string, ...texts: Place[]][] = [
        [authorizePath(clientId()), 'app'],
        [`/oidc/device?user_code=${user_code}`, 'app'],
        [billing],
        [`${billing}/invoices/${app.invoiceId}`, 'app'],
        [`${billing}/invoices/${app.noteId}`, 'reason of a credit note'],
        ['/mail', 'app'],
        [`/oidc/auth?client_id=${encodeURIComponent(hostile('app'))}`],
        [`/login?return_to=${encodeURIComponent('javascript:alert(1)')}`],
        [`/reset-password?token=${encodeURIComponent(hostile('app'))}`],
        [`/errors/${encodeURIComponent(hostile('app'))}`],
      ]
      for (const [path, ...texts] of pages) {
        await page.goto(home() + path)
        const forward = page.getByRole('button', { name: 'Continue' })
        if (path.startsWith('/oidc/device')) await forward.click()
        await expectTexts(page, path, texts)
      }
      const invited = await open('/app')
      await logIn(invited, viewer.email, viewer.password)
      await invited.goto(`${home()}/invitations`)
      await expectTexts(invited, 'invitations', ['app'])
      expect(left).toEqual([])
      forgive(/40[04]/)
    },
  )

  it.each(roles)('shows a %s the controls of that role only', { timeout }, async (role) => {
    forgive(/40[34]/)
    const page = role === 'platform admin' ? await owner() : await enter(people[role])
    if (may(role, 'viewer')) {
      await go(page, `/${clientId()}`)
      // From here on the page has the rights in the app.
      await page.locator('.nav-title', { hasText: hostile('app') }).waitFor()
    }
    const asked = new Set(controls.map(({ view }) => view))
    for (const { name, path, access, texts } of listViews(app)) {
      const isAsked = asked.delete(name)
      // The first test has visited all as a platform admin.
      if (role === 'platform admin' && !isAsked) continue
      await go(page, path)
      if (may(role, leastRoles[access])) {
        await expectNoRefusal(page, path)
        await expectControls(page, name, role)
      } else await expectRefusal(page, path, texts)
    }
    // No control names a view that is not in the list.
    expect([...asked]).toEqual([])
  })

  async function expectNoRefusal(page: Page, path: string): Promise<void> {
    const refusals = await page.getByRole('alert').or(page.getByText(refusalWords)).allInnerTexts()
    expect({ path, refusals }).toEqual({ path, refusals: [] })
  }

  async function expectRefusal(page: Page, path: string, texts: readonly Place[]): Promise<void> {
    const count = () => page.getByRole('alert').or(page.getByText(refusalWords)).count()
    await expect
      .poll(async () => ({ path, isRefused: (await count()) > 0 }))
      .toEqual({
        path,
        isRefused: true,
      })
    const shown = (await page.locator('main').textContent()) ?? ''
    // The user's id is in the address.
    const told = texts.filter((place) => place !== 'user' && shown.includes(hostile(place)))
    expect({ path, told }).toEqual({ path, told: [] })
  }

  /** Waits for the controls that the role has in the view, and expects no other one. */
  async function expectControls(page: Page, view: string, role: Role): Promise<void> {
    const listed = controls.filter((control) => control.view === view)
    const permitted = listed.filter(({ least }) => may(role, least))
    const find = ({ kind, name }: Control) =>
      page.getByRole(kind, { name, exact: typeof name === 'string' })
    for (const control of permitted) await find(control).first().waitFor({ state: 'attached' })
    const shown: Control[] = []
    for (const control of listed) if ((await find(control).count()) > 0) shown.push(control)
    expect({ view, shown }).toEqual({ view, shown: permitted })
  }

  it('refuses the requests of a higher role', { timeout }, async () => {
    for (const role of roles.filter((each) => each !== 'platform admin')) {
      const send = await createSender(await enter(people[role]))
      for (const { method, path, body, least } of listRequests(app)) {
        if (may(role, least)) continue
        const status = (await send(method, path, body)).status()
        const refused = role === 'stranger' ? [403, 404] : [403]
        expect({ role, method, path, status }).toEqual({
          role,
          method,
          path,
          status: expect.toBeOneOf(refused),
        })
      }
    }
  })

  it('leads a person without a session to the login, and refuses its requests', async () => {
    for (const { path } of listViews(app)) {
      const { status, headers } = await fetch(`${home()}/app${path}`, { redirect: 'manual' })
      const to = headers.get('location') ?? ''
      expect({ path, status, to }).toEqual({
        path,
        status: 303,
        to: expect.stringMatching(/\/login\?/),
      })
    }
    for (const { method, path, body = {} } of listRequests(app)) {
      const headers = { 'content-type': 'application/json', origin: home() }
      const sent = method === 'GET' ? {} : { body: JSON.stringify(body) }
      const { status } = await fetch(home() + path, { method, headers, ...sent })
      expect({ method, path, status }).toEqual({
        method,
        path,
        status: expect.toBeOneOf([401, 404]),
      })
    }
  })
})

/** The least role that sees the views of an access. */
const leastRoles: Readonly<Record<Access, Role>> = {
  person: 'stranger',
  member: 'viewer',
  editor: 'admin',
  'platform admin': 'platform admin',
}

const refusalWords = /Only platform admins see this part|may not change plans/

/** The address of an app's login, which asks for consent. */
const authorizePath = (clientId: string): string => {
  const query = new URLSearchParams({
    client_id: clientId,
    redirect_uri: returnAddress,
    response_type: 'code',
    scope: 'openid',
    state: 'state-of-the-app',
    code_challenge: 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM',
    code_challenge_method: 'S256',
  })
  return `/api/v1/oidc/auth?${query.toString()}`
}

/** Everything that the page shows or keeps in a field. */
const readTexts = `[
  document.body.textContent,
  ...[...document.querySelectorAll('input, textarea')].map(({ value }) => value),
].join('\\n')`
const madeByTexts = 'x-text, img, main script, a[href^="javascript:" i]'
