import { isForeignUser } from './form.ts'

type Claims = Readonly<Record<string, unknown>>

/**
 * Whether the provider has verified the claim. Only `email` has a member for that (OpenID Connect
 * Core section 5.1).
 */
const isVerified = (claims: Claims, name: string): boolean =>
  name !== 'email' || claims['email_verified'] === true

/**
 * Returns the user's id: the issuer's prefix and the claim. Returns null if the claim is missing or
 * not allowed as an id of a provider's user.
 */
export function namedUser(
  claims: Claims,
  { userClaim, userPrefix }: { userClaim: string; userPrefix: string },
): string | null {
  // Own properties only, so that a claim name such as "constructor" finds nothing.
  const claim = Object.hasOwn(claims, userClaim) ? claims[userClaim] : undefined
  if (typeof claim !== 'string' || claim === '' || claim !== claim.trim()) return null
  const name = userPrefix + claim
  return isVerified(claims, userClaim) && isForeignUser(name) ? name : null
}

/** The reason why `namedUser` returns null for the claims. */
export const userFault = (claims: Claims, userClaim: string): string =>
  Object.hasOwn(claims, userClaim) && !isVerified(claims, userClaim)
    ? 'requires email_verified: true'
    : 'must be text that is a valid externalUserId'

const editable = new Set([
  'email',
  'preferred_username',
  'name',
  'nickname',
  'given_name',
  'family_name',
  'middle_name',
  'profile',
  'picture',
  'website',
  'phone_number',
])
// user_metadata of Auth0 and Supabase, unsafe_metadata of Clerk, attributes of Cognito.
const customMetadata = /user_?metadata|unsafe_?metadata|^custom:/i

/**
 * Whether users can change the claim themselves at common providers. Also covers a namespaced claim
 * such as `https://shop.example/email`.
 */
export const isEditableClaim = (claim: string): boolean =>
  editable.has((claim.split('/').at(-1) ?? '').toLowerCase()) || customMetadata.test(claim)
