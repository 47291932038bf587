import { expect } from 'vitest'
import { basicOf } from '../../core/support.ts'
import { secretly } from '../../support/secrecy.ts'
import { type Real, type RealApp, startReal } from '../real.ts'
import { asRecord, documentChecker } from '../support.ts'

/** An app that is a tenant of the builder API. */
export interface Tenant extends RealApp {
  /** Of the tenant, not of the M2M client. */
  readonly tenantBasic: string
}

export interface Ask {
  readonly authorization?: string | null
  readonly json?: unknown
  readonly text?: string | Uint8Array<ArrayBuffer>
  readonly form?: Readonly<Record<string, string>> | string
  readonly headers?: Readonly<Record<string, string>>
}

const builderEdge = { port: 0, url: 'https://edge.example', corsOrigins: [], perAddress: 600 }

/** The builder API and its edge before a real core. Every answer is held to the builder port's document. */
export async function startBuilder(env: Readonly<Record<string, string>> = {}) {
  const real = await startReal(env, {}, { builderEdge })
  const document = asRecord(await (await fetch(`${real.builderUrl}/api/v1/openapi.json`)).json())
  const check = await documentChecker(document, { strict: true })

  const ask = (method: string, path: string, options: Ask = {}) =>
    askAt(real.builderUrl, { method, path, options })

  /** Usage at the edge. */
  const askEdge = (method: string, path: string, options: Ask = {}) =>
    askAt(real.edgeUrl, { method, path, options })

  async function askAt(
    url: string,
    { method, path, options }: { method: string; path: string; options: Ask },
  ) {
    const response = await fetch(url + path, { method, ...requestOf(options) })
    const text = await response.text()
    const isJson = /[/+]json/.test(response.headers.get('content-type') ?? '')
    const { status, headers } = response
    const answer = { status, headers, text, body: isJson ? asRecord(JSON.parse(text)) : {} }
    expect(headers.get('x-correlation-id')).toMatch(/^[A-Za-z0-9._-]{1,64}$/)
    check({ method, path: new URL(response.url).pathname, answer })
    return answer
  }

  async function newTenant(name: string): Promise<Tenant> {
    const app = await real.newApp(name)
    const { secret } = await real.core.as().createTenant({ clientId: app.clientId })
    return { ...app, tenantBasic: basicOf(app.clientId, secretly(secret)) }
  }

  return { real, document, ask, askEdge, newTenant, stop: real.stop }
}

export type Builder = Awaited<ReturnType<typeof startBuilder>>
export type Answer = Awaited<ReturnType<Builder['ask']>>
export type { Real }

function requestOf({ authorization = null, json, text, form, headers = {} }: Ask): RequestInit {
  const sent = new Headers(headers)
  if (authorization !== null) sent.set('authorization', authorization)
  if (json !== undefined && !sent.has('content-type')) sent.set('content-type', 'application/json')
  if (form !== undefined && !sent.has('content-type'))
    sent.set('content-type', 'application/x-www-form-urlencoded')
  const body =
    form !== undefined
      ? new URLSearchParams(form).toString()
      : (text ?? (json === undefined ? undefined : JSON.stringify(json)))
  return { headers: sent, redirect: 'manual', ...(body === undefined ? {} : { body }) }
}

/** What an answer says in short: its status, and the code of a refusal. */
export const verdictOf = ({ status, body }: Answer): string =>
  status < 300 ? String(status) : `${status} ${String(body['error'])}`
