import { isSecret } from '../../../core/lib/crypto.ts'
import { refusals } from '../../authorize/refusals.ts'
import type { Source, Verdict, Verifier } from './types.ts'
import type { VerifiedIdentity } from '../bound-identity.ts'

/**
 * Finds the identity behind a key; null when the key is unknown or revoked. Throws when nobody
 * can say.
 */
export type KeyLookup = (
  key: string,
) => Promise<{ identity: VerifiedIdentity; source: Source } | null>

const keyPrefix = 'svc_ak_'
const composite = /^app_[0-9a-f]{24}_(svc_ak_.*)$/
const sessionPrefix = 'svc_ss_'
const keyShape = /^(app_[0-9a-f]{24}_)?svc_ak_|^svc_ss_|^[0-9A-Za-z]{49}$/

/** An opaque signer session is looked up as a key is, by another question to core. */
export const isSignerSession = (text: string): boolean => text.startsWith(sessionPrefix)

/**
 * True for what can only be meant as a key: with its prefix, composite, or the secret alone
 * (decision 7).
 */
export const looksLikeKey = (text: string): boolean => keyShape.test(text)

/** Refuses a mistyped key without a look-up: the checksum covers the prefix. */
export function hasKeyChecksum(text: string): boolean {
  if (isSignerSession(text)) return isSecret(text, sessionPrefix)
  const key = composite.exec(text)?.[1] ?? text
  return isSecret(key.startsWith(keyPrefix) ? key : keyPrefix + key, keyPrefix)
}

export interface KeyShape {
  readonly looksLikeKey: (text: string) => boolean
  readonly isWellFormed: (text: string) => boolean
}

export const serviceKeys: KeyShape = { looksLikeKey, isWellFormed: hasKeyChecksum }

const no: Verdict = { kind: 'no', refusal: refusals.invalidApiKey, remember: true }
// What needs no look-up to be refused would only push real entries out of memory.
const malformed: Verdict = { kind: 'no', refusal: refusals.invalidApiKey, remember: false }

export function apiKeyVerifier({
  lookup,
  shape,
}: {
  lookup: KeyLookup
  shape: KeyShape
}): Verifier {
  return async ({ credential }) => {
    if (credential.kind !== 'given' || !shape.looksLikeKey(credential.text)) return null
    if (!shape.isWellFormed(credential.text)) return malformed
    const found = await lookup(credential.text)
    return found ? { kind: 'yes', ...found } : no
  }
}
