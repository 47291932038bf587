import { createHmac, hkdfSync } from 'node:crypto'
import { equalSecrets } from '../../core/lib/crypto.ts'
import { type Now, systemNow } from '../../core/lib/time.ts'

export interface SignedValuesOptions {
  /** A secret that all gateways of the deployment share. */
  readonly secret: string
  /** What the values are for: a value of one purpose is none of another. */
  readonly purpose: string
  readonly now?: Now | undefined
}

/** Values that this deployment gave to a browser, and knows again: text with an expiry under an HMAC-SHA-256. */
export function createSignedValues({ secret, purpose, now = systemNow }: SignedValuesOptions) {
  const key = Buffer.from(hkdfSync('sha256', secret, '', `tollgate ${purpose}`, 32))
  const macOf = (signed: string): string =>
    createHmac('sha256', key).update(signed).digest('base64url')

  /** The text as a cookie may hold it, for so many seconds. */
  function sign(text: string, seconds: number): string {
    const expiresAt = Math.floor(now().getTime() / 1000) + seconds
    const signed = `${Buffer.from(text).toString('base64url')}.${expiresAt}`
    return `${signed}.${macOf(signed)}`
  }

  /** The text of a value that `sign` made and that has not expired; null for anything else. */
  function open(value: string): string | null {
    const [encoded = '', expiresAt = '', mac = '', ...rest] = value.split('.')
    if (rest.length > 0 || !equalSecrets(mac, macOf(`${encoded}.${expiresAt}`))) return null
    return Number(expiresAt) * 1000 > now().getTime()
      ? Buffer.from(encoded, 'base64url').toString('utf8')
      : null
  }

  return { sign, open }
}

export type SignedValues = ReturnType<typeof createSignedValues>
