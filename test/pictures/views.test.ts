import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { executablePath, setUpDashboard, viewer } from '../support/web/dashboard.ts'
import { type SeededApp, seedApp } from '../support/web/walk/seed.ts'
import { type Place, type View, listOwnViews, listViews } from '../support/web/walk/views.ts'

/** Pictures of every view in both themes on a phone, a laptop and a large screen, for people to look at. */
const folder = join(import.meta.dirname, '../../pictures')
const widths = [360, 1_280, 2_560] as const
const themes = ['light', 'dark'] as const

const texts: Readonly<Record<Place, string>> = {
  app: 'Paint shop',
  developer: 'Paint & Co',
  user: 'ada@example.com',
  key: 'Laptop of Ada',
  model: 'acme/stable-diffusion-xl',
  session: '9f86d081884c7d65',
  'webhook note': 'the shop',
  'webhook answer': '{"error":"the shop is closed"}',
  'issuer claim': 'sub',
  audience: 'shop',
  member: 'Grace Hopper',
  'reason of a credit note': 'The answers were slow on Monday.',
  event: '1b4e28ba-2fa1-11d2-883f-0016d3cca427',
  'reason of a discard': 'a test of a signer',
}

describe.runIf(executablePath)('pictures', () => {
  const dashboard = setUpDashboard({ DEVICE_POLL_SECONDS: '1' })
  const { open, logIn, owner, show } = dashboard
  let app: SeededApp

  beforeAll(async () => {
    await rm(folder, { recursive: true, force: true })
    await mkdir(folder, { recursive: true })
    app = await seedApp(dashboard, await owner(), (place) => texts[place])
    await dashboard.inviteViewer()
  })
  afterAll(() => app?.stop())

  /** Returns the views that are wider than a phone. */
  async function take(
    page: Page,
    views: readonly Pick<View, 'name' | 'path'>[],
  ): Promise<string[]> {
    const wide: string[] = []
    for (const { name, path } of views) {
      await page.setViewportSize({ width: widths[0], height: 800 })
      await show(page, path)
      const width = await page.evaluate('document.documentElement.scrollWidth')
      if (width !== widths[0]) wide.push(name)
      for (const width of widths) {
        await page.setViewportSize({ width, height: 800 })
        for (const colorScheme of themes) {
          await page.emulateMedia({ colorScheme })
          const file = join(folder, `${name}-${width}-${colorScheme}.png`)
          await page.screenshot({ path: file, fullPage: true, animations: 'disabled' })
        }
      }
    }
    return wide
  }

  it('are taken of all views', async () => {
    const page = await owner()
    expect(await take(page, listViews(app))).toEqual([])
  })

  it("are taken of a person's own use", async () => {
    await dashboard.useAsViewer()
    const page = await open('/app/me')
    await logIn(page, viewer.email, viewer.password)
    const { accountId } = await (
      await page.request.get(new URL('/api/v1/session', page.url()).href)
    ).json()
    await app.use(`user:${accountId}`)
    expect(await take(page, listOwnViews(app))).toEqual([])
  })
})
