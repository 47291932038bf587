import { connect } from 'node:net'
import { Ajv } from 'ajv'
import addFormats from 'ajv-formats'
import { expect } from 'vitest'
import { getOrInsert } from '../../core/lib/maps.ts'
import { silentLog } from '../../core/lib/log.ts'
import { createMetrics } from '../../core/lib/metrics.ts'
import type { BuilderEdgeConfig } from '../../gateway/builder-api/edge/config.ts'
import type { EdgeConfig } from '../../gateway/config.ts'
import { OAuthError, Problem } from '../../gateway/http/schemas.ts'
import { type GatewayDeps, startGateway } from '../../gateway/server.ts'
import { registerSecret } from '../support/run/secrecy.ts'
import { startCoreDouble } from '../fakes/gateway-core/gateway-core.ts'

export const publicUrl = 'https://svc.example'
export const serviceToken = registerSecret('service-token-of-at-least-32-characters')
export const basic = `Basic ${Buffer.from('m2m_0123456789abcdef01234567:svc_cs_x').toString('base64')}`

/** No limits, proxies, other origins or secret. */
export const quietEdge: EdgeConfig = {
  limits: null,
  redisUrl: undefined,
  trustedProxyHops: 0,
  corsOrigins: [],
  ingestSecret: undefined,
  connections: { max: 10_000, maxPerAddress: null },
}

export interface Answer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  // Tests inspect the body, so its type is open.
  readonly body: Record<string, unknown>
}

export interface Ask {
  readonly headers?: Record<string, string>
  readonly json?: unknown
  readonly text?: string | Uint8Array<ArrayBuffer>
  readonly form?: string
  readonly authorization?: string | null
}

/**
 * Starts a gateway with a scripted core. Checks every answer against the gateway's own OpenAPI
 * document.
 */
export async function startHarness(
  deps: Partial<GatewayDeps> & {
    edge?: Partial<EdgeConfig>
    builderEdge?: BuilderEdgeConfig
    publicUrl?: string
  } = {},
  deadlineMs = 10_000,
) {
  const { edge, builderEdge, publicUrl: at = publicUrl, ...options } = deps
  const core = await startCoreDouble()
  const metrics = deps.metrics ?? createMetrics('gateway')
  const gateway = await startGateway(
    {
      host: '127.0.0.1',
      platformPort: 0,
      builderPort: 0,
      publicUrl: at,
      tokenAlg: 'RS256',
      core: { target: core.target, token: serviceToken, deadlineMs },
      edge: { ...quietEdge, ...edge },
      builderEdge,
    },
    { log: silentLog(), ...options, metrics },
  )
  const settings = { at, edge, builderEdge, options: Object.keys(options) }
  const platform = await openListener(gateway.platformUrl, { of: 'platform', ...settings })
  const builder = await openListener(gateway.builderUrl, { of: 'builder', ...settings })

  return {
    core,
    gateway,
    metrics,
    ...platform,
    /** The builder API. */
    builder,
    /** The edge, which has no document. */
    askEdge: askerOf(gateway.edgeUrl ?? ''),
    raw: (text: string) => rawExchange(gateway.platformUrl, text),
    stop: async () => {
      await gateway.stop()
      core.stop()
    },
  }
}

const documents = new Map<string, Promise<Record<string, unknown>>>()

/**
 * Returns the document of a listener. Listeners with equal settings share it, because a gateway
 * needs longer to make it than to start.
 */
export const documentOf = (url: string, settings: object): Promise<Record<string, unknown>> =>
  getOrInsert(documents, JSON.stringify(settings), async () =>
    asRecord(await (await fetch(`${url}/api/v1/openapi.json`)).json()),
  )

/** Returns a client of a listener that checks each answer against the listener's document. */
async function openListener(url: string, settings: object) {
  const document = await documentOf(url, settings)
  return { document, ask: askerOf(url, await documentChecker(document)) }
}

function askerOf(url: string, check: (seen: Seen) => void = () => {}) {
  return async (method: string, path: string, options: Ask = {}): Promise<Answer> => {
    const response = await fetch(url + path, { method, ...requestOf(options) })
    const text = await response.text()
    const json = /[/+]json/.test(response.headers.get('content-type') ?? '') && text !== ''
    const answer = {
      status: response.status,
      headers: response.headers,
      text,
      body: json ? asRecord(JSON.parse(text)) : {},
    }
    expectCommonHeaders(answer)
    // The path as sent, without dot segments.
    check({ method, path: new URL(response.url).pathname, answer })
    return answer
  }
}

export type Harness = Awaited<ReturnType<typeof startHarness>>

function requestOf({ headers = {}, json, text, form, authorization = basic }: Ask): RequestInit {
  const sent = new Headers(headers)
  if (authorization !== null) sent.set('authorization', authorization)
  if (json !== undefined && !sent.has('content-type')) sent.set('content-type', 'application/json')
  if (form !== undefined)
    sent.set('content-type', 'application/x-www-form-urlencoded;charset=UTF-8')
  const body = form ?? text ?? (json === undefined ? undefined : JSON.stringify(json))
  return { headers: sent, redirect: 'manual', ...(body === undefined ? {} : { body }) }
}

function expectCommonHeaders({ status, headers }: Answer): void {
  expect(headers.get('x-correlation-id')).toMatch(/^[A-Za-z0-9._-]{1,64}$/)
  expect(headers.get('x-content-type-options')).toBe('nosniff')
  expect(headers.get('x-frame-options')).toBe('DENY')
  expect(headers.get('referrer-policy')).toBe('no-referrer')
  if (status === 401) expect(headers.get('www-authenticate')).toBeTruthy()
  if (status === 405) expect(headers.get('allow')).toBeTruthy()
  if (status >= 400) expect(headers.get('cache-control')).toBe('no-store')
}

