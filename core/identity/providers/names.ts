import { hash } from 'node:crypto'
import type { AppId, ExternalUserId } from '../../shared/ids.ts'

type Named = { readonly app: AppId; readonly externalUserId: ExternalUserId }

const digestOf = ({ app, externalUserId }: Named): string =>
  hash('sha256', `${app}:${externalUserId}`)

/**
 * Returns an end user's id at a provider: 32 hex digits of a hash of the app and the external id.
 * Every attempt uses the same id, so that a repeated creation is a conflict and not a second user.
 * Different external ids have different ids.
 */
export const providerName = (user: Named): string => digestOf(user).slice(0, 32)

const usernameDigits = 14

/**
 * Returns a login name for users without an e-mail address: 15 lower-case letters and digits,
 * Auth0's default maximum. Derived from a hash, because external ids that differ only in characters
 * not allowed there would share a name.
 */
export function providerUsername(user: Named): string {
  const digits = BigInt(`0x${digestOf(user).slice(32)}`).toString(36)
  return `u${digits.slice(-usernameDigits).padStart(usernameDigits, '0')}`
}
