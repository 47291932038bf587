import type { AppId, ClientId, ExternalUserId, KeyId, UserId } from '../platform/ids.ts'

/** active -> revoked, for good. */
export type KeyState = 'active' | 'revoked'

export interface Key {
  readonly id: KeyId
  readonly label: string | null
  /** The start of the secret, enough to recognise it. */
  readonly prefix: string
  readonly status: KeyState
  readonly createdAt: Date
  readonly lastUsedAt: Date | null
  readonly revokedAt: Date | null
}

/** Whom a key belongs to. */
export interface KeyOwner {
  readonly keyId: KeyId
  readonly appId: AppId
  readonly clientId: ClientId
  readonly userId: UserId
  readonly externalUserId: ExternalUserId
  readonly tokensValidAfter: Date | null
  readonly publicScopes: readonly string[]
}
