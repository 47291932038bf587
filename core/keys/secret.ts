import { isSecret, newSecret } from '../lib/crypto.ts'
import { newKeyId } from '../platform/ids.ts'

const keyPrefix = 'svc_ak_'
const prefixDigits = 6
const labelMax = 100

/** A new key: its id, its secret, and the start of the secret by which people recognise it. */
export function newKey() {
  const secret = newSecret(keyPrefix)
  return { id: newKeyId(), secret, prefix: secret.slice(0, keyPrefix.length + prefixDigits) }
}

/** The label without what Postgres or a page cannot show. A bad label is no reason to refuse a key. */
export const cleanLabel = (text: string): string =>
  text
    .replace(/\p{Cc}+/gu, ' ')
    .slice(0, labelMax)
    .toWellFormed()

const composite = /^(app_[0-9a-f]{24})_(.+)$/

/**
 * Reads the credential `app_<24hex>_svc_ak_…`, `svc_ak_…`, `app_<24hex>_<secret>` or `<secret>` (decision 7). Null for
 * anything else; a wrong checksum is recognised here, without a look-up.
 */
export function parseKey(credential: string): { clientId: string | null; secret: string } | null {
  const match = composite.exec(credential)
  const rest = match?.[2] ?? credential
  const secret = rest.startsWith(keyPrefix) ? rest : keyPrefix + rest
  return isSecret(secret, keyPrefix) ? { clientId: match?.[1] ?? null, secret } : null
}
