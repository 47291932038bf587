import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type RawReplyDefaultExpression,
  type RawRequestDefaultExpression,
  type RawServerDefault,
} from 'fastify'
import { DomainError, type Reason, reasons } from '../../proto/errors.ts'
import { isFormType, maxBodyBytes, parseForm, parseJson, textMember, usable } from './body.ts'
import type { OnBehalfOf } from '../core/call-context.ts'
import type { Core, CoreCalls } from '../core/client.ts'
import type { Cors } from './cors.ts'
import { isBearer, readAuthorization } from '../auth/credentials.ts'
import { correlationIdOf, securityHeaders } from './headers.ts'
import { type Limits, limitHooks } from '../limits/limiter.ts'
import { malformedRequests } from './malformed.ts'
import { allowedMethods } from './methods.ts'
import { type Observe, observeReplies } from './metrics.ts'
import { sendError, toRefusal } from './errors.ts'
import { type Guard, takesSession } from './route.ts'
import { UsageLoss } from '../platform-api/usage/loss-schemas.ts'
import { managementSchemas } from '../platform-api/apps/schemas.ts'
import { shared } from '../platform-api/schemas.ts'
import { serializers } from './serializers.ts'
import { requireSameOrigin, sessionOf } from '../auth/session.ts'
import { usageSchemas } from '../platform-api/usage/schemas.ts'

export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>

declare module 'fastify' {
  interface FastifyRequest {
    correlationId: string
    /** Whose calls `core` makes; known once the request is admitted. */
    onBehalfOf: OnBehalfOf
    /** What `core` is once it was needed. */
    calls: CoreCalls | undefined
    /** The calls to core with this request's credential and correlation id. */
    readonly core: CoreCalls
    /** Why the request was refused, for the log. */
    reason: string | undefined
  }
}

export interface ListenerDeps {
  readonly core: Core
  readonly publicUrl: string
  readonly observe: Observe
  /** Absent where there is nothing to read for browsers. */
  readonly cors?: Cors | undefined
  /** Absent when rate limits are off. */
  readonly limits?: Limits | undefined
}

const maxConnections = 10_000
// What was sent is judged as it was sent.
const validatorOptions = {
  coerceTypes: false,
  removeAdditional: false,
  useDefaults: false,
  verbose: true,
} as const

/**
 * One public listener without routes: what every request meets on its way in and out. Refusals come
 * in the order of decision 13, because core is asked about the caller before any other is answered.
 */
export function createListener(deps: ListenerDeps): App {
  const app: App = fastify({
    bodyLimit: maxBodyBytes,
    // What a path segment may have is core's to say; the request line itself is bounded by node.
    routerOptions: { maxParamLength: 16_384 },
    requestTimeout: 30_000,
    // The signer keeps idle connections for 90 s; a shorter life would let it write into a dying one.
    keepAliveTimeout: 120_000,
    forceCloseConnections: 'idle',
    // What arrives on an open connection while we drain is still answered.
    return503OnClosing: false,
    ajv: { customOptions: validatorOptions },
    schemaController: { compilersFactory: { buildSerializer: serializers } },
    ...malformedRequests(deps),
  }).withTypeProvider<TypeBoxTypeProvider>()
  app.server.headersTimeout = 20_000
  app.server.maxConnections = maxConnections

  for (const schema of [...shared, UsageLoss, ...managementSchemas, ...usageSchemas])
    app.addSchema(schema)
  app.decorateRequest('correlationId', '')
  app.decorateRequest('reason', undefined)
  app.decorateRequest('onBehalfOf')
  app.decorateRequest('calls', undefined)
  app.decorateRequest('core', {
    getter() {
      return (this.calls ??= deps.core.callsFor(this.onBehalfOf))
    },
  })
  const allowed = allowedMethods(app)

  app.addHook('onRequest', async (request, reply) => {
    request.correlationId = correlationIdOf(request.raw)
    request.onBehalfOf = { correlationId: request.correlationId }
    void reply.headers(securityHeaders).header('x-correlation-id', request.correlationId)
    if (request.routeOptions.config.rules?.wire === 'oauth') void reply.header('pragma', 'no-cache')
    if (await deps.cors?.answer(request, reply)) return reply
    if (request.is404) throw unknownRoute(request, reply, allowed(request.raw.url))
    await deps.limits?.admitAddress(request, reply)
    await admit(request, deps)
  })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_, bytes, done) => done(null, bytes))
  app.addHook('preValidation', async (request) => {
    for (const part of [request.params, request.query]) checkTexts(part)
    if (request.routeOptions.schema?.body) request.body = parseBody(request)
  })
  if (deps.limits) limitHooks(app, deps.limits)
  observeReplies(app, deps.observe)
  app.setErrorHandler<Error>(async (thrown, request, reply) => {
    const refusal = toRefusal(thrown, request.routeOptions.config.rules)
    const error = (await refusalOfCaller(request, refusal)) ?? refusal
    if (reasons[error.reason].http >= 500) deps.observe.failed(request, error)
    return sendError(request, reply, { error, publicUrl: deps.publicUrl })
  })
  return app
}

