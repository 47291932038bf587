import type { IncomingMessage } from 'node:http'
import { correlationIdFrom } from '../../proto/headers.ts'

/** The caller's correlation id, or a new one. */
export const correlationIdOf = (request: IncomingMessage): string =>
  correlationIdFrom(request.headers['x-correlation-id'])

// A year. Subdomains are not ours to decide about.
const strictTransport = { 'strict-transport-security': 'max-age=31536000' }

/**
 * Headers of every answer. Nothing is cached unless its route allows it: most answers are about people or money. Where
 * the public is served by https, browsers are told to use nothing else (RFC 6797).
 */
export const securityHeaders = (publicUrl: string): Readonly<Record<string, string>> => ({
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
  ...(publicUrl.startsWith('https:') ? strictTransport : {}),
})

/**
 * Whether an error is told as a page: Accept names HTML and prefers it to JSON (RFC 9110 section 12.5.1). Where it names
 * neither, as with clients that accept anything, `natural` decides.
 */
export function wantsPage(accept: string | undefined, natural: boolean): boolean {
  if (accept === undefined) return natural
  const page = qualityOf(accept, /^(?:text\/html|application\/xhtml\+xml)$/)
  const json = qualityOf(accept, /^application\/(?:[\w.-]+\+)?json$/)
  return page === 0 && json === 0 ? natural : page >= json
}

/** Whether the caller wants CSV: Accept names it, and does not prefer JSON. */
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

/** Whether If-None-Match (RFC 9110 section 13.1.2) holds the tag: it is `*`, or a list that is compared weakly. */
export function matchesEtag(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false
  const tags = ifNoneMatch.split(',').map((tag) => tag.trim().replace(/^W\//, ''))
  return ifNoneMatch.trim() === '*' || tags.includes(etag)
}
