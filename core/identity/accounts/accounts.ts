import { hash, randomBytes } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { newSecret, uuidV7 } from '../../lib/crypto.ts'
import { normalizeEmail } from '../../lib/text/email.ts'
import { type Db, type Pool, isUniqueViolation, tx } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { type EndCause, type Grants, loginsGrant } from '../../platform/grants/grants.ts'
import { type Cursor, page } from '../../platform/cursor.ts'
import { type AccountId, type ClientId, accountId, isUuid } from '../../platform/ids.ts'
import { hashPassword, passwordMatches } from '../../platform/secrets.ts'
import { type AccountCaller, type MemberCaller, type Role, roles } from '../../rpc/callers.ts'
import { parseEmail, parseOptionalName } from '../input.ts'
import type { LoginMethod, LoginRecords } from './log-in-records.ts'
import { type QueuePlace, createPasswordQueue } from './password-queue.ts'
import * as store from './store.ts'
import { deleteInBatches } from '../../platform/upkeep.ts'

export interface AccountsDeps {
  readonly pool: Pool
  readonly grants: Pick<Grants, 'end'>
  readonly now: Now
  /** Idle time in seconds after which a session ends. */
  readonly idleSeconds: number
  readonly records: LoginRecords
}

export interface PasswordCredential {
  readonly email: string
  readonly password: string
  /** Source and priority in the password queue. */
  readonly place: QueuePlace
}

/** Data of a call for its audit log entry. */
export interface CallOrigin {
  readonly correlationId?: string | undefined
}

export interface AccountChange {
  readonly email?: string | undefined
  readonly id?: string | undefined
  readonly newEmail?: string | undefined
  readonly isPlatformAdmin?: boolean | undefined
}

const daySeconds = 86_400
/** Absolute lifetime of a session, regardless of use. */
const absoluteSeconds = 90 * daySeconds
const resetSeconds = 3_600
const touchEveryMs = 60_000
const newToken = (): string => randomBytes(32).toString('base64url')
/**
 * Derived from the session token, so that no page depends on a stored token. The stored hash of the
 * session token does not reveal it.
 */
export const deriveCsrfToken = (token: string): string =>
  hash('sha256', `csrf ${token}`, 'base64url')
const hashOf = (token: string): Buffer => hash('sha256', token, 'buffer')

export interface LiveSession {
  readonly account: store.Account
  readonly csrfToken: string
  readonly authTime: Date
  readonly expiresAt: Date
  /**
   * Ids that logins to apps and devices descend from when the person allows them with this session.
   */
  readonly grants: readonly string[]
}

/** An account that passed the password check, with the hash used for it. */
type Authenticated = store.Account & { readonly passwordHash: string | null }

const wrongPassword = (): DomainError =>
  new DomainError('CREDENTIAL_INVALID', 'the e-mail address or the password is wrong')

/**
 * Accounts of the dashboard and their server-side sessions (decision 16). Session and reset tokens
 * are stored as SHA-256 hashes.
 */