/** Sends raw bytes and returns everything received until the other side closes. */
export async function rawExchange(url: string, text: string): Promise<string> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  let received = ''
  socket.on('data', (bytes) => {
    received += bytes.toString('latin1')
  })
  socket.on('error', () => socket.destroy())
  socket.write(Buffer.from(text, 'latin1'))
  await new Promise((resolve) => socket.once('close', resolve))
  return received
}

export function asRecord(value: unknown): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Error(`no object: ${JSON.stringify(value)}`)
  return Object.fromEntries(Object.entries(value))
}

interface Seen {
  readonly method: string
  readonly path: string
  readonly answer: Answer
}

type Validators = ReturnType<typeof createValidators>
const validatorsByText = new Map<string, Validators>()

/**
 * Returns validators of a document's answers, by method, path, status and type. Gateways with the
 * same document share them, because compiling them takes longer than starting a gateway.
 */
export const answerValidators = (document: Record<string, unknown>): Validators =>
  getOrInsert(validatorsByText, JSON.stringify(document), () => createValidators(document))

function createValidators(document: Record<string, unknown>) {
  const ajv = new Ajv({ strict: false })
  addFormats.default(ajv)
  const schemas = asRecord(asRecord(document['components'])['schemas'])
  for (const [name, schema] of Object.entries(schemas))
    ajv.addSchema({ ...asRecord(localRefs(schema)), $id: name })
  const documented = new Map(responseSchemas(document).map(({ key, schema }) => [key, schema]))
  // Compiled on first use: a document has a thousand schemas, and a test needs only a few.
  const validators = new Map<string, (value: unknown) => boolean>()
  return (key: string) =>
    documented.has(key)
      ? getOrInsert(validators, key, () => {
          const validate = ajv.compile(asRecord(localRefs(documented.get(key))))
          return (value) => validate(value) === true
        })
      : undefined
}

const anyRefusal = new Ajv({ strict: false, validateFormats: false }).compile({
  anyOf: [Problem, OAuthError],
})

/**
 * Checks an answer against the document: the operation's response of that status, with the codes
 * listed there. Unless `strict`, any refusal is accepted, because a scripted core returns reasons
 * that a real one would not.
 */
export async function documentChecker(document: Record<string, unknown>, { strict = false } = {}) {
  const validatorOf = answerValidators(document)
  const templates = Object.keys(asRecord(document['paths'])).map((path) => ({
    path,
    pattern: new RegExp(`^${path.replaceAll('.', '\\.').replace(/\{[^}]+\}/g, '[^/]+')}$`),
  }))

  return ({ method, path, answer }: Seen): void => {
    const template = templates.find(({ pattern }) => pattern.test(path))?.path
    const operation =
      template && asRecord(asRecord(document['paths'])[template])[method.toLowerCase()]
    if (!operation || answer.status === 304) return
    const type = answer.headers.get('content-type')?.split(';')[0] ?? ''
    if (!strict && answer.status >= 400 && /[/+]json/.test(type))
      return expect({ text: answer.text, is: anyRefusal(answer.body) }).toMatchObject({ is: true })
    const validate = validatorOf(`${method} ${template} ${answer.status} ${type}`)
    expect(validate, `${method} ${template} documents ${answer.status} ${type}`).toBeDefined()
    // The schema of a stream describes an event's data (stream.test.ts).
    if (type === 'text/event-stream') return
    expect(
      validate?.(
        /[/+]json/.test(type) && answer.text !== '' ? JSON.parse(answer.text) : answer.text,
      ),
      `${method} ${template} ${answer.status} ${answer.text}`,
    ).toBe(true)
  }
}

interface Documented {
  readonly key: string
  readonly schema: unknown
}

function responseSchemas(document: Record<string, unknown>): Documented[] {
  const children = (value: unknown) => Object.entries(asRecord(value))
  return children(document['paths']).flatMap(([path, operations]) =>
    children(operations).flatMap(([method, operation]) =>
      children(asRecord(operation)['responses']).flatMap(([status, response]) =>
        children(asRecord(response)['content'] ?? {}).map(([type, media]) => ({
          key: `${method.toUpperCase()} ${path} ${status} ${type}`,
          schema: asRecord(media)['schema'],
        })),
      ),
    ),
  )
}

function localRefs(schema: unknown): unknown {
  const text = JSON.stringify(schema, (name, value: unknown) =>
    // An OpenAPI keyword: the member by which a reader selects one of several schemas.
    name === 'discriminator' ? undefined : value,
  )
  return JSON.parse(text.replaceAll(/"#\/components\/schemas\/([A-Za-z]+)"/g, '"$1#"'))
}

/** Returns code and status of a refusal, after checking that its body is as documented. */
export function refusal({ status, body, headers }: Answer): [unknown, number] {
  const { type, code, error, correlation_id: correlationId } = body
  const isProblem = headers.get('content-type')?.startsWith('application/problem+json')
  const wellFormed =
    correlationId === headers.get('x-correlation-id') &&
    (isProblem
      ? type === `${publicUrl}/problems/${String(code).replaceAll('_', '-')}` &&
        code === error &&
        body['status'] === status
      : Object.keys(body).sort().join() === 'correlation_id,error,error_description')
  return [wellFormed ? error : 'malformed', status]
}
