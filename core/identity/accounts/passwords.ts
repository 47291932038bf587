import { type CallOrigin, type Sessions, type SessionsDeps, hashOf, newToken } from './sessions.ts'
import { DomainError } from '../../../proto/errors.ts'
import { normalizeEmail } from '../../lib/text/email.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { AccountId } from '../../shared/ids.ts'
import { hashPassword, passwordMatches } from '../../shared/secrets.ts'
import { parseEmail } from '../input.ts'
import type { LoginMethod } from './log-in-records.ts'
import { type QueuePlace, createPasswordQueue } from './password-queue.ts'
import * as store from './store.ts'

export interface PasswordCredential {
  readonly email: string
  readonly password: string
  /** Source and priority in the password queue. */
  readonly place: QueuePlace
}

const resetSeconds = 3_600

/** An account that passed the password check, with the hash used for it. */
type Authenticated = store.Account & { readonly passwordHash: string | null }

const wrongPassword = (): DomainError =>
  new DomainError('CREDENTIAL_INVALID', 'the e-mail address or the password is wrong')

/**
 * Passwords of accounts, and links that set them. The tokens of these links are stored as SHA-256
 * hashes.
 */
export function createPasswords({
  pool,
  now,
  records,
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
    await store.endResets(db, account, now())
    await endLogins(db, account, 'password_reset')
    const { correlationId } = password
    await records.note(db, { account, action: 'account_password_changed', correlationId })
  }

  /**
   * Creates a token that sets a new password once, within an hour. Throws NOT_FOUND for an unknown
   * address, so only operators may call it.
   */
  async function startReset(
    email: string,
    { correlationId }: CallOrigin = {},
  ): Promise<{ token: string; expiresAt: Date }> {
    const account = await store.findByEmail(pool, parseEmail(email))
    if (!account) throw new DomainError('NOT_FOUND', 'there is no account with this e-mail address')
    const at = now()
    const token = newToken()
    const expiresAt = addSeconds(at, resetSeconds)
    await tx(pool, async (db) => {
      await store.insertReset(db, {
        tokenHash: hashOf(token),
        accountId: account.id,
        at,
        expiresAt,
      })
      const act = { account: account.id, actor: 'operator', correlationId }
      await records.note(db, { ...act, action: 'account_password_reset_started' })
    })
    return { token, expiresAt }
  }

  /** Throws GRANT_INVALID unless the token can still set a password. */
  async function checkReset(token: string): Promise<void> {
    if (!(await store.isResetOpen(pool, hashOf(token), now()))) throw endedReset()
  }

  /**
   * Sets the password and ends all sessions of the account. Throws GRANT_INVALID for a used or
   * expired token.
   */
  async function reset(
    token: string,
    password: string,
    { correlationId }: CallOrigin = {},
  ): Promise<void> {
    const tokenHash = hashOf(token)
    const newPassword = parsePassword(password)
    // Look the token up before hashing the password, so that invented tokens take no place in the
    // queue.
    if (!(await store.isResetOpen(pool, tokenHash, now()))) throw endedReset()
    const place = { source: `reset:${tokenHash.toString('hex')}`, isKnown: true }
    const passwordHash = await hashInQueue(place, newPassword)
    await tx(pool, async (db) => {
      const account = await store.useReset(db, tokenHash, now())
      if (!account) throw endedReset()
      await changePassword(db, account, { hash: passwordHash, correlationId })
    })
  }

  return { hashInQueue, confirm, authenticate, startReset, checkReset, reset }
}

const endedReset = (): DomainError =>
  new DomainError('GRANT_INVALID', 'this link was already used or has expired; request a new one')

const passwordMin = 12

const passwordMax = 200

export function parsePassword(password: string): string {
  if (password.length >= passwordMin && password.length <= passwordMax) return password
  throw new DomainError(
    'REQUEST_INVALID',
    `the password must have ${passwordMin} to ${passwordMax} characters`,
  )
}
