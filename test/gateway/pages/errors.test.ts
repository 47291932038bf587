import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { isReason, reasons } from '../../../proto/errors.ts'
import { refusalCodes } from '../../../gateway/platform-api/signer/decision-schemas.ts'
import { refusalHelp } from '../../../gateway/platform-api/signer/refusal-help.ts'
import { type Harness, publicUrl, startHarness } from '../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())

const visit = (path: string) => harness.ask('GET', path, { authorization: null })
const all = Object.keys(reasons).filter(isReason)

describe('error page', () => {
  it.each(all)('explains when %s is answered and what to do', async (reason) => {
    const code = reason.toLowerCase()
    const page = await visit(`/errors/${code}`)
    expect([page.status, page.headers.get('content-type')]).toEqual([
      200,
      'text/html; charset=utf-8',
    ])
    const { http, title, help } = reasons[reason]
    // The table has names in backticks; the page renders them as code.
    const text = page.text
      .replaceAll('&quot;', '"')
      .replaceAll('&#39;', "'")
      .replaceAll(/<\/?code>/g, '`')
    for (const part of [title, String(http), code, help]) expect(text).toContain(part)
    expect(page.text).not.toContain('<script')
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'")
  })

  it('is where the type of a problem document redirects', async () => {
    const { body } = await visit('/nowhere')
    expect(body['type']).toBe(`${publicUrl}/problems/not-found`)
    const { status, headers } = await visit(new URL(String(body['type'])).pathname)
    expect([status, headers.get('location')]).toEqual([301, '/errors/not_found'])
  })

  it('returns 404 for unknown codes', async () => {
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

  it('is listed with all others', async () => {
    const { status, text } = await visit('/errors')
    expect(status).toBe(200)
    for (const reason of all) expect(text).toContain(`href="/errors/${reason.toLowerCase()}"`)
  })

  it("is grouped by kind of error, with the webhook's codes in their own group", async () => {
    const { text } = await visit('/errors')
    const groups = new Map(
      text
        .split('<h2>')
        .slice(1)
        .map((part) => [part.slice(0, part.indexOf('</h2>')), part]),
    )
    expect(groups.has('Other')).toBe(false)
    expect(groups.get('The credential and its rights')).toContain('/errors/token_invalid"')
    expect(groups.get('The service')).toContain('/errors/service_token_invalid"')
    for (const code of Object.values(refusalCodes).flat())
      expect(text).toContain(`href="/errors/${code}"`)
    expect(groups.get('The signer webhook')).toContain('/errors/insufficient_balance"')
  })

  it('is found by its words without a script', async () => {
    const found = async (q: string) => {
      const { status, text } = await visit(`/errors?${new URLSearchParams({ q })}`)
      expect(status).toBe(200)
      expect(text).not.toContain('<script')
      return { text, codes: [...text.matchAll(/href="\/errors\/(\w+)"/g)].map(([, code]) => code) }
    }
    expect((await found('service token')).codes).toContain('service_token_invalid')
    expect((await found('483')).codes).toEqual([
      'insufficient_balance',
      'no_payment_method',
      'debt_ceiling_reached',
      'owner_debt_ceiling_reached',
    ])
    expect((await found('  ')).codes.length).toBeGreaterThan(all.length)
    const none = await found('"><b>nothing')
    expect([none.codes, none.text.includes('No code matches.')]).toEqual([[], true])
    expect(none.text).toContain('value="&quot;&gt;&lt;b&gt;nothing"')
    expect((await visit(`/errors?q=${'x'.repeat(201)}`)).status).toBe(400)
  })

  it('exists for each code of the webhook', async () => {
    for (const { code, statuses, help } of refusalHelp) {
      const { status, text } = await visit(`/errors/${code}`)
      expect([code, status]).toEqual([code, 200])
      expect(statuses.length).toBeGreaterThan(0)
      if (isReason(code.toUpperCase())) continue
      const plain = text.replaceAll('&#39;', "'").replaceAll(/<\/?code>/g, '`')
      expect(plain).toContain(help)
      expect(plain).toContain(statuses.join(' or '))
    }
  })
})
