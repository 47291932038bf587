import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { isReason, reasons } from '../../../proto/errors.ts'
import { type Harness, publicUrl, startHarness } from '../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())

const visit = (path: string) => harness.ask('GET', path, { authorization: null })
const all = Object.keys(reasons).filter(isReason)

describe('the page about an error', () => {
  it.each(all)('tells of %s when it is answered and what to do', async (reason) => {
    const code = reason.toLowerCase()
    const page = await visit(`/errors/${code}`)
    expect([page.status, page.headers.get('content-type')]).toEqual([
      200,
      'text/html; charset=utf-8',
    ])
    const { http, title, help } = reasons[reason]
    // In the table names stand between backticks, in the page they are code.
    const text = page.text
      .replaceAll('&quot;', '"')
      .replaceAll('&#39;', "'")
      .replaceAll(/<\/?code>/g, '`')
    for (const part of [title, String(http), code, help]) expect(text).toContain(part)
    expect(page.text).not.toContain('<script')
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'")
  })

  it('is where the type of a problem document leads', async () => {
    const { body } = await visit('/nowhere')
    expect(body['type']).toBe(`${publicUrl}/problems/not-found`)
    const { status, headers } = await visit(new URL(String(body['type'])).pathname)
    expect([status, headers.get('location')]).toEqual([301, '/errors/not_found'])
  })

  it('is 404 for what is no code', async () => {
    for (const path of [
      '/errors/nothing',
      '/errors/NOT_FOUND',
      '/errors/__proto__',
      '/problems/nothing',
      '/errors/%3Cb%3E',
    ]) {
      const { status, body } = await visit(path)
      expect([path, status, body['code']]).toEqual([path, 404, 'not_found'])
    }
  })

  it('is listed with every other one', async () => {
    const { status, text } = await visit('/errors')
    expect(status).toBe(200)
    for (const reason of all) expect(text).toContain(`href="/errors/${reason.toLowerCase()}"`)
  })
})
