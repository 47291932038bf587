import { hash } from 'node:crypto'

/** The first 128 bits of a SHA-256, a character a byte. */
export const digestOf = (bytes: Buffer | string): string =>
  hash('sha256', bytes, 'binary').slice(0, 16)

/** The same of a SHA-256 in hexadecimal. */
export const halfDigest = (hex: string): string =>
  Buffer.from(hex.slice(0, 32), 'hex').toString('latin1')

const [dash, uuidLength] = [45, 36]
// Behind the 1st, 2nd, 3rd and 4th part.
const dashes = new Set([8, 13, 18, 23])

/**
 * Writes the 16 bytes that an event's id is known by. The signer's ids are UUIDs and stand for themselves; any other id
 * is hashed, one that differs only in case too.
 */
export function writeKey(target: Uint8Array, at: number, id: string): void {
  if (!writeUuid(target, at, id)) writeBytes(target, at, digestOf(id))
}

/** Writes a text of which each character is a byte. */
export function writeBytes(target: Uint8Array, at: number, bytes: string): void {
  for (let i = 0; i < bytes.length; i++) target[at + i] = bytes.charCodeAt(i)
}

function writeUuid(target: Uint8Array, at: number, text: string): boolean {
  if (text.length !== uuidLength) return false
  let end = at
  for (let i = 0; i < uuidLength; i += 2) {
    if (dashes.has(i) && text.charCodeAt(i++) !== dash) return false
    const byte = (nibble(text.charCodeAt(i)) << 4) | nibble(text.charCodeAt(i + 1))
    if (byte < 0) return false
    target[end++] = byte
  }
  return true
}

/** Of a lower-case digit; -1 for anything else. */
function nibble(code: number): number {
  if (code >= 48 && code <= 57) return code - 48
  return code >= 97 && code <= 102 ? code - 87 : -1
}
