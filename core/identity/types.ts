import type { Db } from '../lib/sql.ts'
import type { AppId, ExternalUserId, UserId } from '../shared/ids.ts'

export const userStates = ['active', 'inactive'] as const
/**
 * active -> inactive (deactivation, which ends credentials) -> active (by request only; ended
 * credentials stay ended).
 */
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

export const loginPolicies = ['members', 'domains', 'anyone'] as const
/**
 * Who may log in to an app: its members, also accounts with an address in its domains, or every
 * account.
 */
export type LoginPolicy = (typeof loginPolicies)[number]

/** Changes of a user. Absent fields stay unchanged. */
export interface UserChange {
  readonly externalUserId: ExternalUserId
  /** Null clears the address. */
  readonly email?: string | null
  readonly status?: UserState
}

/** Limits an app's active end users (docs/billing.md). The app's owner does not count. */
export interface ActivationGate {
  /**
   * Throws a reason of the gate if the app may not have the users that this transaction activates.
   * Must be the transaction's last statement that waits for a lock.
   */
  readonly requireCost: (db: Db, app: AppId) => Promise<void>
  /**
   * Throws a reason of the gate if one more user would be refused now. Takes no lock, so only
   * `requireCost` is final.
   */
  readonly requireRoom: (db: Db, app: AppId) => Promise<void>
}

/** Addresses that may create their account by a mailed link: none, invited ones, or all. */
export const signUpModes = ['off', 'invitation', 'address'] as const
export type SignUpMode = (typeof signUpModes)[number]

export interface SignUpPolicy {
  readonly mode: SignUpMode
  /** E-mail domains of mode `address`; null for all. Invited addresses may have any. */
  readonly domains: ReadonlySet<string> | null
}

/** Marks an app as one of the platform's own, in the transaction that creates it. */
export type OwnByPlatform = (db: Db, app: AppId, at: Date) => Promise<void>

/**
 * A domain that issues credentials. Identity ends them through these functions, in the transaction
 * that deactivates their user or deletes their app (decision 15). `endOfUser` and `endOfApp` return
 * the ids of the credentials in other processes' caches.
 */
export interface CredentialIssuer {
  readonly endOfUser: (db: Db, user: { appId: AppId; id: UserId }, at: Date) => Promise<string[]>
  readonly endOfApp: (db: Db, app: AppId, at: Date) => Promise<string[]>
  /**
   * Ends an account's logins to an app. Returns their ids, from which other credentials descend.
   */
  readonly endOfLogins?: (
    db: Db,
    login: { appId: AppId; accountId: string },
    at: Date,
  ) => Promise<string[]>
  /**
   * Ends credentials that descend from `grants` or, with `keep`, removes `grants` from their
   * lineage. Returns the number of ended credentials.
   */
  readonly endOfGrants?: (
    db: Db,
    ends: { appId: AppId; grants: readonly string[]; at: Date; keep?: boolean },
  ) => Promise<number>
}
