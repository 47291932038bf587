import type { FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { DomainError, type Reason, reasons } from '../../../proto/errors.ts'
import { bearerToken, readAuthorization } from '../../auth/credentials.ts'
import type { App } from '../../http/app.ts'
import { textMember } from '../../http/body.ts'
import { renderError } from '../../http/errors.ts'
import { toRefusal } from '../../http/refusal.ts'
import { route } from '../../http/route.ts'
import type { Limits } from '../../limits/limiter.ts'
import { CorrelationId, addSchemas, named, ref } from '../../http/schemas.ts'
import { nullable, oneOf } from '../schemas.ts'

const url = '/api/v1/auth/validate'
const tags = ['keys']

const capabilities = Type.Array(Type.String())

const ValidKey = named(
  Type.Object({
    valid: Type.Boolean(),
    planId: nullable({}),
    capabilities,
    subscriptionRef: nullable({ description: 'Opaque.' }),
  }),
  'ValidKey',
)
const ValidKeyV2 = named(
  Type.Object({
    valid: Type.Boolean(),
    planId: nullable({}),
    user: Type.Object({ sub: Type.String() }),
    billing_account: Type.Object({
      id: Type.String(),
      providerSlug: Type.String(),
      billingMode: Type.String(),
    }),
    capabilities,
    quota: Type.Unsafe<object | null>({ type: 'object', nullable: true }),
    subscriptionRef: nullable({ description: 'Opaque.' }),
  }),
  'ValidatedKey',
)
const codes = ['request_invalid', 'credential_invalid', 'token_invalid', 'rate_limited'] as const

const InvalidKey = named(
  Type.Object({
    valid: Type.Boolean({ description: 'false' }),
    type: Type.String(),
    title: Type.String(),
    status: Type.Integer(),
    detail: Type.String(),
    code: oneOf(codes, 'Why.'),
    error: oneOf(codes, 'The same word as code.'),
    correlation_id: CorrelationId,
  }),
  'InvalidKey',
)

export interface ValidateDeps {
  readonly publicUrl: string
  /** Whether the POST form replaces the GET form. */
  readonly validateV2?: boolean | undefined
  readonly limits?: Limits | undefined
}

// Every answer, even a refusal, has `valid`, because clients check nothing else.
function invalidKey(
  reason: Reason,
  { message, publicUrl }: { message: string; publicUrl: string },
) {
  const error = new DomainError(reason, message)
  const { body } = renderError({ error, wire: 'problem', correlationId: 'c-1', publicUrl })
  const value = { valid: false, ...body }
  const content = {
    schema: ref(InvalidKey),
    examples: { [reason.toLowerCase()]: { value } },
  }
  return Type.Unsafe<object>({
    description: message,
    content: { 'application/problem+json': content },
  })
}
const refusals = (publicUrl: string) => ({
  400: invalidKey('REQUEST_INVALID', { message: 'key is required', publicUrl }),
  401: invalidKey('TOKEN_INVALID', { message: 'the API key is not valid', publicUrl }),
  429: invalidKey('RATE_LIMITED', { message: 'too many requests; try again in 12 s', publicUrl }),
})

/** Routes that validate an API key for its holder. */
export function validateRoutes(app: App, deps: ValidateDeps): void {
  const { validateV2 = false } = deps
  addSchemas(app, [validateV2 ? ValidKeyV2 : ValidKey, InvalidKey])
  const refusing = { errorHandler: createErrorHandler(deps), publicUrl: deps.publicUrl }
  if (validateV2) validateByPost(app, refusing)
  else validateByGet(app, refusing)
  // The other form does not exist here, so it is 404 and not 405.
  addUnknownRoute(app, validateV2 ? 'GET' : 'POST')
}

type ErrorHandler = ReturnType<typeof createErrorHandler>

interface Refusing {
  readonly errorHandler: ErrorHandler
  readonly publicUrl: string
}

function validateByGet(app: App, { errorHandler, publicUrl }: Refusing): void {
  app.get(
    url,
    {
      ...route({
        guard: { kind: 'none' },
        limit: 'validate',
        operationId: 'validateKey',
        summary: 'Validate an API key, sent as Bearer',
        description:
          'Returns whether an API key is valid now, and its permissions. Every answer has the member valid, also a refusal.',
        tags,
        security: [{ apiKey: [] }],
        response: { 200: ref(ValidKey), ...refusals(publicUrl) },
      }),
      errorHandler,
    },
    async (request) => {
      const key = bearerOf(request)
      if (key === undefined) throw new DomainError('TOKEN_INVALID', 'send the API key as Bearer')
      return { valid: true, ...(await request.core.keys.validateKey({ key })) }
    },
  )
}

function validateByPost(app: App, { errorHandler, publicUrl }: Refusing): void {
  app.post(
    url,
    {
      ...route({
        guard: { kind: 'none' },
        limit: 'validate',
        accepts: 'either',
        operationId: 'validateKey',
        summary: 'Validate an API key, in JSON, in a form, or sent as Bearer',
        description:
          'Returns whether an API key is valid now, and its permissions. Every answer has the member valid, also a refusal.',
        tags,
        security: [{ apiKey: [] }, {}],
        body: Type.Object({ key: Type.Optional(Type.Unknown({ description: 'The API key.' })) }),
        response: { 200: ref(ValidKeyV2), ...refusals(publicUrl) },
      }),
      errorHandler,
    },
    async (request) => {
      const key = textMember(request.body, 'key') ?? bearerOf(request)
      if (key === undefined || key === '')
        throw new DomainError('REQUEST_INVALID', 'key is required')
      const validKey = await request.core.keys.validateKey({ key })
      return {
        valid: true,
        ...validKey,
        user: { sub: validKey.userId ?? `app:${validKey.clientId}` },
        billing_account: { id: validKey.clientId, providerSlug: 'svc', billingMode: 'delegated' },
      }
    },
  )
}

function addUnknownRoute(app: App, method: 'GET' | 'POST'): void {
  app.route({
    method,
    url,
    schema: { hide: true },
    handler: async () => {
      throw new DomainError('NOT_FOUND', 'this address does not exist')
    },
  })
}

const bearerOf = ({ raw }: FastifyRequest): string | undefined =>
  bearerToken(readAuthorization(raw.rawHeaders))

function createErrorHandler({ publicUrl, limits }: ValidateDeps) {
  return async (thrown: Error, request: FastifyRequest, reply: FastifyReply) => {
    const refusal = toRefusal(thrown, request.routeOptions.config.rules)
    const error = limits?.refusalOf(request, reply, refusal) ?? refusal
    // A failure of the service does not mean that the key is invalid.
    if (reasons[error.reason].http >= 500) throw error
    request.reason = error.reason
    const { status, type, body } = renderError({
      error,
      wire: 'problem',
      correlationId: request.correlationId,
      publicUrl,
    })
    if (status === 401)
      void reply.header('www-authenticate', 'Bearer realm="tollgate", error="invalid_token"')
    return reply
      .code(status)
      .type(type)
      .header('cache-control', 'no-store')
      .send({ valid: false, ...body })
  }
}
