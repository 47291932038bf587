import type { ServerOptions } from 'node:http'
import type { FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import { mediaType } from './body.ts'

/** Limits on slow and large requests. */
export interface RequestBounds {
  /** Deadline for the last header. */
  readonly headersMs: number
  /** Deadline for the last byte. */
  readonly requestMs: number
  /** A connection without traffic for this long is closed, even if an answer is still unread. */
  readonly silenceMs: number
}

export const usualBounds: RequestBounds = {
  headersMs: 10_000,
  requestMs: 30_000,
  silenceMs: 150_000,
}

const headerBytes = 16_384
const headerMax = 100
const urlMax = 12_288
const parameterMax = 100

/** Limits that node's server enforces; malformed.ts answers what it rejects. */
export const serverOptions = ({ headersMs, requestMs }: RequestBounds): ServerOptions => ({
  maxHeaderSize: headerBytes,
  headersTimeout: headersMs,
  requestTimeout: requestMs,
  // Node checks for late requests at this interval; its default is 30 s.
  connectionsCheckingInterval: Math.min(1_000, headersMs / 2),
})

/** Rejects a request that is too large to process. */
export function requireBounds({ raw }: FastifyRequest): void {
  if ((raw.url ?? '').length > urlMax)
    throw new DomainError('URI_TOO_LONG', `path and query must be at most ${urlMax} characters`)
  if (raw.rawHeaders.length > headerMax * 2)
    throw new DomainError('HEADERS_TOO_LARGE', `send at most ${headerMax} header lines`)
}

/** Rejects a request that the parsers do not accept. Runs after the credential is read. */
export function requireParseable({ raw, headers, routeOptions }: FastifyRequest): void {
  if (parametersOf(raw.url ?? '') > parameterMax)
    throw new DomainError('REQUEST_INVALID', `send at most ${parameterMax} query parameters`)
  const isForm = routeOptions.config.rules?.accepts === 'form'
  const encoding = headers['content-encoding'] ?? 'identity'
  if (encoding.toLowerCase() !== 'identity')
    throw new DomainError(
      isForm ? 'REQUEST_INVALID' : 'MEDIA_TYPE_UNSUPPORTED',
      'send the body without Content-Encoding',
    )
  // On form routes the form parser reports this.
  if (!isForm && mediaType(headers['content-type'] ?? '').startsWith('multipart/'))
    throw new DomainError('MEDIA_TYPE_UNSUPPORTED', 'multipart bodies are not supported')
}

function parametersOf(url: string): number {
  let at = url.indexOf('?')
  let count = 0
  for (; at !== -1; at = url.indexOf('&', at + 1)) count++
  return count
}
