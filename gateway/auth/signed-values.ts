import { createHmac, hkdfSync } from 'node:crypto'
import { equalSecrets } from '../../core/lib/crypto.ts'
import { type Reloadable, deriveLive } from '../../core/lib/settings/reloadable.ts'
import { type Now, systemNow } from '../../core/lib/time.ts'

export interface SignedValuesOptions {
  /** Secrets shared by all gateways of the deployment. The first signs; all verify. */
  readonly secrets: Reloadable<readonly string[]>
  /** Separates the keys: a value signed for one purpose is invalid for another. */
  readonly purpose: string
  readonly now?: Now | undefined
}

/**
 * Signs values that are given to a browser and verified later: text with an expiry, under
 * HMAC-SHA-256.
 */
export function createSignedValues({ secrets, purpose, now = systemNow }: SignedValuesOptions) {
  const keys = deriveLive(secrets, (all) =>
    all.map((secret) => Buffer.from(hkdfSync('sha256', secret, '', `tollgate ${purpose}`, 32))),
  )
  const macsOf = (signed: string): string[] =>
    keys().map((key) => createHmac('sha256', key).update(signed).digest('base64url'))

  /** Returns the text in a form that a cookie can hold, valid for `seconds`. */
  function sign(text: string, seconds: number): string {
    const expiresAt = Math.floor(now().getTime() / 1000) + seconds
    const signed = `${Buffer.from(text).toString('base64url')}.${expiresAt}`
    return `${signed}.${macsOf(signed)[0]}`
  }

  /** Returns the text of an unexpired value made by `sign`; null for anything else. */
  function open(value: string): string | null {
    const [encoded = '', expiresAt = '', mac = '', ...rest] = value.split('.')
    if (rest.length > 0) return null
    if (!macsOf(`${encoded}.${expiresAt}`).some((each) => equalSecrets(mac, each))) return null
    return Number(expiresAt) * 1000 > now().getTime()
      ? Buffer.from(encoded, 'base64url').toString('utf8')
      : null
  }

  return { sign, open }
}

export type SignedValues = ReturnType<typeof createSignedValues>
