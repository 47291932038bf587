import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type FakeStripe, startStripe } from '../../../fakes/stripe/stripe.ts'
import { createBrowser } from '../../pages/support.ts'
import { type Real, type RealApp, password, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

let stripe: FakeStripe
let real: Real
beforeAll(async () => {
  stripe = await startStripe()
  real = await startReal({ ...stripe.env, STRIPE_TIMEOUT_MS: '500' })
})
afterEach(() => {
  stripe.faults = () => undefined
})
afterAll(async () => {
  await real.stop()
  await stripe.stop()
})

async function connect({ clientId, session }: RealApp) {
  const path = `/api/v1/apps/${clientId}/billing/processor/connect`
  const response = await fetch(`${real.url}${path}`, { method: 'POST', headers: session })
  return { status: response.status, body: asRecord(await response.json()) }
}

async function stateOf({ clientId, basic }: RealApp) {
  const path = `/api/v1/apps/${clientId}/billing/processor`
  const response = await fetch(`${real.url}${path}`, { headers: { authorization: basic } })
  return asRecord(await response.json())
}

/** The account whose page `url` is. */
const accountOf = (url: unknown): string => String(url).split('/').at(-1) ?? ''

/** Sends the owner back from Stripe, by the latest account link. */
async function goBack(name: string): Promise<void> {
  const link = stripe.requests.findLast(({ route }) => route === '/v1/account_links')
  const { pathname, search } = new URL(String(link?.form['return_url']))
  const browser = createBrowser(real.url)
  await browser.logIn(`${name}@example.com`, password)
  expect((await browser.get(pathname + search)).status).toBe(303)
}

describe('owner who connects an account at Stripe', () => {
  it('is connected after completing it there', async () => {
    const app = await real.newApp('completes')
    const { status, body } = await connect(app)
    expect(status).toBe(200)
    expect(String(body['url'])).toMatch(new RegExp(`^${stripe.url}/setup/acct_`))
    expect(await stateOf(app)).toMatchObject({ processor: 'stripe', status: 'pending' })
    stripe.onboard(accountOf(body['url']))
    await goBack('completes')
    expect(await stateOf(app)).toMatchObject({
      status: 'connected',
      plane: 'live',
      chargesEnabled: true,
      payoutsEnabled: true,
      detailsSubmitted: true,
    })
  })

  it('may be led to Stripe by the form of the page', async () => {
    const app = await real.newApp('visits')
    const browser = createBrowser(real.url)
    await browser.logIn('visits@example.com', password)
    const page = await browser.get(`/apps/${app.clientId}/billing`)
    expect(page.headers.get('content-security-policy')).toContain('https://connect.stripe.com')
  })

  it('continues with the same account', async () => {
    const app = await real.newApp('returns')
    const [first, second] = [await connect(app), await connect(app)]
    expect(accountOf(second.body['url'])).toBe(accountOf(first.body['url']))
  })

  it('stays pending until Stripe allows charges', async () => {
    const app = await real.newApp('waits')
    const { body } = await connect(app)
    stripe.onboard(accountOf(body['url']), { charges_enabled: false })
    await goBack('waits')
    expect(await stateOf(app)).toMatchObject({ status: 'pending', detailsSubmitted: true })
  })

  it('is disconnected after ending the connection at Stripe', async () => {
    const app = await real.newApp('leaves')
    const { body } = await connect(app)
    stripe.deauthorize(accountOf(body['url']))
    await goBack('leaves')
    expect(await stateOf(app)).toMatchObject({ status: 'disconnected', connectedAt: null })
  })

  it('gets one account, although the answers of Stripe are lost', async () => {
    const app = await real.newApp('unlucky')
    const before = stripe.accounts.size
    stripe.faults = ({ route }) => (route === '/v1/accounts' ? { kind: 'reset after' } : undefined)
    expect(await connect(app)).toMatchObject({
      status: 503,
      body: { code: 'processor_unreachable' },
    })
    expect(await stateOf(app)).toMatchObject({ status: 'disconnected' })
    stripe.faults = () => undefined
    expect(await connect(app)).toMatchObject({ status: 200 })
    expect(stripe.accounts.size).toBe(before + 1)
    const keys = stripe.requests
      .filter(({ route }) => route === '/v1/accounts')
      .map(({ key }) => key)
    expect(new Set(keys.slice(-3)).size).toBe(1)
    expect(keys.at(-1)).toMatch(/^live:/)
  })

  it('gets an error while Stripe does not answer or refuses the key, and can repeat it', async () => {
    const app = await real.newApp('silent')
    stripe.faults = () => ({ kind: 'hang before' })
    expect(await connect(app)).toMatchObject({
      status: 503,
      body: { code: 'processor_unreachable' },
    })
    stripe.faults = () => ({ kind: 'refuse', status: 401 })
    const refused = await connect(app)
    expect(refused).toMatchObject({ status: 502, body: { code: 'processor_refused' } })
    expect(JSON.stringify(refused.body)).not.toContain('sk_')
    stripe.faults = () => undefined
    expect(await connect(app)).toMatchObject({ status: 200 })
  })
})
