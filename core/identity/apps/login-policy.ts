import { DomainError } from '../../../proto/errors.ts'
import type { Pool } from '../../lib/sql.ts'
import { normalizeEmail, domainOf } from '../../lib/text/email.ts'
import { findById } from '../accounts/store.ts'
import { findMember } from '../members/store.ts'
import type { PublicClient } from './clients.ts'

export interface LoginAccount {
  readonly id: string
  readonly email: string
  readonly isPlatformAdmin: boolean
}

/** Who may log in to an app (docs/decisions/43.md). Addresses of accounts are verified, by an operator or by the provider. */
export function createLoginPolicy({ pool }: { pool: Pool }) {
  async function admits(client: PublicClient, account: LoginAccount): Promise<boolean> {
    const { loginPolicy, loginDomains } = client
    if (loginPolicy === 'anyone' || account.isPlatformAdmin) return true
    const email = normalizeEmail(account.email)
    if (loginPolicy === 'domains' && email !== null && loginDomains.includes(domainOf(email)))
      return true
    return (await findMember(pool, client.appId, account.id)) !== null
  }

  /** Why the account may not log in to the app; null when it may. */
  async function refusalOf(client: PublicClient, account: LoginAccount): Promise<string | null> {
    return (await admits(client, account))
      ? null
      : `your account may not log in to ${client.appName}; its owner decides who may`
  }

  /** ACCESS_DENIED unless the account may log in to the app. */
  async function require(client: PublicClient, account: LoginAccount): Promise<void> {
    const refusal = await refusalOf(client, account)
    if (refusal !== null) throw new DomainError('ACCESS_DENIED', refusal)
  }

  /** Whether a login of that account may go on, as things are now. */
  async function admitsStill(client: PublicClient, accountId: string): Promise<boolean> {
    const account = await findById(pool, accountId)
    return account !== null && admits(client, account)
  }

  return { refusalOf, require, admitsStill }
}

export type LoginAdmission = ReturnType<typeof createLoginPolicy>
