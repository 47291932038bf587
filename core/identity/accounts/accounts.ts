import { hash, randomBytes } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { type AccountCaller, type MemberCaller, type Role, roles } from '../../rpc/callers.ts'
import { type ClientId, accountId } from '../../platform/ids.ts'
import { newSecret, uuidV7 } from '../../lib/crypto.ts'
import { type Pool, tx } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { hashPassword, passwordMatches } from '../../platform/secrets.ts'
import { limitConcurrency } from '../../lib/concurrency.ts'
import { parseEmail } from '../input.ts'
import * as store from './store.ts'

export interface AccountsDeps {
  readonly pool: Pool
  readonly now: Now
  /** A session that is not used for so long has ended. */
  readonly idleSeconds: number
}

const daySeconds = 86_400
/** A session ends after this, however much it is used. */
const absoluteSeconds = 90 * daySeconds
const resetSeconds = 3_600
const touchEveryMs = 60_000
const newToken = (): string => randomBytes(32).toString('base64url')
const hashOf = (token: string): Buffer => hash('sha256', token, 'buffer')

export interface LiveSession {
  readonly account: store.Account
  readonly csrfToken: string
  readonly authTime: Date
  readonly expiresAt: Date
}

const tooManyLogins = (): DomainError =>
  new DomainError('RATE_LIMITED', 'too many people log in at this moment; try again')

