import { afterAll, beforeAll, expect } from 'vitest'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type Real, type RealApp, startReal } from '../real.ts'
import { asRecord, publicUrl } from '../support.ts'

export const edge = 'https://edge.example'
export const page = 'https://page.example'
export const callback = 'https://client.example/callback'

/** Starts the edge with a real core. */
export async function startEdge(env: Readonly<Record<string, string>> = {}) {
  const real = await startReal(
    { EDGE_PUBLIC_URL: edge, ...env },
    {},
    {
      builderEdge: { port: 0, url: edge, corsOrigins: [page], perAddress: 600 },
    },
  )

  /** Replaces name resolution: maps the documents' origins to the listeners. */
  const customFetch = (url: string, init: object = {}): Promise<Response> =>
    fetch(url.replace(edge, real.edgeUrl).replace(publicUrl, real.url), init)

  /** Opens the page as the app's owner and allows access. */
  async function allow(app: RealApp, address: URL): Promise<URL> {
    const done = await decide(app, address)
    return new URL(done.headers.get('location') ?? '')
  }

  /** Sends the consent form and returns the answer. `meanwhile` runs while the page is open. */
  async function decide(
    { session: { cookie = '' } }: RealApp,
    address: URL,
    meanwhile?: () => Promise<void>,
  ): Promise<Response> {
    const asked = await customFetch(address.href, { headers: { cookie }, redirect: 'manual' })
    const text = await asked.text()
    const form = new URLSearchParams({ action: 'approve' })
    for (const [, name = '', value = ''] of text.matchAll(
      /<input type="hidden" name="([^"]+)" value="([^"]*)"/g,
    ))
      form.set(name, value.replaceAll('&amp;', '&'))
    expect(text).toMatch(/“[^”]+” \(registered with edge\)/)
    await meanwhile?.()
    return fetch(`${real.url}/oidc/consent`, {
      method: 'POST',
      redirect: 'manual',
      headers: { cookie, origin: publicUrl, 'content-type': 'application/x-www-form-urlencoded' },
      body: form.toString(),
    })
  }

  /** Creates an initial access token. */
  async function newToken(
    { clientId }: Pick<RealApp, 'clientId'>,
    more: { usesMax?: number; days?: number } = {},
  ) {
    const request = { clientId, label: 'tests', usesMax: 20, days: 7, ...more }
    const { token, registrationToken } = await real.core.as().createRegistrationToken(request)
    return { token: registerSecret(token), id: registrationToken?.id ?? '' }
  }

  /** Sets whether the app's logins may be refreshed. */
  const setRefreshable = ({ clientId }: RealApp, isRefreshable: boolean) =>
    real.core.sql.query(
      `update clients set scopes = ${isRefreshable ? 'array_append' : 'array_remove'}(scopes, 'offline_access') where client_id = $1`,
      [clientId],
    )

  return { real, customFetch, allow, decide, newToken, setRefreshable, stop: real.stop }
}

export type Edge = Awaited<ReturnType<typeof startEdge>>

export let started: Edge
export let real: Real
export let app: RealApp
export let other: RealApp

/** Starts the edge with a real core, and creates two apps for all tests of a file. */
export function setUpEdge(): void {
  beforeAll(async () => {
    started = await startEdge({ REGISTRATIONS_PER_APP: '16', REGISTRATION_UNUSED_DAYS: '30' })
    real = started.real
    app = await real.newApp('edge')
    other = await real.newApp('other')
  })
  afterAll(() => real.stop())
}

type Headers = Readonly<Record<string, string>>

export async function ask(
  method: string,
  path: string,
  ...[headers = {}, json]: readonly [headers?: Headers, json?: unknown]
) {
  const body = json === undefined ? {} : { body: JSON.stringify(json) }
  const type = json === undefined ? {} : { 'content-type': 'application/json' }
  const response = await fetch(real.edgeUrl + path, {
    method,
    headers: { ...type, ...headers },
    ...body,
  })
  const text = await response.text()
  const isJson = /[/+]json/.test(response.headers.get('content-type') ?? '')
  const { status, headers: sent } = response
  return { status, headers: sent, text, body: isJson ? asRecord(JSON.parse(text)) : {} }
}

export const usage = (clientId = app.clientId) =>
  `/api/v1/apps/${clientId}/usage?meter=network_fee_usd_micros`
export const register = '/api/v1/oidc/register'

export const newToken = (more: { usesMax?: number; days?: number } = {}, of: RealApp = app) =>
  started.newToken(of, more)

export const authorize = ({ token }: { readonly token: string }) => ({
  authorization: `Bearer ${token}`,
})

export async function usesOf({ id }: { readonly id: string }): Promise<number | undefined> {
  const { tokens } = await real.core.as().listRegistrationTokens({ clientId: app.clientId })
  return tokens.find((token) => token.id === id)?.uses
}

export async function registered(metadata: object = {}) {
  const headers = authorize(await newToken())
  const { status, body } = await ask('POST', register, headers, {
    redirect_uris: [callback],
    ...metadata,
  })
  expect(status).toBe(201)
  const management = registerSecret(String(body['registration_access_token']))
  return {
    ...body,
    id: String(body['client_id']),
    headers: { authorization: `Bearer ${management}` },
  }
}
