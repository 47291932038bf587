import type { AppId, ExternalUserId } from '../../shared/ids.ts'

/** An end user to create or update at the provider. */
export interface ProviderUser {
  readonly app: AppId
  readonly externalUserId: ExternalUserId
  /** In normal form. Absent or empty changes nothing. */
  readonly email?: string | null | undefined
  /**
   * Connection for a new user; by default the provider's. An existing user stays in its connection.
   */
  readonly connection?: string | undefined
}

export interface EnsuredUser {
  /** The provider's own id of the user. */
  readonly providerUserId: string
  /** True for exactly one of all calls for the same user, concurrent or later. */
  readonly created: boolean
}

/** Where the builder API's end users sign in (docs/builder-api.md). */
export interface UserProvider {
  /**
   * Ensures that the provider has the user. Call it before the user's row is written and outside a
   * transaction, because it may take seconds. Safe to repeat after any failure. Throws
   * PROVIDER_UNAVAILABLE when the provider cannot do it now, without a half-created user, and
   * REQUEST_INVALID when the provider refuses the connection or the address.
   */
  readonly ensureUser: (user: ProviderUser) => Promise<EnsuredUser>
}