/** Accounts of the dashboard and their server-side sessions (decision 16). Session and reset tokens are stored as SHA-256 hashes. */
export function createAccounts({ pool, now, idleSeconds }: AccountsDeps) {
  // argon2 takes 19 MiB and one of four threads: many logins must neither fill the memory nor starve other work.
  const runLimited = limitConcurrency({ running: 2, waiting: 64, refusal: tooManyLogins })

  /** CREDENTIAL_INVALID for an unknown address and a wrong password alike, after the same work. */
  async function logIn(email: string, password: string) {
    const account = email.length > 320 ? null : await store.findByEmail(pool, email.trim())
    // No password is longer than the maximum, so only that much is hashed.
    const stored = password.length > passwordMax ? null : (account?.passwordHash ?? null)
    const matches = await runLimited(() => passwordMatches(password.slice(0, passwordMax), stored))
    if (!account || !matches)
      throw new DomainError('CREDENTIAL_INVALID', 'the e-mail address or the password is wrong')
    return begin(account)
  }

  /**
   * Logs in the account of an outside provider's subject. A new subject is linked to the account with its e-mail address,
   * which is created when there is none. ACCESS_DENIED when the provider has not verified that address.
   */
  async function logInWithIdentity(identity: {
    issuer: string
    subject: string
    email: string
    emailVerified: boolean
    name: string
  }) {
    const known = await store.findByIdentity(pool, identity.issuer, identity.subject)
    if (known) return begin(known)
    if (!identity.emailVerified)
      throw new DomainError('ACCESS_DENIED', 'the provider has not verified your e-mail address')
    const email = parseEmail(identity.email)
    const at = now()
    const id = await tx(pool, async (db) => {
      const inserted = await store.insertAccount(db, {
        id: accountId(uuidV7(at.getTime())),
        email,
        name: identity.name.slice(0, 100),
        isPlatformAdmin: false,
        passwordHash: null,
        at,
      })
      const account = inserted ?? (await store.findByEmail(db, email))
      if (!account) throw new Error('an account that exists cannot be found')
      return store.linkIdentity(db, {
        issuer: identity.issuer,
        subject: identity.subject,
        accountId: account.id,
        at,
      })
    })
    const account = await store.findByIdentity(pool, identity.issuer, identity.subject)
    if (account?.id !== id) throw new Error('an identity that was linked cannot be found')
    return begin(account)
  }

  async function begin(account: store.Account): Promise<{ token: string; session: LiveSession }> {
    const at = now()
    const token = newToken()
    const csrfToken = newToken()
    await store.insertSession(pool, {
      tokenHash: hashOf(token),
      accountId: account.id,
      csrfToken,
      at,
      expiresAt: addSeconds(at, absoluteSeconds),
    })
    return {
      token,
      session: { account, csrfToken, authTime: at, expiresAt: addSeconds(at, idleSeconds) },
    }
  }

  const logOut = (token: string): Promise<void> => store.deleteSession(pool, hashOf(token))

  /** The session of that token, whose idle time starts again. TOKEN_INVALID when it has ended. */
  async function session(token: string): Promise<LiveSession> {
    const at = now()
    const tokenHash = hashOf(token)
    const stored = await store.findSession(pool, tokenHash, {
      at,
      idleSince: addSeconds(at, -idleSeconds),
    })
    if (!stored) throw new DomainError('TOKEN_INVALID', 'the session is over; log in again')
    if (at.getTime() - stored.lastSeenAt.getTime() >= touchEveryMs)
      await store.touchSession(pool, tokenHash, at)
    const idleEnd = addSeconds(at, idleSeconds)
    const { account, csrfToken, authTime, expiresAt } = stored
    return { account, csrfToken, authTime, expiresAt: idleEnd < expiresAt ? idleEnd : expiresAt }
  }

  /** As `session`, as a caller. */
  async function bySession(token: string): Promise<AccountCaller> {
    const { account } = await session(token)
    return {
      kind: 'account',
      accountId: account.id,
      email: account.email,
      isPlatformAdmin: account.isPlatformAdmin,
    }
  }

  /** The account as a member of the app; null when there is no such app or the account may not see it. */
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

  /** CONFLICT when another account has the address. Without a password one is chosen, and returned this once. */
  async function create(request: {
    email: string
    password: string | undefined
    name: string
    isPlatformAdmin: boolean
  }) {
    const at = now()
    const email = parseEmail(request.email)
    const name = parseName(request.name)
    const password =
      request.password === undefined ? newSecret('').slice(0, 20) : parsePassword(request.password)
    const passwordHash = await runLimited(() => hashPassword(password))
    const account = await store.insertAccount(pool, {
      id: accountId(uuidV7(at.getTime())),
      email,
      name,
      isPlatformAdmin: request.isPlatformAdmin,
      passwordHash,
      at,
    })
    if (!account)
      throw new DomainError('CONFLICT', 'there is an account with this e-mail address already')
    return { account, password: request.password === undefined ? password : undefined }
  }

  /** A token that sets a new password once, within an hour. NOT_FOUND for an unknown address: for operators only. */
  async function startReset(email: string): Promise<{ token: string; expiresAt: Date }> {
    const account = await store.findByEmail(pool, email.trim())
    if (!account) throw new DomainError('NOT_FOUND', 'there is no account with this e-mail address')
    const at = now()
    const token = newToken()
    const expiresAt = addSeconds(at, resetSeconds)
    await store.insertReset(pool, {
      tokenHash: hashOf(token),
      accountId: account.id,
      at,
      expiresAt,
    })
    return { token, expiresAt }
  }

  /** Sets the password and ends every session of the account. GRANT_INVALID for a token that is used or too old. */
  async function reset(token: string, password: string): Promise<void> {
    const passwordHash = await runLimited(() => hashPassword(parsePassword(password)))
    await tx(pool, async (db) => {
      const at = now()
      const account = await store.useReset(db, hashOf(token), at)
      if (!account)
        throw new DomainError(
          'GRANT_INVALID',
          'this link was used already, or is too old; ask for a new one',
        )
      await store.setPassword(db, account, passwordHash)
      await store.endResets(db, account, at)
      await store.deleteSessionsOf(db, account)
    })
  }

  const deleteExpired = (): Promise<void> => store.deleteExpired(pool, now())

  return {
    logIn,
    logInWithIdentity,
    logOut,
    session,
    bySession,
    memberOf,
    find,
    create,
    startReset,
    reset,
    deleteExpired,
  }
}

export type Accounts = ReturnType<typeof createAccounts>

const passwordMin = 12
const passwordMax = 200

function parsePassword(password: string): string {
  if (password.length >= passwordMin && password.length <= passwordMax) return password
  throw new DomainError(
    'REQUEST_INVALID',
    `the password must have ${passwordMin} to ${passwordMax} characters`,
  )
}

function parseName(text: string): string {
  const name = text.trim()
  if (name.length <= 100 && !/\p{Cc}/u.test(name)) return name
  throw new DomainError(
    'REQUEST_INVALID',
    'name must have at most 100 characters, none of them a control character',
  )
}
