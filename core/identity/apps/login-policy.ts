import { DomainError } from '../../../proto/errors.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import { normalizeEmail, domainOf } from '../../lib/text/email.ts'
import { findById } from '../accounts/store.ts'
import { findMember, lockMembership } from '../members/store.ts'
import type { PublicClient } from './clients.ts'

export interface LoginAccount {
  readonly id: string
  readonly email: string
  readonly isPlatformAdmin: boolean
}

type Policy = Pick<PublicClient, 'loginPolicy' | 'loginDomains'>

/** Whether the policy lets an account log in that is no member. Addresses of accounts are verified, by an operator or by the provider. */
export function admitsStranger(
  { loginPolicy, loginDomains }: Policy,
  account: Pick<LoginAccount, 'email' | 'isPlatformAdmin'>,
): boolean {
  if (loginPolicy === 'anyone' || account.isPlatformAdmin) return true
  const email = normalizeEmail(account.email)
  return loginPolicy === 'domains' && email !== null && loginDomains.includes(domainOf(email))
}

/** Who may log in to an app (docs/decisions/43.md). */
export function createLoginPolicy({ pool }: { pool: Pool }) {
  const admits = async (db: Db, client: PublicClient, account: LoginAccount): Promise<boolean> =>
    admitsStranger(client, account) || (await findMember(db, client.appId, account.id)) !== null

  /** Why the account may not log in to the app; null when it may. */
  async function refusalOf(client: PublicClient, account: LoginAccount): Promise<string | null> {
    return (await admits(pool, client, account))
      ? null
      : `your account may not log in to ${client.appName}; its owner decides who may`
  }

  /** ACCESS_DENIED unless the account may log in to the app. */
  async function require(client: PublicClient, account: LoginAccount): Promise<void> {
    const refusal = await refusalOf(client, account)
    if (refusal !== null) throw new DomainError('ACCESS_DENIED', refusal)
  }

  /** Whether a login of that account may go on, as things are now. Reads inside the transaction `db`. */
  async function admitsStill(db: Db, client: PublicClient, accountId: string): Promise<boolean> {
    const account = await findById(db, accountId)
    return account !== null && admits(db, client, account)
  }

  /**
   * As `admitsStill`, for a login that begins in the transaction `db`: a membership that it rests on ends after that, so
   * that the end of the membership meets the login.
   */
  async function admitsNew(db: Db, client: PublicClient, accountId: string): Promise<boolean> {
    const account = await findById(db, accountId)
    if (account === null) return false
    return admitsStranger(client, account) || lockMembership(db, client.appId, account.id)
  }

  return { refusalOf, require, admitsStill, admitsNew }
}

export type LoginAdmission = ReturnType<typeof createLoginPolicy>
