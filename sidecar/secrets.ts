import { hash, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'

const bearer = /^bearer +/i
const digest = (text: string): Buffer => hash('sha256', text, 'buffer')

/**
 * Tells our signer from anybody else (decision 26): the secret stands in any one of four headers, several are valid
 * at once while one is replaced, and with none configured nobody passes. Compared by digest and in constant time;
 * the digests of the configured ones are made once.
 */
export function createCallerCheck(secrets: readonly string[]): (headers: IncomingHttpHeaders) => boolean {
  const digests = secrets.map((secret) => digest(secret.trim()))

  function isKnown(value: string | string[] | undefined): boolean {
    if (typeof value !== 'string' || value === '') return false
    const presented = digest(value.trim())
    let known = false
    for (const expected of digests) known = timingSafeEqual(expected, presented) || known
    return known
  }

  return (headers) =>
    isKnown(withoutScheme(headers.authorization)) || isKnown(headers['x-api-key'])
    || isKnown(headers['x-webhook-secret']) || isKnown(headers['livepeer-clearinghouse-token'])
}

// A secret without its scheme is not an Authorization value (RFC 6750 section 2.1).
const withoutScheme = (value: string | undefined): string | undefined =>
  value !== undefined && bearer.test(value) ? value.replace(bearer, '') : undefined
