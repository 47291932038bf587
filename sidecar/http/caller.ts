import { hash, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'

/** Longest secret, in bytes; readSidecarConfig refuses longer ones. */
export const maxSecretBytes = 256

const headerNames = ['x-api-key', 'x-webhook-secret', 'livepeer-clearinghouse-token'] as const

/**
 * Authenticates the signer by a shared secret (decision 26). The secret may stand in any one of
 * four headers. Several secrets are valid at once while one is rotated, and without any nobody
 * passes. Digests of equal length are compared in constant time, and all of them are.
 */
export function createCallerCheck(
  secrets: readonly string[],
): (headers: IncomingHttpHeaders) => boolean {
  // Node gives header values as latin1, whatever their encoding is.
  const digests = secrets.map((secret) => {
    const digest = Buffer.alloc(digestBytes)
    writeDigest(digest, Buffer.from(secret.trim()).toString('latin1'))
    return digest
  })
  const presented = Buffer.alloc(digestBytes)

  function isKnown(value: string): boolean {
    const text = value.trim()
    if (text === '' || text.length > maxSecretBytes) return false
    writeDigest(presented, text)
    let known = false
    for (const digest of digests) known = timingSafeEqual(digest, presented) || known
    return known
  }

  return (headers) => {
    if (isKnown(withoutScheme(headers.authorization ?? ''))) return true
    for (const name of headerNames) if (isKnown(String(headers[name] ?? ''))) return true
    return false
  }
}

const digestBytes = 32

// By way of a string, because a Buffer from the crypto library costs more than the hash itself.
const writeDigest = (digest: Buffer, text: string): void =>
  void digest.write(hash('sha256', text, 'hex'), 'hex')

const scheme = /^bearer /i

// A secret without its scheme is not an Authorization value (RFC 6750 section 2.1).
const withoutScheme = (value: string): string => (scheme.test(value) ? value.slice(7) : '')
