import { newKeyId } from '../shared/ids.ts'
import { toReadable } from '../lib/text/readable.ts'
import { isSecret, newSecret } from '../lib/crypto.ts'

const keyPrefix = 'svc_ak_'

/** Prefix of keys that the builder API issues (docs/decisions/07.md). */
export const builderKeyPrefix = 'sk_'

const prefixDigits = 6

const labelMax = 100

/**
 * Creates the id and the secret of a key, and the start of the secret, by which people recognise
 * the key.
 */
export function newKey(start = keyPrefix) {
  const secret = newSecret(start)
  return { id: newKeyId(), secret, prefix: secret.slice(0, start.length + prefixDigits) }
}

/** Removes what Postgres or a page cannot show, so that a bad label never causes a rejection. */
export const cleanLabel = (text: string): string =>
  toReadable(text).slice(0, labelMax).toWellFormed()

const composite = /^(app_[0-9a-f]{24})_(.+)$/

// The part before the last "_" may itself contain "_".
const builderKey = /^sk_(?:(.+)_)?([^_]+)$/

interface ParsedKey {
  readonly clientId: string | null
  /** The external user id in base64url; null when the credential does not name it. */
  readonly user: string | null
  readonly secret: string
}

/**
 * Parses `app_<24hex>_svc_ak_…`, `svc_ak_…`, `app_<24hex>_<secret>`, `<secret>` (decision 7),
 * `sk_…` or `sk_<user>_<secret>`. Returns null for anything else. Rejects a wrong checksum without
 * a look-up.
 */
export function parseKey(credential: string): ParsedKey | null {
  const [, user = null, digits] = builderKey.exec(credential) ?? []
  if (digits !== undefined) {
    const secret = builderKeyPrefix + digits
    return isSecret(secret, builderKeyPrefix) ? { clientId: null, user, secret } : null
  }
  const match = composite.exec(credential)
  const rest = match?.[2] ?? credential
  const secret = rest.startsWith(keyPrefix) ? rest : keyPrefix + rest
  return isSecret(secret, keyPrefix) ? { clientId: match?.[1] ?? null, user: null, secret } : null
}
