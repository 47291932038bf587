import type { FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { DomainError, reasons } from '../../../proto/errors.ts'
import { textMember } from '../../http/body.ts'
import { readAuthorization } from '../../auth/credentials.ts'
import type { App } from '../../http/listener.ts'
import { InvalidKey, ValidKey, ValidKeyV2 } from '../apps/schemas.ts'
import { renderError, toRefusal } from '../../http/errors.ts'
import { route } from '../../http/route.ts'
import { ref } from '../schemas.ts'

const url = '/api/v1/auth/validate'
const tags = ['keys']

export interface ValidateDeps {
  readonly publicUrl: string
  /** The second form takes the first one's place (specification, versioning). */
  readonly validateV2?: boolean | undefined
}

// `valid` in every answer, also beside a refusal: clients look at nothing else.
const Invalid = (description: string) =>
  Type.Unsafe<object>({
    description,
    content: { 'application/problem+json': { schema: ref(InvalidKey) } },
  })
const refused = {
  400: Invalid('No key'),
  401: Invalid('The key does not work'),
  429: Invalid('Too many requests'),
}

/** What an API key is worth, for whoever holds it (facts 5.10). */
export function validateRoutes(app: App, { publicUrl, validateV2 = false }: ValidateDeps): void {
  app.addSchema(validateV2 ? ValidKeyV2 : ValidKey)
  const errorHandler = refuseWith(publicUrl)
  if (validateV2) return formRoutes(app, errorHandler)

  app.get(
    url,
    {
      ...route(
        { guard: { kind: 'none' }, limit: 'validate' },
        {
          summary: 'Validate an API key, sent as Bearer',
          tags,
          response: { 200: ref(ValidKey), ...refused },
        },
      ),
      errorHandler,
    },
    async (request) => {
      const key = bearerOf(request)
      if (key === undefined) throw new DomainError('TOKEN_INVALID', 'send the API key as Bearer')
      const { planId, capabilities, subscriptionRef } = await request.core.appKeys.validate({ key })
      return {
        valid: true,
        planId: planId ?? null,
        capabilities,
        subscriptionRef: subscriptionRef ?? null,
      }
    },
  )
  absent(app, 'POST')
}

type ErrorHandler = ReturnType<typeof refuseWith>

function formRoutes(app: App, errorHandler: ErrorHandler): void {
  app.post(
    url,
    {
      ...route(
        { guard: { kind: 'none' }, limit: 'validate', body: 'either' },
        {
          summary: 'Validate an API key, in JSON, in a form, or sent as Bearer',
          tags,
          body: Type.Object({ key: Type.Optional(Type.Unknown({ description: 'The API key.' })) }),
          response: { 200: ref(ValidKeyV2), ...refused },
        },
      ),
      errorHandler,
    },
    async (request) => {
      const key = textMember(request.body, 'key') ?? bearerOf(request)
      if (key === undefined || key === '')
        throw new DomainError('REQUEST_INVALID', 'key is required')
      const found = await request.core.appKeys.validate({ key })
      return {
        valid: true,
        user: { sub: found.userId ?? `app:${found.clientId}` },
        billing_account: { id: found.clientId, providerSlug: 'svc', billingMode: 'delegated' },
        capabilities: found.capabilities,
        quota: null,
        subscriptionRef: found.subscriptionRef ?? null,
      }
    },
  )
  absent(app, 'GET')
}

/** The form that this deployment does not have is nothing at all, not a method that is not allowed. */
function absent(app: App, method: 'GET' | 'POST'): void {
  app.route({
    method,
    url,
    schema: { hide: true },
    handler: async () => {
      throw new DomainError('NOT_FOUND', 'there is nothing at this address')
    },
  })
}

function bearerOf({ raw }: FastifyRequest): string | undefined {
  return /^bearer +(\S+) *$/i.exec(readAuthorization(raw.rawHeaders) ?? '')?.[1]
}

function refuseWith(publicUrl: string) {
  return async (thrown: Error, request: FastifyRequest, reply: FastifyReply) => {
    const error = toRefusal(thrown, request.routeOptions.config.rules)
    // What is not about the key is no judgement of it.
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
