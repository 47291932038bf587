import type { AppId, ExternalUserId } from '../../platform/ids.ts'

/** An end user as the provider shall know it. */
export interface ProviderUser {
  readonly app: AppId
  readonly externalUserId: ExternalUserId
  /** In its normal form. What is absent or empty changes nothing. */
  readonly email?: string | null | undefined
  /** Where the provider keeps a new user; its default when absent. A user that exists stays where it is. */
  readonly connection?: string | undefined
}

export interface EnsuredUser {
  /** The provider's own id of the user. */
  readonly providerUserId: string
  /** Of any number of calls for one user, at the same time or later, one creates it. */
  readonly created: boolean
}

/** Where the end users of the builder API sign in (docs/identity.md). */
export interface UserProvider {
  /**
   * Makes the provider know the user; call it before the user's row is written and outside a transaction, because it may
   * take seconds. It may be repeated after any failure. PROVIDER_UNAVAILABLE when the provider does not do it now, and
   * then nothing is half-made; REQUEST_INVALID when it refuses the connection or the address.
   */
  readonly ensureUser: (user: ProviderUser) => Promise<EnsuredUser>
}
