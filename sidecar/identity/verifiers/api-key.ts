import { isSecret } from '../../../core/lib/crypto.ts'
import { refusals } from '../../decision/refusals.ts'
import type { VerifiedIdentity } from '../bound-identity.ts'
import type { Source, Verdict, Verifier } from './verifier.ts'

/**
 * Returns the identity of a key; null when the key is unknown or revoked. Throws if the lookup
 * fails.
 */
export type KeyLookup = (
  key: string,
) => Promise<{ identity: VerifiedIdentity; source: Source } | null>

const keyPrefix = 'svc_ak_'
const composite = /^app_[0-9a-f]{24}_(svc_ak_.*)$/
const sessionPrefix = 'svc_ss_'
const builderKey = /^sk_(?:.+_)?([^_]+)$/
const keyShape = /^(app_[0-9a-f]{24}_)?svc_ak_|^svc_ss_|^sk_|^[0-9A-Za-z]{49}$/

/**
 * Whether the text is an opaque signer session. It is looked up like a key, with another RPC of
 * core.
 */
export const isSignerSession = (text: string): boolean => text.startsWith(sessionPrefix)

/**
 * Whether the text has the form of a key: the secret with its prefix, after its app, or alone
 * (decision 7); or a key of the builder API, whose secret follows its last "_".
 */
export const looksLikeKey = (text: string): boolean => keyShape.test(text)

/** Detects a mistyped key without a lookup: the checksum covers the prefix. */
function hasKeyChecksum(text: string): boolean {
  if (isSignerSession(text)) return isSecret(text, sessionPrefix)
  const digits = builderKey.exec(text)?.[1]
  if (digits !== undefined) return isSecret(`sk_${digits}`, 'sk_')
  const key = composite.exec(text)?.[1] ?? text
  return isSecret(key.startsWith(keyPrefix) ? key : keyPrefix + key, keyPrefix)
}

export interface KeyShape {
  readonly looksLikeKey: (text: string) => boolean
  readonly isWellFormed: (text: string) => boolean
}

export const serviceKeys: KeyShape = { looksLikeKey, isWellFormed: hasKeyChecksum }

const no: Verdict = { kind: 'no', refusal: refusals.invalidApiKey, remember: true }
// Not cached, because it needs no lookup and would only evict entries that did.
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
    const verified = await lookup(credential.text)
    return verified ? { kind: 'yes', ...verified } : no
  }
}
