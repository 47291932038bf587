import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { usdCents } from '../../../core/billing/processor/port.ts'
import { createSimulatedProcessor } from '../../../core/billing/processor/simulated/simulated.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { type Real, startReal } from '../real.ts'
import { type Browser, createBrowser, publicUrl } from './support.ts'

/** The pay page of the simulated payment processor, in a browser. */

let real: Real
let simulated: ReturnType<typeof createSimulatedProcessor>
let customer: string
const at = { plane: 'live', account: null } as const
beforeAll(async () => {
  real = await startReal({ PAYMENT_PROCESSOR: 'simulated' })
  simulated = createSimulatedProcessor({
    pool: real.core.sql,
    now: real.core.clock.now,
    log: silentLog(),
    publicUrl,
    receive: async () => {},
  })
  const payer = { reference: 'user-1', description: 'ada' }
  customer = (await simulated.processor.createCustomer(at, payer, 'customer')).id
})
afterAll(() => real.stop())

let keys = 0
async function open(mode: 'payment' | 'card' = 'payment') {
  const { id, url } = await simulated.processor.openCheckout(
    at,
    {
      customer,
      mode,
      amount: mode === 'payment' ? usdCents(105n) : null,
      fee: usdCents(0n),
      description: 'Top-up <b>& more</b>',
      successUrl: 'https://shop.example/paid?order=1&ok=1',
      cancelUrl: 'https://shop.example/left',
      reference: 'checkout-1',
    },
    `checkout-${++keys}`,
  )
  const { pathname } = new URL(url)
  const state = async () => (await simulated.processor.readCheckout(at, id))?.state
  return { id, path: pathname, state, browser: createBrowser(real.url) }
}

const pay = async (browser: Browser, path: string, card: string) => {
  const { fields } = await browser.get(path)
  return browser.post(path, { ...fields, card })
}

describe('pay page', () => {
  it('shows what is paid and that no money moves, and leads back to the application', async () => {
    const { browser, path, state } = await open()
    const page = await browser.get(path)
    expect(page.text).toContain('No money moves')
    expect(page.text).toContain('Top-up &lt;b&gt;&amp; more&lt;/b&gt;')
    expect(page.text).toContain('$1.05')
    expect(page.text).not.toContain('<script')
    expect(page.text).toContain('href="https://shop.example/left"')
    // Browsers apply form-action to the redirect after the payment.
    expect(page.headers.get('content-security-policy')).toContain(
      "form-action 'self' https://shop.example;",
    )
    const paid = await browser.post(path, { ...page.fields, card: 'works' })
    expect([paid.status, paid.location?.href]).toEqual([
      303,
      'https://shop.example/paid?order=1&ok=1',
    ])
    expect(await state()).toBe('paid')
    const again = await browser.get(path)
    expect(again.text).toContain('This payment is made')
    expect(again.text).not.toContain('<form')
  })

  it('lets the user choose another card after a declined one', async () => {
    const { browser, path, state } = await open()
    const declined = await pay(browser, path, 'declined')
    expect(declined.status).toBe(402)
    expect(declined.text).toContain('The card was declined')
    expect(await state()).toBe('open')
    const paid = await browser.post(path, { ...declined.fields, card: 'expires_soon' })
    expect(paid.status).toBe(303)
    expect(await state()).toBe('paid')
  })

  it('asks for a confirmation, which may be refused', async () => {
    const { browser, path, state } = await open('card')
    expect((await pay(browser, path, 'confirmation')).location?.pathname).toBe(path)
    const asked = await browser.get(path)
    expect(asked.text).toContain('Confirm with your bank')
    await browser.post(`${path}/confirmation`, { ...asked.fields, action: 'refuse' })
    expect((await browser.get(path)).text).toContain('Save the card')
    await pay(browser, path, 'confirmation')
    const confirmed = await browser.post(`${path}/confirmation`, {
      ...asked.fields,
      action: 'confirm',
    })
    expect(confirmed.location?.host).toBe('shop.example')
    expect(await state()).toBe('paid')
  })

  it('expires, and then takes nothing', async () => {
    const { browser, path, state } = await open()
    const { fields } = await browser.get(path)
    real.core.clock.advance(24 * 3_600_000)
    expect((await browser.get(path)).text).toContain('This page has expired')
    const late = await browser.post(path, { ...fields, card: 'works' })
    expect([late.status, late.location?.pathname]).toEqual([303, path])
    expect(await state()).toBe('expired')
  })

  it('rejects clicks from other sites and without its token', async () => {
    const { browser, path, state } = await open()
    const { fields } = await browser.get(path)
    const form = { ...fields, card: 'works' }
    const attempts = [
      browser.post(path, form, 'https://evil.example'),
      browser.post(path, { ...form, csrf_token: 'x'.repeat(43) }),
      createBrowser(real.url).post(path, form),
    ]
    for (const { status } of await Promise.all(attempts)) expect(status).toBe(403)
    expect(await state()).toBe('open')
  })

  it('rejects unknown checkouts and cards', async () => {
    const { browser, path, state } = await open()
    expect((await browser.get('/pay/cs_sim_none')).status).toBe(404)
    const { fields } = await browser.get(path)
    const elsewhere = await browser.post('/pay/cs_sim_none', { ...fields, card: 'works' })
    expect(elsewhere.status).toBe(404)
    for (const card of ['', 'gold', '__proto__'])
      expect((await browser.post(path, { ...fields, card })).status).toBe(400)
    expect(await state()).toBe('open')
  })
})

describe('deployment with another processor', () => {
  it('has no pay page', async () => {
    const other = await startReal()
    const browser = createBrowser(other.url)
    for (const path of ['/pay/cs_sim_none', '/pay/accounts/acct_sim_none?link=x'])
      expect((await browser.get(path)).status).toBe(404)
    await other.stop()
  })
})
