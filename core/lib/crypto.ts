import {
  type KeyObject,
  createCipheriv,
  createDecipheriv,
  createHmac,
  hash,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto'
import { crc32 } from 'node:zlib'

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const secretDigits = 43 // 256 bits in base62
const checksumDigits = 6

function toBase62(value: bigint, digits: number): string {
  let text = ''
  for (let rest = value; text.length < digits; rest /= 62n) text = base62[Number(rest % 62n)] + text
  return text
}

const checksumOf = (text: string): string => toBase62(BigInt(crc32(text)), checksumDigits)

/**
 * Returns `prefix` + 256 random bits in base62 + a 6-character CRC32 checksum of the preceding
 * characters (decision 7).
 */
export function newSecret(prefix: string): string {
  const body = prefix + toBase62(BigInt(`0x${randomBytes(32).toString('hex')}`), secretDigits)
  return body + checksumOf(body)
}

const secretBody = /^[0-9A-Za-z]{49}$/

/**
 * Whether `text` is `prefix` + secret + a correct checksum, so that a mistyped secret is rejected
 * without a look-up.
 */
export function isSecret(text: string, prefix: string): boolean {
  if (!text.startsWith(prefix) || !secretBody.test(text.slice(prefix.length))) return false
  return checksumOf(text.slice(0, -checksumDigits)) === text.slice(-checksumDigits)
}

/** Compares in constant time, for any lengths. */
export function equalSecrets(a: string, b: string): boolean {
  return timingSafeEqual(hash('sha256', a, 'buffer'), hash('sha256', b, 'buffer'))
}

/** SHA-256 in base64url. Caches use it as the key instead of the credential. */
export const fingerprint = (text: string): string => hash('sha256', text, 'base64url')

/** The stored form of a secret: HMAC-SHA-256 keyed with a pepper of the deployment. */
export const pepperedHash = (secret: string, pepper: Buffer | KeyObject): Buffer =>
  createHmac('sha256', pepper).update(secret).digest()

/**
 * Encrypts with AES-256-GCM. The result is bound to `context`, so that one sealed value cannot
 * replace another.
 */
export function seal(plain: Buffer, key: Buffer, context: string): Buffer {
  const nonce = randomBytes(12)
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(context))
  const sealed = Buffer.concat([cipher.update(plain), cipher.final()])
  return Buffer.concat([nonce, cipher.getAuthTag(), sealed])
}

/**
 * Decrypts the result of `seal`. Throws if the key or the context differs, or a byte was changed.
 */
export function unseal(sealed: Buffer, key: Buffer, context: string): Buffer {
  const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, 12)).setAAD(
    Buffer.from(context),
  )
  decipher.setAuthTag(sealed.subarray(12, 28))
  return Buffer.concat([decipher.update(sealed.subarray(28)), decipher.final()])
}

/** A UUID that sorts by its creation time (RFC 9562 section 5.7). */
export function uuidV7(at: number = Date.now()): string {
  const bytes = randomBytes(16)
  bytes.writeUIntBE(at, 0, 6)
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x70
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80
  const hex = bytes.toString('hex')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}
