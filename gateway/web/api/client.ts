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

interface Identity {
  readonly accountId: string
  /** Requests that change something carry it. */
  readonly csrfToken: string
}

let identity: Identity | undefined

/** Stores the identity of the session, as it was read last. */
export const keepIdentity = (read: Identity): void => void (identity = read)

/**
 * Sends a request. A login in another tab replaces the session and its CSRF token: a change that was
 * refused is then sent once more with the present token, if the account is the same. The gateway
 * refuses an outdated token before anything changes.
 */
async function send(request: Request): Promise<Response> {
  if (request.method === 'GET' || identity === undefined) return fetch(request)
  const before = identity
  const repetition = request.clone()
  request.headers.set('x-csrf-token', before.csrfToken)
  const response = await fetch(request)
  if (response.status !== 403) return response
  const present = await readIdentity()
  const isRenewed = present !== null && present.csrfToken !== before.csrfToken
  if (!isRenewed || present.accountId !== before.accountId) return response
  identity = present
  repetition.headers.set('x-csrf-token', present.csrfToken)
  return fetch(repetition)
}

async function readIdentity(): Promise<Identity | null> {
  const { data } = await api.GET('/api/v1/session').catch(() => ({ data: undefined }))
  return data ?? null
}

const connection: Middleware = {
  onError() {
    return new ApiError('The service cannot be reached. Check your connection and try again.', {
      status: 0,
      code: 'unreachable',
    })
  },
}

export const api = createClient<paths>({
  baseUrl: location.origin,
  credentials: 'same-origin',
  fetch: send,
})
api.use(connection)

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

/**
 * Returns a placeholder of a query: the data that was read before, if its key begins with `subject`.
 * Then only a part that may differ has changed, such as the page.
 */
export const keepEarlier =
  (subject: readonly unknown[]) =>
  <Data>(earlier: Data | undefined, query?: { queryKey: readonly unknown[] }): Data | undefined =>
    subject.every((part, index) => part === query?.queryKey[index]) ? earlier : undefined

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
