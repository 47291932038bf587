import { basic } from '../cli/client.ts'
import type { Quickstart } from '../local/data-dir.ts'

export interface Balance {
  readonly balanceUsdMicros: string
  readonly consumedUsdMicros: string
  readonly lifetimeGrantedUsdMicros: string
  readonly hasAccess: boolean
  readonly unpricedTickets?: string
}

export interface Usage {
  readonly totals: {
    readonly requestCount: number
    readonly totalFeeWei: string
    readonly networkFeeUsdMicros: string
  }
  readonly byPipelineModel: readonly {
    readonly pipeline: string
    readonly modelId: string
    readonly requestCount: number
    readonly networkFeeUsdMicros: string
  }[]
}

export interface Subscription {
  readonly planId: string
  readonly status: string
  readonly currentPeriodEnd: string
  readonly planName: string
}

// A move of the test clock may take 15 seconds.
const timeoutMs = 30_000

const refusedSecret =
  "the service refuses the demo app's secret in quickstart.json (401): it was replaced, or has expired; stop " +
  'the service and run npm start, which writes a new secret of the same app'

/** The calls of an integrator's backend for the demo app, over the public REST API. */
export const createDemoApi = (service: Quickstart) =>
  createAppApi({
    platformUrl: service.platformUrl,
    clientId: service.clientId,
    authorization: basic(service.m2mClientId, service.m2mClientSecret),
  })

export interface AppAccess {
  readonly platformUrl: string
  readonly clientId: string
  /** `Basic …` of the app's M2M client. */
  readonly authorization: string
}

/** The calls of an integrator's backend. */
export function createAppApi({ platformUrl, clientId, authorization }: AppAccess) {
  const app = `${platformUrl}/api/v1/apps/${clientId}`
  const builder = `${platformUrl}/api/v1/builder/apps/${clientId}`

  async function call<T>(
    method: string,
    url: string,
    options: { body?: object; headers?: Record<string, string> } = {},
  ): Promise<T> {
    const response = await fetch(url, {
      method,
      headers: {
        authorization,
        ...(options.body ? { 'content-type': 'application/json' } : {}),
        ...options.headers,
      },
      body: options.body ? JSON.stringify(options.body) : null,
      signal: AbortSignal.timeout(timeoutMs),
    })
    const text = await response.text()
    if (response.status === 401) throw new Error(refusedSecret)
    if (!response.ok)
      throw new Error(
        `${method} ${new URL(url).pathname} returned ${response.status}: ${text.slice(0, 300)}`,
      )
    return JSON.parse(text)
  }

  return {
    createUser: (externalUserId: string) =>
      call<object>('POST', `${app}/users`, { body: { externalUserId } }),
    createKey: (user: string) =>
      call<{ keyId: string; apiKey: string }>(
        'POST',
        `${app}/users/${encodeURIComponent(user)}/keys`,
      ),
    grant: (user: string, amountUsdMicros: string) =>
      call<Balance>('POST', `${app}/users/${encodeURIComponent(user)}/allowances`, {
        body: { amountUsdMicros },
        headers: { 'idempotency-key': `demo-${user}-${amountUsdMicros}` },
      }),
    balance: (user: string) =>
      call<Balance>('GET', `${builder}/usage/balance?externalUserId=${encodeURIComponent(user)}`),
    usage: (user: string) =>
      call<Usage>(
        'GET',
        `${builder}/usage?groupBy=pipeline_model&userId=${encodeURIComponent(user)}`,
      ),
    subscription: (user: string) =>
      call<{ subscription: Subscription }>(
        'GET',
        `${app}/users/${encodeURIComponent(user)}/subscription`,
      ),
    state: <T>(user: string) =>
      call<T>('GET', `${app}/billing/state?externalUserId=${encodeURIComponent(user)}`),
    newCard: (externalUserId: string) =>
      call<{ checkoutUrl: string }>('POST', `${app}/billing/payment-method`, {
        body: { externalUserId },
      }),
    moveClock: (to: string) =>
      call<{ now: string; effects: { invoicesIssued: number; paymentsSucceeded: number } }>(
        'POST',
        `${app}/test-clock`,
        { body: { to } },
      ),
  }
}

export type DemoApi = ReturnType<typeof createDemoApi>
