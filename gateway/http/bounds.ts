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
export function requireBounds({ raw, headers }: FastifyRequest): void {
  const url = raw.url ?? ''
  if (url.length > urlMax)
    throw new DomainError('URI_TOO_LONG', `path and query must be at most ${urlMax} characters`)
  if (raw.rawHeaders.length > headerMax * 2)
    throw new DomainError('HEADERS_TOO_LARGE', `send at most ${headerMax} header lines`)
  if (parametersOf(url) > parameterMax)
    throw new DomainError('REQUEST_INVALID', `send at most ${parameterMax} query parameters`)
  const contentType = headers['content-type']
  if (contentType !== undefined && mediaType(contentType).startsWith('multipart/'))
    throw new DomainError('MEDIA_TYPE_UNSUPPORTED', 'multipart bodies are not read here')
}

function parametersOf(url: string): number {
  let at = url.indexOf('?')
  let count = 0
  for (; at !== -1; at = url.indexOf('&', at + 1)) count++
  return count
}
