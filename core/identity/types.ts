import type { AppId, ClientId, ExternalUserId, UserId } from '../platform/ids.ts'

export const userStates = ['active', 'inactive'] as const
/** active -> inactive (deactivation, credentials end) -> active (explicit only; no credential comes back). */
export type UserState = (typeof userStates)[number]

export interface User {
  readonly id: UserId
  readonly appId: AppId
  readonly externalUserId: ExternalUserId
  readonly email: string | null
  readonly status: UserState
  readonly tokensValidAfter: Date | null
  readonly createdAt: Date
  readonly updatedAt: Date
  readonly deactivatedAt: Date | null
}

/** What a caller wants changed: absent means as it is. */
export interface UserChange {
  readonly externalUserId: ExternalUserId
  /** null clears it. */
  readonly email?: string | null
  readonly status?: UserState
}

export interface App {
  readonly id: AppId
  readonly clientId: ClientId
  readonly m2mClientId: string
  readonly name: string
  readonly createdAt: Date
}

/** Decision 18. */
export const publicScopes = ['openid', 'sign:job'] as const

export const deviceGrant = 'urn:ietf:params:oauth:grant-type:device_code'
/** Grant types (RFC 7591 section 2) that each kind of client may have. */
export const publicGrants = ['authorization_code', 'refresh_token', deviceGrant] as const
export const m2mGrants = [
  'client_credentials',
  'urn:ietf:params:oauth:grant-type:token-exchange',
] as const
