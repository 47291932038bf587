import type { RequestListener, Server } from 'node:http'
import cookie from '@fastify/cookie'
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
import { type ConnectionBounds, boundConnections } from '../../core/lib/network/connections.ts'
import type { Log } from '../../core/lib/log.ts'
import { type CertificateFiles, createWebServer } from '../../core/lib/network/server-tls.ts'
import { isObject } from '../../core/lib/json.ts'
import { DomainError, reasons } from '../../proto/errors.ts'
import type { Core } from '../core/client.ts'
import type { App, SchemaTypes } from './app.ts'
import {
  type RequestBounds,
  requireBounds,
  requireParseable,
  serverOptions,
  usualBounds,
} from './bounds.ts'
import { isFormType, maxBodyBytes, parseForm, parseJson } from './body.ts'
import type { Cors } from './cors.ts'
import { sendError } from './errors.ts'
import { readCorrelationId, securityHeaders } from './headers.ts'
import { malformedRequests } from './malformed.ts'
import { allowedMethods } from './methods.ts'
import { type HttpMetrics, observeReplies, traceRequests } from './metrics.ts'
import { toRefusal } from './refusal.ts'
import { OAuthError, Problem, addSchemas } from './schemas.ts'
import { createCompilers } from './compilers.ts'
import { requireTexts, requireUtf8, textFormats } from './texts.ts'

export interface ListenerDeps {
  readonly core: Core
  readonly publicUrl: string
  readonly httpMetrics: HttpMetrics
  /** Absent outside tests. */
  readonly bounds?: RequestBounds | undefined
  readonly connections: ConnectionBounds
  /** Undefined for plain HTTP. */
  readonly certificate?: CertificateFiles | undefined
  readonly log: Log
  /** Detects proxies that are not configured. */
  readonly checkForwarded: (request: FastifyRequest) => void
}

/** Decides which requests reach a route, between the checks of the listener itself. */
export interface Admission {
  /** Absent if browsers have nothing to read. */
  readonly cors?: Cors | undefined
  /** Counts the request and reads its credential, before its body. Throws the refusal. */
  admit(request: FastifyRequest, reply: FastifyReply): Promise<void>
  /** Returns the error to send for a refusal. */
  refusalOf(
    request: FastifyRequest,
    reply: FastifyReply,
    refusal: DomainError,
  ): Promise<DomainError>
  /** Adds the hooks that run after the body is parsed. */
  addHooks(app: App): void
}

// Validates values as sent: no conversion, no defaults, no removal.
const validatorOptions = {
  coerceTypes: false,
  removeAdditional: false,
  useDefaults: false,
  verbose: true,
  formats: textFormats,
} as const

// The signer keeps idle connections for 90 s. If we closed them sooner, it could write to a closing
// one.
const keepAliveMs = 120_000

/** Creates a public listener without routes, with all hooks that run before and after a handler. */
export function createListener(deps: ListenerDeps, admission: Admission): App {
  const app = createApp(deps)
  addSchemas(app, [Problem, OAuthError])
  // Only the parser of cookies: pages write their own, and other routes avoid the cost of a hook.
  void app.register(cookie, { hook: false })
  traceRequests(app)
  decorateRequests(app, deps.core)
  addRequestHooks(app, deps, admission)
  admission.addHooks(app)
  observeReplies(app, deps.httpMetrics)
  app.setErrorHandler<Error>(async (thrown, request, reply) => {
    const refusal = toRefusal(thrown, request.routeOptions.config.rules)
    const error = await admission.refusalOf(request, reply, refusal)
    if (reasons[error.reason].http >= 500) deps.httpMetrics.failed(request, error)
    return sendError(request, reply, { error, publicUrl: deps.publicUrl })
  })
  return app
}

function createApp(deps: ListenerDeps): App {
  const { bounds = usualBounds } = deps
  const app: App = fastify({
    serverFactory: (handler) => createServer(deps, bounds, handler),
    bodyLimit: maxBodyBytes,
    // Core limits the length of ids; bounds.ts limits the whole URL.
    routerOptions: { maxParamLength: 16_384 },
    forceCloseConnections: 'idle',
    // During shutdown, requests that arrive on open connections are still answered.
    return503OnClosing: false,
    ajv: { customOptions: validatorOptions },
    schemaController: { compilersFactory: createCompilers() },
    ...malformedRequests(deps),
  }).withTypeProvider<SchemaTypes>()
  boundConnections(app.server, deps.connections)
  return app
}

