import type { Page, Request } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { registerSecret } from '../../support/run/secrecy.ts'
import { executablePath, setUpDashboard, viewer } from '../../support/web/dashboard.ts'
import { type SeededApp, returnAddress, seedApp } from '../../support/web/walk/seed.ts'
import { type Place, listOwnViews, listViews } from '../../support/web/walk/views.ts'

/**
 * Walks over all views of an app in which every text that a tenant or a stranger controls is hostile:
 * markup that would run, a quote that would end an attribute, a text from right to left, a long word.
 */
const hostile = (place: Place): string =>
  (place === 'issuer claim' ? markUp('claim') : `${markUp(place)}مستخدم`).padEnd(95, 'w')

const markUp = (text: string): string => `"><x-text>${text}</x-text><img/src=x/onerror=alert(1)>`

/** On a busy machine. */
const timeout = 180_000

const member = {
  email: 'member@example.com',
  password: registerSecret('a member with a long password'),
}

describe.runIf(executablePath)('every view and page', () => {
  const dashboard = setUpDashboard({ DEVICE_POLL_SECONDS: '1' })
  const { quickstart, clientId, open, logIn, owner, go, forgive } = dashboard
  let app: SeededApp

  beforeAll(async () => {
    app = await seedApp(dashboard, await owner(), hostile)
    // The mails of invitations have the app's name.
    await dashboard.inviteViewer()
    await dashboard.invite({ ...member, name: hostile('member'), role: 'viewer' })
  })
  afterAll(() => app?.stop())

  const home = (): string => quickstart().platformUrl

  /** Logs a person in, and accepts the invitation. */
  async function accept({ email, password }: Record<'email' | 'password', string>): Promise<Page> {
    const page = await open('/app')
    await logIn(page, email, password)
    await page.getByRole('button', { name: 'Accept' }).click()
    await page.getByRole('link', { name: hostile('app'), exact: true }).waitFor()
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

  /** Expects the texts of the places as text, and nothing that any of them made. */
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
      await accept(member)
      const page = await owner()
      const left = watchRequests(page)
      for (const { path, texts } of listViews(app)) {
        await go(page, path)
        await expectTexts(page, path, texts)
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
      await page.goto(`${home()}/mail`)
      const mail = page.locator('section', { hasText: viewer.email })
      const link = await mail.getByRole('link', { name: 'Follow its link' }).getAttribute('href')
      const { pathname, search } = new URL(link ?? '')
      const invited = await open('/app')
      await logIn(invited, viewer.email, viewer.password)
      await invited.goto(home() + pathname + search)
      await expectTexts(invited, pathname, ['app'])
      expect(left).toEqual([])
      forgive(/40[04]/)
    },
  )
})

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
