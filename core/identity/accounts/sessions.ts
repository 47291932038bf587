import { hash, randomBytes } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import { type EndCause, loginsGrant } from '../../shared/lineage/grants.ts'
import { type AccountId, type ClientId } from '../../shared/ids.ts'
import { type AccountCaller, type MemberCaller, type Role, roles } from '../../rpc/callers.ts'
import type { LoginMethod, LoginRecords } from './log-in-records.ts'
import * as store from './store.ts'
import type { Mails } from '../../mail/mails.ts'
import type { Shared } from '../../shared/shared.ts'

/** Data of a call for its audit log entry. */
export interface CallOrigin {
  readonly correlationId?: string | undefined
}

/** Absolute lifetime of a session, regardless of use. */
const absoluteSeconds = 90 * 86_400

const touchEveryMs = 60_000

export const newToken = (): string => randomBytes(32).toString('base64url')

/**
 * Derived from the session token, so that no page depends on a stored token. The stored hash of the
 * session token does not reveal it.
 */
export const deriveCsrfToken = (token: string): string =>
  hash('sha256', `csrf ${token}`, 'base64url')

export const hashToken = (token: string): Buffer => hash('sha256', token, 'buffer')

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

export type SessionsDeps = Shared & {
  /** Idle time in seconds after which a session ends. */
  readonly idleSeconds: number
  readonly records: LoginRecords
  readonly mails: Pick<Mails, 'send' | 'delivery'>
}

/**
 * Server-side sessions of the dashboard (decision 16). Their tokens are stored as SHA-256 hashes.
 */
export function createSessions({ pool, grants, now, idleSeconds, records }: SessionsDeps) {
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
      tokenHash: hashToken(token),
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

  const logOut = (token: string): Promise<void> => store.deleteSession(pool, hashToken(token))

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

  /**
   * Returns the session of the token and restarts its idle time. Throws TOKEN_INVALID when it has
   * ended.
   */
  async function session(token: string): Promise<LiveSession> {
    const at = now()
    const tokenHash = hashToken(token)
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

  return { begin, logOut, logOutEverywhere, endLogins, session, bySession, memberOf }
}

export type Sessions = ReturnType<typeof createSessions>
