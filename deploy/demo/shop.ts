import { randomBytes } from 'node:crypto'
import { newSecret } from '../../core/lib/crypto.ts'
import type { Quickstart } from '../local/data-dir.ts'
import { basic } from '../cli/client.ts'
import { changeCore } from '../cli/command.ts'
import { type Browser, createBrowser, parsePath } from './browser.ts'
import { type HookReceiver, startHookReceiver } from './hook-receiver.ts'
import type { Screen } from './screen.ts'
import type { Target } from './service.ts'
import { waitFor } from './waiting.ts'

const ownerPrice = '5.00'

/** How much more than the network's price the plan costs. */
export const timesNetwork = 3n

/** The plan: three times the network price, with 2 USD of usage included. */
export const offer = {
  name: 'Pro',
  type: 'usage',
  status: 'active',
  priceAmount: '10.00',
  includedUsdMicros: '2000000',
  overageRateUsd: `0.00000${timesNetwork}`,
  chargeThresholdUsd: '1.00',
} as const

/** An app of an owner, with a connected account, a plan and an endpoint for webhooks. */
export interface Shop {
  readonly clientId: string
  /** `Basic …` of the app's M2M client. */
  readonly authorization: string
  readonly planId: string
  readonly hooks: HookReceiver
  /** The owner as a customer of the platform app. */
  readonly owner: { readonly platformClientId: string; readonly externalUserId: string }
  /** Calls REST with the session of the owner, below the app's address. */
  readonly call: <T>(method: string, path: string, body?: object) => Promise<T>
}

export interface ShopDeps {
  readonly service: Quickstart
  readonly screen: Screen
  readonly target: Target
}

/** The browser of a new person. */
export const newBrowser = ({ platformUrl, issuer }: Quickstart): Browser =>
  createBrowser({ url: platformUrl, origin: new URL(issuer).origin })

/** Opens a shop. The caller stops `hooks`. */
export async function openShop(deps: ShopDeps): Promise<Shop> {
  const { screen, service, target } = deps
  const app = await createApp(target)
  screen.step(
    'App',
    `${app.clientId}, a test app: its clock can be moved. Its owner is ${app.email}`,
  )
  const browser = newBrowser(service)
  await browser.logIn(app.email, app.password)
  const { csrfToken } = await browser.call<{ csrfToken: string }>('GET', '/api/v1/session')
  const call = <T>(method: string, path: string, body?: object) =>
    browser.call<T>(method, `/api/v1/apps/${app.clientId}/${path}`, {
      csrfToken,
      ...(body && { body }),
    })
  await connect(browser, app.clientId)
  await call('PUT', 'billing/settings', { billingMode: 'merchant' })
  const { status } = await call<{ status: string }>('GET', 'billing/processor')
  screen.step('Connect', `the owner's payment account is ${status}; users pay the owner (merchant)`)
  const owner = await takeOwnerPlan({ ...deps, call })
  const hooks = await startHookReceiver()
  try {
    const { secret } = await call<{ secret: string }>('POST', 'webhook-endpoints', {
      url: hooks.url,
    })
    hooks.trust(secret)
    screen.step('Webhook', `events are sent to ${hooks.url}, which verifies their signatures`)
    const { id: planId } = await call<{ id: string }>('POST', 'plans', offer)
    screen.step(
      'Publish',
      `plan ${offer.name}: $${offer.priceAmount} a month with $2.00 of usage, at three times the network price;`,
    )
    screen.more(`overage is on credit and is charged when it reaches $${offer.chargeThresholdUsd}`)
    return { ...app, planId, hooks, owner, call }
  } catch (error) {
    await hooks.stop()
    throw error
  }
}

/** Creates the app and the account of its owner, as an operator does. */
async function createApp(target: Target) {
  const name = randomBytes(3).toString('hex')
  const email = `shop-${name}@demo.localhost`
  const password = newSecret('').slice(0, 20)
  const app = await changeCore({ target }, (core) =>
    core.apps.createApp({
      name: `Shop ${name}`,
      ownerEmail: email,
      ownerPassword: password,
      isTest: true,
      isCustomer: true,
      starterUsdMicros: undefined,
    }),
  )
  const authorization = basic(app.m2mClientId, app.m2mClientSecret)
  return { clientId: app.clientId, authorization, email, password }
}

/** Connects the app's account, on the pages of the service and of the simulated processor. */
async function connect(browser: Browser, clientId: string): Promise<void> {
  const page = await browser.open(`/apps/${clientId}/billing`)
  const started = await browser.submit(`/apps/${clientId}/billing/connect`, page.fields)
  const address = started.location ?? ''
  const account = await browser.open(address)
  const [path = ''] = address.split('?')
  const done = await browser.submit(path, { ...account.fields, action: 'complete' })
  await browser.open(done.location ?? '')
}

/**
 * Sells the owner a plan of the platform, with a card. The plan exists for this owner only: it is
 * inactive again when the owner has it.
 */
async function takeOwnerPlan({
  service,
  screen,
  target,
  call,
}: ShopDeps & Pick<Shop, 'call'>): Promise<Shop['owner']> {
  const read = () => call<OwnerPlan>('GET', 'billing/owner-plan')
  const { platformClientId, externalUserId } = await read()
  const name = `Demo owner ${randomBytes(3).toString('hex')}`
  const planJson = { name, type: 'usage', status: 'active', priceAmount: ownerPrice }
  const plan = await changeCore({ target }, (core) =>
    core.plans.createPlan({ clientId: platformClientId, planJson: JSON.stringify(planJson) }),
  )
  try {
    const answer = await call<{ checkoutUrl: string }>('POST', 'billing/owner-plan', {
      planId: plan.id,
    })
    await pay(newBrowser(service), answer.checkoutUrl, 'works')
    await waitFor('the owner has the plan', read, ({ plan: current }) => current?.name === name)
  } finally {
    const retired = JSON.stringify({ id: plan.id, status: 'inactive' })
    await changeCore({ target }, (core) =>
      core.plans.updatePlan({ clientId: platformClientId, planJson: retired }),
    )
  }
  screen.step(
    'Owner plan',
    `the owner pays the platform $${ownerPrice} a month and the network's cost, with Visa 4242`,
  )
  return { platformClientId, externalUserId }
}

interface OwnerPlan {
  readonly platformClientId: string
  readonly externalUserId: string
  readonly plan: { readonly name: string } | null
}

/** Pays on the simulated pay page with a test card. */
export async function pay(browser: Browser, checkoutUrl: string, card: string): Promise<void> {
  const path = parsePath(checkoutUrl)
  const { fields } = await browser.open(path)
  const { status } = await browser.submit(path, { ...fields, card })
  if (status !== 303) throw new Error(`the pay page returned ${status} for the card ${card}`)
}
