import type { CallOrigin, Sessions, SessionsDeps } from './sessions.ts'
import { DomainError } from '../../../proto/errors.ts'
import { normalizeEmail } from '../../lib/text/email.ts'
import type { Db } from '../../lib/sql.ts'
import type { AccountId } from '../../shared/ids.ts'
import { hashPassword, passwordMatches } from '../../shared/secrets.ts'
import type { LoginMethod } from './log-in-records.ts'
import { type QueuePlace, createPasswordQueue } from './password-queue.ts'
import * as links from './link-store.ts'
import * as store from './store.ts'

export interface PasswordCredential {
  readonly email: string
  readonly password: string
  /** Source and priority in the password queue. */
  readonly place: QueuePlace
}

/** An account that passed the password check, with the hash used for it. */
type Authenticated = store.Account & { readonly passwordHash: string | null }

const wrongPassword = (): DomainError =>
  new DomainError('CREDENTIAL_INVALID', 'the e-mail address or the password is wrong')

/** Passwords of accounts. */
export function createPasswords({
  pool,
  now,
  records,
  mails,
  endLogins,
}: SessionsDeps & Pick<Sessions, 'endLogins'>) {
  const passwordQueue = createPasswordQueue()

  const hashInQueue = (place: QueuePlace, password: string): Promise<string> =>
    passwordQueue.run(place, () => hashPassword(password))

  /**
   * Locks the account until the transaction ends, so that a concurrent password change also ends
   * the new session. Hashing takes a while: throws CREDENTIAL_INVALID if the password has changed
   * since it was compared.
   */
  async function confirm(db: Db, account: Authenticated): Promise<void> {
    if ((await store.lockPassword(db, account.id)) !== account.passwordHash) throw wrongPassword()
  }

  /**
   * Returns the account with this address and password. Throws CREDENTIAL_INVALID as `logIn` does,
   * and records the failure.
   */
  async function authenticate(
    { email, password, place }: PasswordCredential,
    { method, correlationId }: CallOrigin & { method: LoginMethod },
  ): Promise<Authenticated> {
    const address = normalizeEmail(email)
    const account = address === null ? null : await store.findByEmail(pool, address)
    // Longer passwords never match, so hash at most the maximum length.
    const stored = password.length > passwordMax ? null : (account?.passwordHash ?? null)
    const matches = await passwordQueue.run(place, () =>
      passwordMatches(password.slice(0, passwordMax), stored),
    )
    if (account && matches) return account
    records.failed(method, account?.id ?? null, correlationId)
    throw wrongPassword()
  }

  /** Changes a password. The only function that does: it ends all logins and unused reset links. */
  async function changePassword(
    db: Db,
    account: AccountId,
    password: { readonly hash: string; readonly correlationId?: string | undefined },
  ): Promise<void> {
    await store.setPassword(db, account, password.hash)
    await links.endResets(db, account, now())
    await endLogins(db, account, 'password_reset')
    const { correlationId } = password
    await records.note(db, { account, action: 'account_password_changed', correlationId })
    const changed = await store.findById(db, account)
    if (changed)
      await mails.send(db, {
        email: changed.email,
        content: { kind: 'password_changed', at: now() },
      })
  }

  return { hashInQueue, confirm, authenticate, changePassword }
}

const passwordMin = 12

const passwordMax = 200

export type Passwords = ReturnType<typeof createPasswords>

export function parsePassword(password: string): string {
  if (password.length >= passwordMin && password.length <= passwordMax) return password
  throw new DomainError(
    'REQUEST_INVALID',
    `the password must have ${passwordMin} to ${passwordMax} characters`,
  )
}
