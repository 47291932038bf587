import { DomainError } from '../../proto/errors.ts'

const syntax = /^[\x21\x23-\x5b\x5d-\x7e]+$/
const maxLength = 1_000

/** Splits a space-separated text into scopes, without duplicates. */
export const splitScopes = (text: string): string[] => [...new Set(text.split(' ').filter(Boolean))]

/**
 * Returns the scopes of `text` that the client still has. The app's owner may have removed some.
 */
export const stillAllowed = (text: string, allowed: readonly string[]): string =>
  splitScopes(text)
    .filter((scope) => allowed.includes(scope))
    .join(' ')

/**
 * Returns the scopes of a new token (RFC 6749 section 3.3). Throws SCOPE_INVALID unless all
 * requested scopes may be granted. Without a request, returns the grantable scopes of `fallback`.
 */
export function chooseScopes(
  requested: string | undefined,
  { grantable, fallback }: { grantable: readonly string[]; fallback: readonly string[] },
): string {
  if (requested === undefined)
    return fallback.filter((scope) => grantable.includes(scope)).join(' ')
  if (requested.length > maxLength)
    throw new DomainError('SCOPE_INVALID', `scope is longer than ${maxLength} characters`)
  const scopes = splitScopes(requested)
  if (scopes.length === 0)
    throw new DomainError('REQUEST_INVALID', 'scope must name at least one scope, or be left out')
  const refused = scopes.find((scope) => !syntax.test(scope) || !grantable.includes(scope))
  if (refused !== undefined) {
    const named = syntax.test(refused) ? ` ${refused.slice(0, 64)}` : ''
    throw new DomainError(
      'SCOPE_INVALID',
      `the scope${named} may not be granted here; choose from: ${grantable.join(' ')}`,
    )
  }
  return scopes.join(' ')
}