function createServer(
  { certificate, log }: ListenerDeps,
  bounds: RequestBounds,
  handler: RequestListener,
): Server {
  const server = { ...serverOptions(bounds), keepAliveTimeout: keepAliveMs }
  return createWebServer({ server, certificate, log }, handler).setTimeout(bounds.silenceMs)
}

function decorateRequests(app: App, core: Core): void {
  app.decorateRequest('correlationId', '')
  app.decorateRequest('reason', undefined)
  app.decorateRequest('credential')
  app.decorateRequest('calls', undefined)
  app.decorateRequest('core', {
    getter() {
      return (this.calls ??= core.callsFor(this.credential))
    },
  })
}

/**
 * Adds the checks in the order of decision 13: address, limits, credential, then the request
 * itself.
 */
function addRequestHooks(app: App, deps: ListenerDeps, { cors, admit }: Admission): void {
  const commonHeaders = securityHeaders(deps.publicUrl)
  const allowed = allowedMethods(app)
  app.addHook('onRequest', (request, reply, done) => {
    deps.checkForwarded(request)
    request.correlationId = readCorrelationId(request.raw)
    request.credential = { correlationId: request.correlationId }
    void reply.headers(commonHeaders).header('x-correlation-id', request.correlationId)
    const rules = request.routeOptions.config.rules
    if (rules?.wire === 'oauth') void reply.header('pragma', 'no-cache')
    const answered = cors?.answer(request, reply) ?? false
    const isOpen = rules?.guard.kind === 'none' && rules.limit === undefined
    if (answered !== false || !isOpen) return admitChecked(request, reply, answered)
    // Avoids a promise, which would take a tenth of a public document's time (bench row
    // `rest-static`).
    requireBounds(request)
    requireParseable(request)
    done()
  })

  async function admitChecked(
    request: FastifyRequest,
    reply: FastifyReply,
    answered: boolean | Promise<boolean>,
  ): Promise<FastifyReply | undefined> {
    if (await answered) return reply
    requireBounds(request)
    if (request.is404) throw unknownRoute(request, reply, allowed(request.raw.url))
    await admit(request, reply)
    requireParseable(request)
    return undefined
  }

  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_, bytes, done) => done(null, bytes))
  app.addHook('preValidation', (request, _, done) => {
    readTexts(request)
    done()
  })
}

function unknownRoute(
  request: FastifyRequest,
  reply: FastifyReply,
  methods: readonly string[],
): DomainError {
  if (methods.length === 0) return new DomainError('NOT_FOUND', 'this address does not exist')
  const allow = methods.join(', ')
  void reply.header('allow', allow)
  return new DomainError(
    'METHOD_NOT_ALLOWED',
    `this address does not support ${request.method}; use ${allow}`,
  )
}

function parseBody(request: FastifyRequest): object {
  const bytes = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0)
  const { accepts: kind, repeatable } = request.routeOptions.config.rules ?? {}
  const contentType = request.headers['content-type']
  const isForm = kind === 'form' || (kind === 'either' && isFormType(contentType))
  return isForm ? parseForm(bytes, { contentType, repeatable }) : parseJson(bytes, contentType)
}

/** Parses the body and rejects unreadable text in any part of the request. */
function readTexts(request: FastifyRequest): void {
  const { schema } = request.routeOptions
  const url = request.raw.url ?? ''
  const query = url.indexOf('?')
  if (query !== -1) requireUtf8(url.slice(query), 'the query')
  for (const part of [request.params, request.query]) if (isObject(part)) requireTexts(part)
  const names = isObject(schema?.headers) ? schema.headers['properties'] : undefined
  if (isObject(names)) requireTexts(headersOf(request, Object.keys(names)))
  if (schema?.body) {
    const body = parseBody(request)
    requireTexts(body, schema.body)
    request.body = body
  }
}

const headersOf = ({ headers }: FastifyRequest, names: readonly string[]): object =>
  Object.fromEntries(names.map((name) => [name, headers[name]]))
