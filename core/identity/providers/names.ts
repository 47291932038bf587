import { hash } from 'node:crypto'
import type { AppId, ExternalUserId } from '../../platform/ids.ts'

type Named = { readonly app: AppId; readonly externalUserId: ExternalUserId }

const digestOf = ({ app, externalUserId }: Named): string =>
  hash('sha256', `${app}:${externalUserId}`)

/**
 * The id of an end user at a provider: 32 hex digits of a hash of the app and the external id. It is the same on every try,
 * so that a repeated creation is a conflict and not a second user, and two external ids share none.
 */
export const providerName = (user: Named): string => digestOf(user).slice(0, 32)

const usernameDigits = 14

/**
 * A name to log in with where there is no e-mail address: 15 lower-case letters and digits, which is what Auth0 takes at
 * most by default. From a hash, because external ids that differ only in signs that are not allowed there would share one.
 */
export function providerUsername(user: Named): string {
  const digits = BigInt(`0x${digestOf(user).slice(32)}`).toString(36)
  return `u${digits.slice(-usernameDigits).padStart(usernameDigits, '0')}`
}