export function createAccounts({ pool, grants, now, idleSeconds, records }: AccountsDeps) {
  const passwordQueue = createPasswordQueue()

  /**
   * Throws CREDENTIAL_INVALID for an unknown address and for a wrong password, after the same
   * amount of work.
   */
  async function logIn(credential: PasswordCredential, origin: CallOrigin = {}) {
    const account = await authenticate(credential, { method: 'password', ...origin })
    return tx(pool, async (db) => {
      await confirm(db, account)
      return begin(db, account, { method: 'password', ...origin })
    })
  }

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

  /** Begins a session of an authenticated account. */
  async function begin(
    db: Db,
    account: store.Account,
    { method, correlationId }: CallOrigin & { method: LoginMethod },
  ): Promise<{ token: string; session: LiveSession }> {
    const at = now()
    const token = newToken()
    const csrfToken = deriveCsrfToken(token)
    const generation = await store.insertSession(db, {
      tokenHash: hashOf(token),
      accountId: account.id,
      csrfHash: hash('sha256', csrfToken, 'hex'),
      at,
      expiresAt: addSeconds(at, absoluteSeconds),
    })
    await records.loggedIn(db, method, { account: account.id, correlationId })
    const expiresAt = addSeconds(at, idleSeconds)
    const lineage = [loginsGrant(account.id, generation)]
    return { token, session: { account, csrfToken, authTime: at, expiresAt, grants: lineage } }
  }

  const logOut = (token: string): Promise<void> => store.deleteSession(pool, hashOf(token))

  /**
   * Ends all sessions of the session's account and its logins to apps. Throws TOKEN_INVALID when
   * the session is over.
   */
  async function logOutEverywhere(token: string, { correlationId }: CallOrigin): Promise<void> {
    const { account } = await session(token)
    await tx(pool, async (db) => {
      await endLogins(db, account.id, 'logged_out_everywhere')
      const action = 'account_logged_out_everywhere'
      await records.note(db, { account: account.id, action, correlationId })
    })
  }

  /**
   * Ends all logins of an account, everything that descends from them, and everything issued for
   * them concurrently. The only function that does. Credentials of earlier releases descend from
   * the account id itself.
   */
  async function endLogins(db: Db, account: AccountId, cause: EndCause): Promise<void> {
    const generation = await store.endLoginGeneration(db, account)
    const at = now()
    await store.deleteAccountSessions(db, account)
    await grants.end(db, [
      { id: loginsGrant(account, generation), cause, at },
      { id: account, cause, at, endsBefore: at },
    ])
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
   * Returns the session of the token and restarts its idle time. Throws TOKEN_INVALID when it has
   * ended.
   */
  async function session(token: string): Promise<LiveSession> {
    const at = now()
    const tokenHash = hashOf(token)
    const stored = await store.findSession(pool, tokenHash, {
      at,
      idleSince: addSeconds(at, -idleSeconds),
    })
    if (!stored) throw new DomainError('TOKEN_INVALID', 'the session has ended; log in again')
    if (at.getTime() - stored.lastSeenAt.getTime() >= touchEveryMs)
      await store.touchSession(pool, tokenHash, at)
    const idleEnd = addSeconds(at, idleSeconds)
    const { account, authTime, loginGeneration } = stored
    const expiresAt = idleEnd < stored.expiresAt ? idleEnd : stored.expiresAt
    const lineage = [loginsGrant(account.id, loginGeneration)]
    return { account, csrfToken: deriveCsrfToken(token), authTime, expiresAt, grants: lineage }
  }

  /** Same as `session`, but returns a caller. */
  async function bySession(token: string): Promise<AccountCaller> {
    const { account, grants: lineage } = await session(token)
    return {
      kind: 'account',
      accountId: account.id,
      email: account.email,
      isPlatformAdmin: account.isPlatformAdmin,
      grants: lineage,
    }
  }

  /**
   * Returns the account as a member of the app; null if the app is missing or the account may not
   * see it.
   */
  async function memberOf(
    account: AccountCaller,
    clientId: ClientId,
  ): Promise<MemberCaller | null> {
    const membership = await store.findMembership(pool, account.accountId, clientId)
    if (!membership) return null
    const role = account.isPlatformAdmin
      ? 'owner'
      : roles.find((known): known is Role => known === membership.role)
    return role ? { ...account, kind: 'member', appId: membership.appId, clientId, role } : null
  }

  const find = (id: string): Promise<store.Account | null> => store.findById(pool, id)

  /**
   * Throws CONFLICT when another account has the address. Generates a password if none is given,
   * and returns it only once.
   */
  async function create(
    request: {
      email: string
      password: string | undefined
      name: string
      isPlatformAdmin: boolean
    },
    { correlationId }: CallOrigin = {},
  ) {
    const at = now()
    const email = parseEmail(request.email)
    const name = parseOptionalName(request.name, 'name')
    const { isPlatformAdmin } = request
    const password =
      request.password === undefined ? newSecret('').slice(0, 20) : parsePassword(request.password)
    const passwordHash = await passwordQueue.run({ isKnown: true }, () => hashPassword(password))
    const id = accountId(uuidV7(at.getTime()))
    const account = await tx(pool, async (db) => {
      const inserted = await store.insertAccount(db, {
        id,
        email,
        name,
        isPlatformAdmin,
        passwordHash,
        at,
      })
      if (!inserted) throw takenAddress()
      const action = 'account_created'
      const act = { account: id, actor: 'operator', action, correlationId }
      await records.note(db, { ...act, details: { isPlatformAdmin } })
      return inserted
    })
    return { account, password: request.password === undefined ? password : undefined }
  }

  /**
   * Changes an account's address or platform admin role. Finds the account by its address or id.
   * Throws NOT_FOUND if it is missing, CONFLICT when another account has the new address.
   */
  async function change(
    request: AccountChange,
    { correlationId }: CallOrigin = {},
  ): Promise<store.Account> {
    const newEmail =
      request.newEmail === undefined ? null : parseEmail(request.newEmail, 'newEmail')
    return tx(pool, async (db) => {
      const account = await findNamed(db, request)
      if (!account) throw new DomainError('NOT_FOUND', 'there is no such account')
      const next = {
        ...account,
        email: newEmail ?? account.email,
        isPlatformAdmin: request.isPlatformAdmin ?? account.isPlatformAdmin,
      }
      const isSame =
        next.email === account.email && next.isPlatformAdmin === account.isPlatformAdmin
      if (isSame) return account
      await store.updateAccount(db, next).catch((error: unknown) => {
        throw isUniqueViolation(error) ? takenAddress() : error
      })
      const { isPlatformAdmin } = next
      const details = { isPlatformAdmin, addressChanged: next.email !== account.email }
      const act = { account: account.id, actor: 'operator', action: 'account_changed', details }
      await records.note(db, { ...act, correlationId })
      return next
    })
  }

  async function findNamed(db: Db, { email, id }: AccountChange): Promise<store.Account | null> {
    if (id !== undefined) return isUuid(id) ? store.findById(db, id) : null
    return store.findByEmail(db, parseEmail(email ?? ''))
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
    const passwordHash = await passwordQueue.run(place, () => hashPassword(newPassword))
    await tx(pool, async (db) => {
      const account = await store.useReset(db, tokenHash, now())
      if (!account) throw endedReset()
      await changePassword(db, account, { hash: passwordHash, correlationId })
    })
  }

  /** Lists accounts in order of creation. */
  const list = async (after: Cursor | null, limit: number) =>
    page(await store.listAccounts(pool, after, limit), limit)

  async function deleteExpired(): Promise<void> {
    const at = now()
    for (const deleteBatch of store.deletions)
      await deleteInBatches((limit) => deleteBatch(pool, at, limit))
  }

  return {
    logIn,
    authenticate,
    confirm,
    begin,
    logOut,
    logOutEverywhere,
    session,
    bySession,
    memberOf,
    find,
    create,
    change,
    startReset,
    checkReset,
    reset,
    list,
    deleteExpired,
  }
}

export type Accounts = ReturnType<typeof createAccounts>

const endedReset = (): DomainError =>
  new DomainError('GRANT_INVALID', 'this link was already used or has expired; request a new one')

const takenAddress = (): DomainError =>
  new DomainError('CONFLICT', 'an account with this e-mail address already exists')

const passwordMin = 12
const passwordMax = 200

function parsePassword(password: string): string {
  if (password.length >= passwordMin && password.length <= passwordMax) return password
  throw new DomainError(
    'REQUEST_INVALID',
    `the password must have ${passwordMin} to ${passwordMax} characters`,
  )
}
