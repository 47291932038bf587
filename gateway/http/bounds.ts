import type { ServerOptions } from 'node:http'
import type { FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import { mediaType } from './body.ts'

/** How slow and how large a request may be. */
export interface RequestBounds {
  /** Until its last header is there. */
  readonly headersMs: number
  /** Until its last byte is there. */
  readonly requestMs: number
  /** A connection on which nothing moves for so long is closed, an answer that nobody reads included. */
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

/** Bounds that node's server keeps by itself; what it refuses is answered by malformed.ts. */
export const serverOptions = ({ headersMs, requestMs }: RequestBounds): ServerOptions => ({
  maxHeaderSize: headerBytes,
  headersTimeout: headersMs,
  requestTimeout: requestMs,
  // Node looks for late requests at this interval; its own is 30 s.
  connectionsCheckingInterval: Math.min(1_000, headersMs / 2),
})

/** Refuses what is too large to be looked at. */
export function requireBounds({ raw }: FastifyRequest): void {
  if ((raw.url ?? '').length > urlMax)
    throw new DomainError('URI_TOO_LONG', `path and query must be at most ${urlMax} characters`)
  if (raw.rawHeaders.length > headerMax * 2)
    throw new DomainError('HEADERS_TOO_LARGE', `send at most ${headerMax} header lines`)
}

/** Refuses a request that no parser of ours takes. It comes behind the credential, which decides first. */
export function requireParseable({ raw, headers, routeOptions }: FastifyRequest): void {
  if (parametersOf(raw.url ?? '') > parameterMax)
    throw new DomainError('REQUEST_INVALID', `send at most ${parameterMax} query parameters`)
  const isForm = routeOptions.config.rules?.body === 'form'
  const encoding = headers['content-encoding'] ?? 'identity'
  if (encoding.toLowerCase() !== 'identity')
    throw new DomainError(
      isForm ? 'REQUEST_INVALID' : 'MEDIA_TYPE_UNSUPPORTED',
      'send the body as it is, without Content-Encoding',
    )
  // Where a form belongs, its parser says so.
  if (!isForm && mediaType(headers['content-type'] ?? '').startsWith('multipart/'))
    throw new DomainError('MEDIA_TYPE_UNSUPPORTED', 'multipart bodies are not read here')
}

function parametersOf(url: string): number {
  let at = url.indexOf('?')
  let count = 0
  for (; at !== -1; at = url.indexOf('&', at + 1)) count++
  return count
}
