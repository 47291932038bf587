import { DomainError } from '../../../proto/errors.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import { normalizeEmail, toDomain } from '../../lib/text/email.ts'
import { findById } from '../accounts/store.ts'
import type { PublicClient } from '../apps/clients.ts'
import { findMember, lockMembership } from './store.ts'

export interface LoginAccount {
  readonly id: string
  readonly email: string
  readonly isPlatformAdmin: boolean
}

type Policy = Pick<PublicClient, 'loginPolicy' | 'loginDomains'>

/**
 * Whether the policy admits an account that is not a member. Addresses of accounts are verified by
 * an operator or by the provider.
 */
export function admitsStranger(
  { loginPolicy, loginDomains }: Policy,
  account: Pick<LoginAccount, 'email' | 'isPlatformAdmin'>,
): boolean {
  if (loginPolicy === 'anyone' || account.isPlatformAdmin) return true
  const email = normalizeEmail(account.email)
  return loginPolicy === 'domains' && email !== null && loginDomains.includes(toDomain(email))
}

/** Decides who may log in to an app (docs/decisions/43.md). */
export function createLoginPolicy({ pool }: { pool: Pool }) {
  const admits = async (db: Db, client: PublicClient, account: LoginAccount): Promise<boolean> =>
    admitsStranger(client, account) || (await findMember(db, client.appId, account.id)) !== null

  /** Returns why the account may not log in to the app; null if it may. */
  async function refusalOf(client: PublicClient, account: LoginAccount): Promise<string | null> {
    return (await admits(pool, client, account))
      ? null
      : `your account may not log in to ${client.appName}; ask its owner for access`
  }

  /** Throws ACCESS_DENIED unless the account may log in to the app. */
  async function require(client: PublicClient, account: LoginAccount): Promise<void> {
    const refusal = await refusalOf(client, account)
    if (refusal !== null) throw new DomainError('ACCESS_DENIED', refusal)
  }

  /** Whether an existing login of the account may continue. Reads inside the transaction `db`. */
  async function admitsStill(db: Db, client: PublicClient, accountId: string): Promise<boolean> {
    const account = await findById(db, accountId)
    return account !== null && admits(db, client, account)
  }

  /**
   * Same as `admitsStill`, for a new login in the transaction `db`. Locks the membership that
   * admits it, so that a concurrent removal of the membership waits and then ends this login.
   */
  async function admitsNew(db: Db, client: PublicClient, accountId: string): Promise<boolean> {
    const account = await findById(db, accountId)
    if (account === null) return false
    return admitsStranger(client, account) || lockMembership(db, client.appId, account.id)
  }

  return { refusalOf, require, admitsStill, admitsNew }
}

export type LoginAdmission = ReturnType<typeof createLoginPolicy>
