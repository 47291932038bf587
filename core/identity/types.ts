import type { Db } from '../lib/sql.ts'
import type { AppId, ExternalUserId, UserId } from '../platform/ids.ts'

export const userStates = ['active', 'inactive'] as const
/** active -> inactive (deactivation, which ends credentials) -> active (by request only; no credential comes back). */
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
/** Who may log in to an app: its members, also those with an address of its domains, or everybody with an account. */
export type LoginPolicy = (typeof loginPolicies)[number]

/** Changes of a user. What is absent stays as it is. */
export interface UserChange {
  readonly externalUserId: ExternalUserId
  /** null clears it. */
  readonly email?: string | null
  readonly status?: UserState
}

/** Whether an app may have more active end users (docs/billing.md). Its owner is none of them. */
export interface ActivationGate {
  /**
   * Refuses with a reason of the gate unless the app may have the users that the transaction made active. The last statement
   * of the transaction that waits for a lock.
   */
  readonly requireCost: (db: Db, app: AppId) => Promise<void>
  /** Refuses with a reason of the gate when one user more would be refused now. Locks nothing, so `requireCost` decides. */
  readonly requireRoom: (db: Db, app: AppId) => Promise<void>
}

/** Marks an app as one of the platform's own, in the transaction that creates it. */
export type OwnByPlatform = (db: Db, app: AppId, at: Date) => Promise<void>

/**
 * A domain that issues credentials. Identity ends them through these functions, in the transaction that deactivates their
 * user or deletes their app (decision 15). Both return the ids under which caches elsewhere know the credentials.
 */
export interface CredentialIssuer {
  readonly endOfUser: (db: Db, user: { appId: AppId; id: UserId }, at: Date) => Promise<string[]>
  readonly endOfApp: (db: Db, app: AppId, at: Date) => Promise<string[]>
  /** Ends the logins of an account to an app, and returns their ids, which are grants. */
  readonly endOfLogins?: (
    db: Db,
    login: { appId: AppId; accountId: string },
    at: Date,
  ) => Promise<string[]>
  /** Marks those that descend from ended grants, or with `keep` lets them go on without these. Returns how many ended. */
  readonly endOfGrants?: (
    db: Db,
    ends: { appId: AppId; grants: readonly string[]; at: Date; keep?: boolean },
  ) => Promise<number>
}
