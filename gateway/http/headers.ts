import type { IncomingMessage } from 'node:http'
import { correlationIdFrom } from '../../proto/headers.ts'

/** The caller's correlation id, or a new one. */
export const correlationIdOf = (request: IncomingMessage): string =>
  correlationIdFrom(request.headers['x-correlation-id'])

/** Headers of every answer. Nothing is cached unless its route allows it: most answers are about people or money. */
export const securityHeaders = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
}

/** Whether If-None-Match (RFC 9110 section 13.1.2) holds the tag: it is `*`, or a list that is compared weakly. */
export function matchesEtag(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false
  const tags = ifNoneMatch.split(',').map((tag) => tag.trim().replace(/^W\//, ''))
  return ifNoneMatch.trim() === '*' || tags.includes(etag)
}
