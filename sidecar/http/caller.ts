import { timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'

/** Maximum length of a secret, in bytes; readSidecarConfig refuses longer ones. */
export const maxSecretBytes = 256

const headerNames = ['x-api-key', 'x-webhook-secret', 'livepeer-clearinghouse-token'] as const

/**
 * Authenticates the signer by a shared secret (decision 26) in any of four headers. Several secrets
 * are valid during a rotation; without any, all callers are refused. Compares all secrets in
 * constant time, each padded to the same length.
 */
export function createCallerCheck(
  secrets: readonly string[],
): (headers: IncomingHttpHeaders) => boolean {
  // Node returns header values as latin1, whatever their encoding is.
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

  // Write zeros only over the rest of a longer previous text.
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

/** Returns all secrets in the request's headers. */
export const presentedSecrets = (headers: IncomingHttpHeaders): string[] =>
  [
    withoutScheme(headers.authorization ?? ''),
    ...headerNames.map((name) => String(headers[name] ?? '')),
  ]
    .map((text) => text.trim())
    .filter((text) => text !== '' && text.length <= maxSecretBytes)

/** Pads a secret with zeros, which no header value can contain. */
function pad(text: string): Buffer {
  const target = Buffer.alloc(maxSecretBytes)
  target.write(text, 'latin1')
  return target
}

const scheme = /^bearer /i

// A secret without its scheme is not an Authorization value (RFC 6750 section 2.1). Compare Go's
// spelling first, because that is cheaper than the expression.
const withoutScheme = (value: string): string =>
  value.startsWith('Bearer ') || scheme.test(value) ? value.slice(7) : ''