function unknownRoute(
  request: FastifyRequest,
  reply: FastifyReply,
  methods: readonly string[],
): DomainError {
  if (methods.length === 0) return new DomainError('NOT_FOUND', 'there is nothing at this address')
  const allow = methods.join(', ')
  void reply.header('allow', allow)
  return new DomainError(
    'METHOD_NOT_ALLOWED',
    `${request.method} is not possible here; use ${allow}`,
  )
}

async function admit(request: FastifyRequest, { core, publicUrl }: ListenerDeps): Promise<void> {
  const guard = request.routeOptions.config.rules?.guard
  if (guard === undefined || guard.kind === 'none') return
  const { correlationId } = request
  const authorization = readAuthorization(request.raw.rawHeaders)
  if (takesSession(guard.kind) && (guard.kind !== 'm2m_or_member' || authorization === undefined)) {
    const session = sessionOf(request, publicUrl)
    request.onBehalfOf = { session, correlationId }
    return session === undefined ? undefined : requireOwnPage(request, { core, publicUrl, session })
  }
  request.onBehalfOf = { authorization, correlationId }
  if (guard.kind === 'key' && (authorization === undefined || !isBearer(authorization))) {
    throw new DomainError('CREDENTIAL_INVALID', 'send the API key as Bearer')
  }
}

/** A cookie alone changes nothing: the request must also come from our own pages. */
async function requireOwnPage(
  request: FastifyRequest,
  { core, publicUrl, session }: { core: Core; publicUrl: string; session: string },
): Promise<void> {
  if (request.method === 'GET' || request.method === 'HEAD') return
  const calls = core.callsFor({ correlationId: request.correlationId })
  const found = await calls.accounts.session({ sessionToken: session })
  requireSameOrigin(request, { publicUrl, csrfToken: found.session?.csrfToken ?? '' })
}

/**
 * The refusal that comes before `refusal`: core's judgement of the caller, unless it was already asked, the
 * credential itself was refused, a limit is reached, or the fault is ours.
 */
async function refusalOfCaller(
  request: FastifyRequest,
  { reason }: DomainError,
): Promise<DomainError | null> {
  const { guard, metered } = request.routeOptions.config.rules ?? {}
  const judged = judgedAlready.has(reason) || request.core.wasAsked()
  if (guard === undefined || judged || !isJudgedAlone(guard)) return null
  const clientId = textMember(request.params, 'clientId')
  try {
    await request.core.checkCaller({ kind: guard.kind, clientId, scope: guard.scope, metered })
    return null
  } catch (error) {
    return error instanceof DomainError ? error : null
  }
}

// A limit is there to spare core, and comes before the credential is read.
const judgedAlready = new Set<Reason>(['CREDENTIAL_INVALID', 'INTERNAL', 'RATE_LIMITED'])

const isJudgedAlone = ({ kind }: Guard): boolean =>
  kind !== 'key' && kind !== 'client' && kind !== 'secret' && kind !== 'none'

function parseBody(request: FastifyRequest): object {
  const bytes = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0)
  const { body: kind, repeatable } = request.routeOptions.config.rules ?? {}
  const contentType = request.headers['content-type']
  const isForm = kind === 'form' || (kind === 'either' && isFormType(contentType))
  return isForm ? parseForm(bytes, { contentType, repeatable }) : parseJson(bytes, contentType)
}

function checkTexts(part: unknown): void {
  if (typeof part !== 'object' || part === null) return
  for (const [name, value] of Object.entries(part)) {
    for (const text of [value].flat()) if (typeof text === 'string') usable(text, name)
  }
}
