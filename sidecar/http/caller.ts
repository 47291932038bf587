import { timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'

/** Longest secret, in bytes; readSidecarConfig refuses longer ones. */
export const maxSecretBytes = 256

const headerNames = ['x-api-key', 'x-webhook-secret', 'livepeer-clearinghouse-token'] as const

/**
 * Authenticates the signer by a shared secret (decision 26). The secret may stand in any one of
 * four headers. Several secrets are valid at once while one is rotated, and without any nobody
 * passes. All are compared, in constant time, each padded to the same length.
 */
export function createCallerCheck(
  secrets: readonly string[],
): (headers: IncomingHttpHeaders) => boolean {
  // Node gives header values as latin1, whatever their encoding is.
  const padded = secrets.map((secret) => pad(Buffer.from(secret.trim()).toString('latin1')))
  const presented = Buffer.alloc(maxSecretBytes)
  let length = 0

  function isKnown(value: string): boolean {
    const text = value.trim()
    if (text === '' || text.length > maxSecretBytes) return false
    present(text)
    let known = false
    for (const secret of padded) known = timingSafeEqual(secret, presented) || known
    return known
  }

  // Zeros are needed only where a longer text stood before.
  function present(text: string): void {
    const end = presented.write(text, 'latin1')
    if (end < length) presented.fill(0, end, length)
    length = end
  }

  return (headers) => {
    if (isKnown(withoutScheme(headers.authorization ?? ''))) return true
    for (const name of headerNames) if (isKnown(String(headers[name] ?? ''))) return true
    return false
  }
}

/** Every secret that a request names, in whichever header. */
export const presentedSecrets = (headers: IncomingHttpHeaders): string[] =>
  [
    withoutScheme(headers.authorization ?? ''),
    ...headerNames.map((name) => String(headers[name] ?? '')),
  ]
    .map((text) => text.trim())
    .filter((text) => text !== '' && text.length <= maxSecretBytes)

/** A secret with zeros behind it, which no header value can hold. */
function pad(text: string): Buffer {
  const target = Buffer.alloc(maxSecretBytes)
  target.write(text, 'latin1')
  return target
}

const scheme = /^bearer /i

// A secret without its scheme is not an Authorization value (RFC 6750 section 2.1). Go writes it
// as it is compared first, which is cheaper than the expression.
const withoutScheme = (value: string): string =>
  value.startsWith('Bearer ') || scheme.test(value) ? value.slice(7) : ''
