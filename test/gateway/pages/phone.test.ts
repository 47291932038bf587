import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { logInTo, manage } from '../../support/web/people.ts'
import { type Pages, password, startPages } from './support.ts'

const chromium = process.env['TEST_CHROMIUM'] ?? ''
const phone = 360
const long = 'averyveryverylongname.of.somebody.without.a.blank'
const email = `${long}@department.of.a.university.example`

let pages: Pages
const folder = mkdtempSync(join(tmpdir(), 'tollgate-phone-'))
beforeAll(async () => {
  pages = await startPages()
})
afterAll(async () => {
  await pages.stop()
  rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 })
})

/** Returns the width of the page's layout in a browser as wide as a phone. */
function widthOf(document: string): number {
  const file = join(folder, 'page.html')
  const frame = `<script>document.body.append(Object.assign(document.createElement('iframe'),
    {style: 'width:${phone}px;height:900px', srcdoc: ${JSON.stringify(document).replaceAll('<', '\\u003c')},
     onload: (e) => document.title = e.target.contentDocument.documentElement.scrollWidth}))</script>`
  writeFileSync(file, `<!doctype html><html><body>${frame}</body></html>`)
  const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--virtual-time-budget=2000']
  const args = [...flags, `--user-data-dir=${folder}`, '--dump-dom', `file://${file}`]
  const dom = execFileSync(chromium, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  return Number(/<title>(\d+)<\/title>/.exec(dom)?.[1])
}

describe.runIf(chromium)('on a phone, with long names', () => {
  it('no page is wider than the screen', { timeout: 120_000 }, async () => {
    const app = await pages.newApp()
    const by = manage(pages, { session: (await logInTo(pages, app, 'owner')).token })
    await by.updateApp({ clientId: app.clientId, name: long })
    await by.upsertMember({ clientId: app.clientId, email, role: 'admin' })
    await pages.createAccount({ email, password })
    const browser = pages.browser()
    const loginForm = await browser.get('/login')
    await browser.logIn(email)
    const [invitations, loggedIn] = [await browser.get('/invitations'), await browser.get('/login')]
    expect(invitations.text).toContain(`Join ${long}`)
    for (const { text } of [loginForm, invitations, loggedIn]) expect(widthOf(text)).toBe(phone)
  })
})
