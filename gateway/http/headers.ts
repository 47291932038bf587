import type { IncomingMessage } from 'node:http'
import { correlationIdFrom } from '../../proto/headers.ts'

export const isBearer = (authorization: string): boolean => /^bearer /i.test(authorization)

/** Returns the caller's correlation id, or a new one. */
export const readCorrelationId = (request: IncomingMessage): string =>
  correlationIdFrom(request.headers['x-correlation-id'])

// One year. Without includeSubDomains, because subdomains may not be ours.
const strictTransport = { 'strict-transport-security': 'max-age=31536000' }

/**
 * Returns the headers of every answer. Caching is off unless the route allows it, because most
 * answers hold personal data or money. If the public URL is https, browsers must use only https
 * (RFC 6797).
 */
export const securityHeaders = (publicUrl: string): Readonly<Record<string, string>> => ({
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
  ...(publicUrl.startsWith('https:') ? strictTransport : {}),
})

/**
 * Whether to render an error as a page: Accept names HTML and does not prefer JSON (RFC 9110
 * section 12.5.1). If it names neither, as with clients that accept anything, returns `natural`.
 */
export function wantsPage(accept: string | undefined, natural: boolean): boolean {
  if (accept === undefined) return natural
  const page = qualityOf(accept, /^(?:text\/html|application\/xhtml\+xml)$/)
  const json = qualityOf(accept, /^application\/(?:[\w.-]+\+)?json$/)
  return page === 0 && json === 0 ? natural : page >= json
}

/** Whether the caller wants CSV: Accept names it and prefers it to JSON. */
export const wantsCsv = (accept: string | undefined): boolean =>
  accept !== undefined &&
  qualityOf(accept, /^text\/csv$/) > qualityOf(accept, /^application\/json$/)

function qualityOf(accept: string, type: RegExp): number {
  const qualities = accept.split(',').map((range) => {
    const [name = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase())
    if (!type.test(name)) return 0
    const quality = parameters.find((parameter) => parameter.startsWith('q='))
    return quality === undefined ? 1 : Number(quality.slice(2)) || 0
  })
  return Math.max(0, ...qualities)
}

/**
 * Whether If-None-Match (RFC 9110 section 13.1.2) matches the tag: `*`, or a weak match in the
 * list.
 */
export function matchesEtag(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false
  const tags = ifNoneMatch.split(',').map((tag) => tag.trim().replace(/^W\//, ''))
  return ifNoneMatch.trim() === '*' || tags.includes(etag)
}
