import type { IncomingHttpHeaders } from 'node:http'

/** Longest secret, in bytes; readSidecarConfig refuses longer ones. */
export const maxSecretBytes = 256

const names = ['x-api-key', 'x-webhook-secret', 'livepeer-clearinghouse-token'] as const

/**
 * Tells our signer from anybody else (decision 26): the secret stands in any one of four headers,
 * several are valid at once while one is replaced, and with none configured nobody passes. Every
 * character that was presented is compared with every secret, so that the time depends on nothing
 * but the length of what was presented. Crossing into the crypto library for it takes 1.5 us of
 * every decision, most of them to get its code and ours into the processor's cache by turns.
 */
export function createCallerCheck(
  secrets: readonly string[],
): (headers: IncomingHttpHeaders) => boolean {
  // As bytes, which is how Node gives header values (latin1), whatever their encoding is.
  const blocks = secrets.map((secret) => padded(Buffer.from(secret.trim())))

  function isKnown(value: string): boolean {
    const text = value.trim()
    if (text === '' || text.length > maxSecretBytes) return false
    let known = false
    for (const block of blocks) known = isEqual(block, text) || known
    return known
  }

  return (headers) => {
    if (isKnown(withoutScheme(headers.authorization ?? ''))) return true
    for (const name of names) if (isKnown(String(headers[name] ?? ''))) return true
    return false
  }
}

interface Block {
  readonly bytes: Uint8Array
  readonly length: number
}

function padded(secret: Buffer): Block {
  const bytes = new Uint8Array(maxSecretBytes)
  bytes.set(secret)
  return { bytes, length: secret.length }
}

/** Compares all of `text`, wherever it differs. */
function isEqual({ bytes, length }: Block, text: string): boolean {
  let difference = length ^ text.length
  for (let i = 0; i < text.length; i++) difference |= (bytes[i] ?? 0) ^ text.charCodeAt(i)
  return difference === 0
}

// A secret without its scheme is not an Authorization value (RFC 6750 section 2.1).
const withoutScheme = (value: string): string =>
  hasScheme(value) ? value.slice(scheme.length) : ''

const scheme = 'bearer '

function hasScheme(value: string): boolean {
  if (value.length < scheme.length) return false
  // A bit makes a letter small, and leaves a space what it is.
  for (let i = 0; i < scheme.length; i++)
    if ((value.charCodeAt(i) | 0x20) !== scheme.charCodeAt(i)) return false
  return true
}
