import { isForeignUser } from './form.ts'

type Claims = Readonly<Record<string, unknown>>

/** Whether the provider has verified the claim. Only `email` has a word for that (OpenID Connect Core section 5.1). */
const isVerified = (claims: Claims, name: string): boolean =>
  name !== 'email' || claims['email_verified'] === true

/**
 * Returns the name of the user in the claims, behind the issuer's prefix; null for none, and for one that no user of a
 * provider may have.
 */
export function namedUser(
  claims: Claims,
  { userClaim, userPrefix }: { userClaim: string; userPrefix: string },
): string | null {
  // Own properties only: no claim is called "constructor".
  const claim = Object.hasOwn(claims, userClaim) ? claims[userClaim] : undefined
  if (typeof claim !== 'string' || claim === '' || claim !== claim.trim()) return null
  const name = userPrefix + claim
  return isVerified(claims, userClaim) && isForeignUser(name) ? name : null
}

/** Returns why `namedUser` returns null for the claims. */
export const userFault = (claims: Claims, userClaim: string): string =>
  Object.hasOwn(claims, userClaim) && !isVerified(claims, userClaim)
    ? 'counts only with email_verified: true'
    : 'must be a text that a user of this app may be called'

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

/** Whether people can change the claim by themselves at usual providers, also under a namespace such as `https://shop.example/email`. */
export const isEditableClaim = (claim: string): boolean =>
  editable.has((claim.split('/').at(-1) ?? '').toLowerCase()) || customMetadata.test(claim)
