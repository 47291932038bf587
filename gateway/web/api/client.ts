import createClient, { type Middleware } from 'openapi-fetch'
import type { components, paths } from './schema.d.ts'

export type Schemas = components['schemas']

/** A refusal of the gateway (RFC 9457), or a request that did not reach it. */
export class ApiError extends Error {
  readonly status: number
  /** The code of the refusal, as on the page /errors; `unreachable` without an answer. */
  readonly code: string
  readonly correlationId: string | undefined

  constructor(message: string, details: { status: number; code: string; correlationId?: string }) {
    super(message)
    this.name = 'ApiError'
    this.status = details.status
    this.code = details.code
    this.correlationId = details.correlationId
  }
}

let csrfToken: string | undefined

/** Stores the token that requests of the session carry when they change something. */
export const keepCsrfToken = (token: string): void => void (csrfToken = token)

const session: Middleware = {
  onRequest({ request }) {
    if (request.method !== 'GET' && csrfToken !== undefined)
      request.headers.set('x-csrf-token', csrfToken)
    return request
  },
  onError() {
    return new ApiError('The service cannot be reached. Check your connection and try again.', {
      status: 0,
      code: 'unreachable',
    })
  },
}

export const api = createClient<paths>({ baseUrl: location.origin, credentials: 'same-origin' })
api.use(session)

interface Answer<Data> {
  readonly data?: Data
  readonly error?: unknown
  readonly response: Response
}

/** Returns the data of an answer. Throws an ApiError for a refusal. */
export async function unwrap<Data>(answer: Promise<Answer<Data>>): Promise<Data> {
  const { data, error, response } = await answer
  if (response.ok && data !== undefined) return data
  throw toApiError(error, response.status)
}

function toApiError(error: unknown, status: number): ApiError {
  const problem: Record<string, unknown> =
    typeof error === 'object' && error !== null ? { ...error } : {}
  const text = (name: string): string | undefined => {
    const value = problem[name]
    return typeof value === 'string' && value !== '' ? value : undefined
  }
  const correlationId = text('correlation_id')
  return new ApiError(text('detail') ?? text('title') ?? `The service answered with ${status}.`, {
    status,
    code: text('code') ?? 'unknown',
    ...(correlationId !== undefined && { correlationId }),
  })
}
