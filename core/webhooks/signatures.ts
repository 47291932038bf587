import {
  type KeyObject,
  createHmac,
  createPrivateKey,
  generateKeyPairSync,
  randomBytes,
  sign,
} from 'node:crypto'
import type { Signing } from './secret-store.ts'

/**
 * Secrets and signatures of the Standard Webhooks specification: `v1` is HMAC-SHA-256, `v1a` is
 * Ed25519. Both sign `{id}.{timestamp}.{body}`.
 */

/** A new secret. `bytes` is what is stored sealed. */
export interface NewSecret {
  readonly bytes: Buffer
  /** `whsec_…`, shown once; null for Ed25519, whose private key is never shown. */
  readonly text: string | null
  /** `whpk_…`; null for HMAC. */
  readonly publicKey: string | null
}

const hmacBytes = 32
const rawKeyBytes = 32

export function createSecret(signing: Signing): NewSecret {
  if (signing === 'hmac') {
    const bytes = randomBytes(hmacBytes)
    return { bytes, text: `whsec_${bytes.toString('base64')}`, publicKey: null }
  }
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const raw = publicKey.export({ type: 'spki', format: 'der' }).subarray(-rawKeyBytes)
  return {
    bytes: privateKey.export({ type: 'pkcs8', format: 'der' }),
    text: null,
    publicKey: `whpk_${raw.toString('base64')}`,
  }
}

/** A secret that signs. */
export interface SigningSecret {
  readonly signing: Signing
  readonly bytes: Buffer
}

export interface SignedContent {
  readonly id: string
  /** Whole seconds since 1970. */
  readonly timestamp: number
  readonly body: string
}

/** Returns the value of the header webhook-signature: one signature for each secret. */
export function signContent(
  secrets: readonly SigningSecret[],
  { id, timestamp, body }: SignedContent,
): string {
  const content = Buffer.from(`${id}.${timestamp}.${body}`)
  return secrets.map((secret) => signatureOf(secret, content)).join(' ')
}

const signatureOf = ({ signing, bytes }: SigningSecret, content: Buffer): string =>
  signing === 'hmac'
    ? `v1,${createHmac('sha256', bytes).update(content).digest('base64')}`
    : `v1a,${sign(null, content, privateKeyOf(bytes)).toString('base64')}`

const privateKeyOf = (bytes: Buffer): KeyObject =>
  createPrivateKey({ key: bytes, format: 'der', type: 'pkcs8' })
