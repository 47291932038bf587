import { createServer } from 'node:http'
import type { APIResponse, Page } from 'playwright-core'
import { expect, vi } from 'vitest'
import { listen } from '../../../../core/lib/http.ts'
import { basic } from '../../../../deploy/cli/client.ts'
import { registerSecret } from '../../run/secrecy.ts'
import { signedTicket } from '../../usage/signed-ticket.ts'
import type { setUpDashboard } from '../dashboard.ts'
import { newForeignKey, startForeignIssuer } from '../foreign-issuer.ts'
import type { Place } from './views.ts'

/** An app in which every view has something to show. */

type Dashboard = ReturnType<typeof setUpDashboard>
const waiting = { timeout: 30_000, interval: 100 }
type Json = Readonly<Record<string, unknown>>

export interface SeededApp {
  readonly clientId: string
  readonly externalUserId: string
  readonly planId: string
  readonly endpointId: string
  readonly invoiceId: string
  readonly noteId: string
  readonly quarantineId: string
  readonly eventId: string
  /** Sends a ticket of one more user of the app, and makes a key for it. */
  readonly use: (externalUserId: string) => Promise<void>
  /** Stops the servers that the app names. */
  readonly stop: () => Promise<void>
}

/** Sends requests with the session of a page, and returns answers as JSON. */
export async function createSender(page: Page) {
  const { origin } = new URL(page.url())
  const { csrfToken } = await asJson(await page.request.get(`${origin}/api/v1/session`))
  const headers = { origin, 'x-csrf-token': String(csrfToken) }
  return (method: string, path: string, data?: object): Promise<APIResponse> =>
    page.request.fetch(`${origin}${path}`, { method, headers, ...(data && { data }) })
}
export type Sender = Awaited<ReturnType<typeof createSender>>

async function asJson(answer: APIResponse): Promise<Json> {
  expect([answer.url(), answer.status(), await answer.text()]).toEqual([
    answer.url(),
    expect.toBeOneOf([200, 201, 202]),
    expect.anything(),
  ])
  return JSON.parse(await answer.text())
}

/** Where the app's own login leads back to. */
export const returnAddress = 'https://shop.example/back'

/** Starts an endpoint for webhooks that refuses each delivery with a text. */
async function startRefusingEndpoint(text: string) {
  const server = createServer((_, response) => response.writeHead(500).end(text))
  const { url, stop } = await listen(server, { host: '127.0.0.1', port: 0, setting: 'none' })
  return { url: url.replace('127.0.0.1', 'localhost'), stop: () => stop(0) }
}

/**
 * Fills the app of the dashboard's service as its owner, its backend, its users and its signer do.
 * `text` returns what is written into a place.
 */
