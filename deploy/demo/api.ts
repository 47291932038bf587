import { basic } from '../cli/client.ts'
import type { Quickstart } from '../all-in-one/data-dir.ts'

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

const timeoutMs = 10_000

const refusedSecret =
  "the service refuses the demo app's secret in quickstart.json (401): it was replaced, or has expired; stop " +
  'the service and run npm start, which writes a new secret of the same app'

/** The calls of an integrator's backend in the demo, over the public REST API. */
export function createDemoApi(service: Quickstart) {
  const app = `${service.platformUrl}/api/v1/apps/${service.clientId}`
  const authorization = basic(service.m2mClientId, service.m2mClientSecret)

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
      call<Balance>(
        'GET',
        `${service.platformUrl}/api/v1/builder/apps/${service.clientId}/usage/balance?externalUserId=${encodeURIComponent(user)}`,
      ),
    usage: (user: string) =>
      call<Usage>(
        'GET',
        `${service.platformUrl}/api/v1/builder/apps/${service.clientId}/usage?groupBy=pipeline_model&userId=${encodeURIComponent(user)}`,
      ),
  }
}

export type DemoApi = ReturnType<typeof createDemoApi>
