import { expect } from 'vitest'
import { basicOf } from '../../core/support.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type Real, type RealApp, startReal } from '../real.ts'
import { asRecord, documentChecker } from '../support.ts'

/** An app that is a tenant of the builder API. */
export interface Tenant extends RealApp {
  /** The tenant's credential, not the M2M client's. */
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

/**
 * Starts the builder API and its edge with a real core. Checks every answer against the builder
 * port's document.
 */
export async function startBuilder(env: Readonly<Record<string, string>> = {}) {
  const real = await startReal(env, {}, { builderEdge })
  const document = asRecord(await (await fetch(`${real.builderUrl}/api/v1/openapi.json`)).json())
  const check = await documentChecker(document, { strict: true })

  const ask = (method: string, path: string, options: Ask = {}) =>
    askAt(real.builderUrl, { method, path, options })

  /** Queries usage at the edge. */
  const askEdge = (method: string, path: string, options: Ask = {}) =>
    askAt(real.edgeUrl, { method, path, options })

  /**
   * Makes the same query as a call of the edge's MCP tool. Returns its answer or the refusal in it.
   */
  async function askMcp(_method: string, path: string, { authorization = null }: Ask = {}) {
    const { pathname, searchParams } = new URL(path, real.edgeUrl)
    const response = await fetch(real.edgeUrl + pathname.replace(/usage$/, 'mcp'), {
      method: 'POST',
      ...requestOf({ authorization, json: callOf(searchParams), headers: mcpHeaders }),
    })
    const { status: outer, headers } = response
    const message = await response.text()
    const result = outer < 300 ? asRecord(asRecord(JSON.parse(message))['result']) : null
    const [content] = Array.isArray(result?.['content']) ? result['content'] : []
    const text = String(content?.text ?? message)
    const body = asRecord(JSON.parse(text))
    const isRefusal = result === null || result['isError'] === true
    if (!isRefusal) expect(result['structuredContent']).toEqual(body)
    const answer = { status: isRefusal ? Number(body['status']) : outer, headers, text, body }
    const type = isRefusal ? 'application/problem+json' : 'application/json'
    const usage = { ...answer, headers: new Headers({ 'content-type': type }) }
    check({ method: 'GET', path: pathname, answer: usage })
    return answer
  }

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
    return { ...app, tenantBasic: basicOf(app.clientId, registerSecret(secret)) }
  }

  return { real, document, ask, askEdge, askMcp, newTenant, stop: real.stop }
}

export type Builder = Awaited<ReturnType<typeof startBuilder>>
export type Answer = Awaited<ReturnType<Builder['ask']>>
export type { Real }

const revision = '2026-07-28'
const tool = 'query_usage'

export const mcpHeaders = {
  accept: 'application/json, text/event-stream',
  'mcp-protocol-version': revision,
  'mcp-method': 'tools/call',
  'mcp-name': tool,
}

/** Returns groupBy, and any repeated parameter, as lists. */
export function callOf(parameters: URLSearchParams) {
  const list = (name: string) => parameters.getAll(name)
  const entries = [...new Set(parameters.keys())].map((name) => {
    const values = list(name)
    return [name, name === 'groupBy' || values.length > 1 ? values : values[0]]
  })
  const meta = {
    'io.modelcontextprotocol/protocolVersion': revision,
    'io.modelcontextprotocol/clientCapabilities': {},
  }
  const params = { name: tool, arguments: Object.fromEntries(entries), _meta: meta }
  return { jsonrpc: '2.0', id: 1, method: 'tools/call', params }
}

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

/** Returns the status, and the code of a refusal. */
export const verdictOf = ({ status, body }: Answer): string =>
  status < 300 ? String(status) : `${status} ${String(body['error'])}`