export async function seedApp(
  dashboard: Dashboard,
  page: Page,
  text: (place: Place) => string,
): Promise<SeededApp> {
  const { quickstart, clientId, openSignerSession, pushTicket } = dashboard
  const { m2mClientId, m2mClientSecret, platformUrl, sidecarUrl, webhookSecret } = quickstart()
  const app = `/api/v1/apps/${clientId()}`
  const send = await createSender(page)
  const ask = async (method: string, path: string, data?: object): Promise<Json> =>
    asJson(await send(method, path, data))
  const backend = async (method: string, path: string, body?: object): Promise<Json> => {
    const answer = await fetch(`${platformUrl}${app}${path}`, {
      method,
      headers: {
        'content-type': 'application/json',
        authorization: basic(m2mClientId, m2mClientSecret),
      },
      ...(body && { body: JSON.stringify(body) }),
    })
    const answered = await answer.text()
    expect([path, answer.status, answered]).toEqual([path, expect.toBeOneOf([200, 201]), answered])
    return JSON.parse(answered)
  }
  const ticket = {
    app: text('model'),
    pipeline: 'live',
    model_id: text('model'),
    session_id: text('session'),
    manifest_id: text('session'),
  }
  const externalUserId = text('user')
  const user = `/users/${encodeURIComponent(externalUserId)}`

  await connectPayments(page, ask, app)
  await ask('PUT', app, {
    name: text('app'),
    developerName: text('developer'),
    websiteUrl: 'https://shop.example',
    loginPolicy: 'anyone',
    redirectUris: [returnAddress],
  })
  await backend('POST', '/users', { externalUserId, email: 'ada@example.com' })
  const { apiKey, id: keyId } = await backend('POST', `${user}/keys`, { label: text('key') })
  registerSecret(String(apiKey))
  // While the user has something left, so that a call is allowed.
  await decide()
  const eventId = await spend(externalUserId)
  await openSignerSession(externalUserId)
  const limits = { callsPerMinute: 60, usdMicrosPerDay: '25000000' }
  await backend('PUT', `${user}/limits`, limits)
  await backend('PUT', `${user}/keys/${String(keyId)}/limits`, { callsPerMinute: 30 })
  const plan = await ask('POST', `${app}/plans`, {
    name: 'Team of makers',
    type: 'subscription',
    status: 'active',
    priceAmount: '30.00',
    includedUsdMicros: '40000000',
    includedUnits: '100',
    overageRateWei: '1',
    capabilities: [{ pipeline: 'live', modelId: text('model'), retailRateUsd: '0.0000015' }],
  })
  const endpoints = await seedWebhooks()
  const issuer = await seedIssuer()
  await ask('POST', '/api/v1/internal/operate/signers', {
    name: 'east',
    allApps: false,
    clientIds: [clientId()],
    mayPushEvents: false,
  }).then(({ secret }) => registerSecret(String(secret)))
  await seedTestClock()
  const quarantineId = await seedQuarantine()
  const { invoiceId, noteId } = await seedInvoice()

  return {
    clientId: clientId(),
    externalUserId,
    planId: String(plan['id']),
    endpointId: endpoints.id,
    invoiceId,
    noteId,
    quarantineId,
    eventId,
    use: async (id) => {
      const { apiKey: key } = await backend('POST', `/users/${encodeURIComponent(id)}/keys`, {
        label: text('key'),
      })
      registerSecret(String(key))
      await pushTicket(`${clientId()}:${id}`, { data: ticket })
    },
    stop: async () => {
      await endpoints.stop()
      await issuer.stop()
    },
  }

  /** Sends a ticket of 21 dollars, and waits until it is booked. Returns its event id. */
  async function spend(id: string): Promise<string> {
    // 21 dollars.
    const data = { ...ticket, computed_fee: '7000000000000000' }
    await pushTicket(`${clientId()}:${id}`, { data })
    const requests = `/api/v1/internal/apps/${clientId()}/usage/requests?externalUserId=${encodeURIComponent(id)}`
    let eventId = ''
    await vi.waitUntil(async () => {
      const { items } = (await ask('GET', requests)) as { items: { eventId: string }[] }
      eventId = items[0]?.eventId ?? ''
      return eventId !== ''
    }, waiting)
    return eventId
  }

  async function seedWebhooks() {
    const receiver = await startRefusingEndpoint(text('webhook answer'))
    const { endpoint, secret } = await ask('POST', `${app}/webhook-endpoints`, {
      url: `${receiver.url}/${encodeURI(text('webhook note'))}`,
      description: text('webhook note'),
      eventTypes: [],
    })
    registerSecret(String(secret))
    const { id } = endpoint as { id: string }
    await ask('POST', `${app}/webhook-endpoints/${id}/ping`)
    return { id, stop: receiver.stop }
  }

  async function seedIssuer() {
    const issuer = await startForeignIssuer([await newForeignKey('a')])
    await ask('POST', `${app}/trusted-issuers`, {
      issuer: issuer.url,
      audiences: [text('audience')],
      clientClaim: null,
      clientValues: [],
      userClaim: text('issuer claim'),
      userPrefix: 'shop:',
      jwksUri: null,
    })
    return issuer
  }

  /** Creates a test app with a name that its owner chose, and moves its clock. */
  async function seedTestClock(): Promise<void> {
    const created = await ask('POST', '/api/v1/apps', { name: text('app'), isTest: true })
    registerSecret(String(created['m2mClientSecret']))
    const clock = `/api/v1/apps/${String(created['clientId'])}/test-clock`
    await ask('POST', clock, { advanceSeconds: 86_400 })
  }

  /**
   * Sends an event of an unknown app and discards it, and sends another one. Returns the first one's
   * id in quarantine.
   */
  async function seedQuarantine(): Promise<string> {
    const quarantine = '/api/v1/internal/operate/quarantine'
    const list = async () => ((await ask('GET', quarantine)) as { events: { id: string }[] }).events
    const pushEvent = async (id: string, countAfter: number): Promise<void> => {
      const answer = await page.request.post(`${sidecarUrl}/events`, {
        headers: { 'x-webhook-secret': webhookSecret },
        data: signedTicket({ id, authId: 'unknown:ada', computed_fee: '33' }),
      })
      expect(answer.status()).toBe(202)
      await vi.waitUntil(async () => (await list()).length === countAfter, waiting)
    }
    await pushEvent(text('event'), 1)
    const id = (await list())[0]?.id ?? ''
    await pushEvent('later', 2)
    await ask('POST', `${quarantine}/${id}/discard`, { reason: text('reason of a discard') })
    return id
  }

  /** Collects what the user owes, and voids the invoice, which makes a credit note. */
  async function seedInvoice() {
    await ask('POST', `${app}/billing/collect`, { externalUserId })
    const invoices = `${app}/billing/invoices`
    let [invoiceId, noteId] = ['', '']
    const read = async () =>
      (await ask('GET', `${invoices}?payer=users`)) as {
        items: { id: string; invoiceType: string }[]
      }
    await vi.waitUntil(async () => {
      invoiceId = (await read()).items[0]?.id ?? ''
      return invoiceId !== ''
    }, waiting)
    await ask('POST', `${invoices}/${invoiceId}/void`, { reason: text('reason of a credit note') })
    noteId = (await read()).items.find(({ invoiceType }) => invoiceType === 'credit_note')?.id ?? ''
    return { invoiceId, noteId }
  }

  /** Asks the sidecar about calls, of which it allows one. */
  async function decide(): Promise<void> {
    for (const wei of [1e12, 9e17])
      await page.request.post(`${sidecarUrl}/authorize`, {
        headers: { authorization: `Bearer ${webhookSecret}` },
        data: {
          headers: { Authorization: [`Bearer ${String(apiKey)}`] },
          state: {
            StateID: '0a0b0c0d',
            LastUpdate: new Date().toISOString(),
            Type: 'fixed',
            InitialPricePerUnit: wei,
            InitialPixelsPerUnit: 1,
            SequenceNumber: 0,
            App: text('model'),
            Balance: '0',
          },
        },
      })
  }
}

/** Lets users pay the app, whose account at the simulated processor it connects. */
async function connectPayments(
  page: Page,
  ask: (method: string, path: string, data?: object) => Promise<Json>,
  app: string,
): Promise<void> {
  const settings = { isPlatformOwned: false, billingMode: 'merchant' }
  await ask('PUT', `${app}/billing/settings`, settings)
  const { url } = await ask('POST', `${app}/billing/processor/connect`, {})
  const onboarding = await page.context().newPage()
  await onboarding.goto(String(url))
  await onboarding.getByRole('button', { name: 'Complete the account' }).click()
  await onboarding.waitForURL(({ pathname }) => !pathname.startsWith('/pay/'))
  await onboarding.close()
}
