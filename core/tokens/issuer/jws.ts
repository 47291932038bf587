import { type KeyObject, sign } from 'node:crypto'
import { promisify } from 'node:util'
import type { SigningAlgorithm } from '../types.ts'

const signAsync = promisify(sign)
const dsaEncoding = 'ieee-p1363'
const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')

export interface SigningKey {
  readonly kid: string
  readonly alg: SigningAlgorithm
  readonly key: KeyObject
}

/**
 * A JWS in compact form (RFC 7515 section 3.1), signed in the thread pool. By node:crypto itself: the way through Web
 * Crypto takes half as much time again on the main thread as everything else that a token needs there.
 */
export async function signJws(
  { kid, alg, key }: SigningKey,
  typ: 'at+jwt' | 'JWT',
  claims: object,
): Promise<string> {
  const input = `${encoded({ alg, kid, typ })}.${encoded(claims)}`
  // RFC 7518: RSASSA-PKCS1-v1_5 with SHA-256 (section 3.3); ECDSA as the two numbers one after the other (3.4).
  // A bare key is begun with in a fifth of the time that one with an option takes.
  const signature = await signAsync(
    'sha256',
    Buffer.from(input),
    alg === 'RS256' ? key : { key, dsaEncoding },
  )
  return `${input}.${signature.toString('base64url')}`
}
