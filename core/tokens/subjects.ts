import { DomainError } from '../../proto/errors.ts'
import type { Clients } from '../identity/apps/clients.ts'
import type { User } from '../identity/types.ts'
import type { Users } from '../identity/users/users.ts'
import type { Db } from '../lib/sql.ts'
import { toSeconds } from '../lib/time.ts'
import { joinGrants } from '../shared/lineage/grants.ts'
import { type ClientId, accountSubject, appId, authId, isUuid, userId } from '../shared/ids.ts'
import type { Shared } from '../shared/shared.ts'
import type { AccountCaller, M2mCaller, SelfCaller, UserCaller } from '../rpc/callers.ts'
import { type Jwts, type VerifiedJwt, invalidToken, readLineage } from './issuer/jwt.ts'

type Deps = Shared & {
  readonly jwts: Jwts
  readonly clients: Pick<Clients, 'findM2m' | 'findPublic'>
  readonly users: Users
}

/** A valid token with the active user that it was issued for. */
export interface UserToken {
  readonly jwt: VerifiedJwt
  readonly user: User
  readonly caller: UserCaller
}

/**
 * Resolves tokens to the current users and clients, which may have been deactivated since the token
 * was issued.
 */
export function createSubjects({ jwts, clients, users, grants }: Deps) {
  /** Throws TOKEN_INVALID unless `token` is a valid user JWT of an active user. */
  const userToken = async (token: string): Promise<UserToken> =>
    ofJwt(await jwts.verify(token, ['user']))

  /**
   * Returns the user of a user or signer JWT. Throws TOKEN_INVALID for an inactive user, and for a
   * token issued before the user's last deactivation.
   */
  async function ofJwt(jwt: VerifiedJwt): Promise<UserToken> {
    const client = await clients.findPublic(jwt.clientId)
    const user = client ? await userOf(jwt, client.appId) : null
    const validAfter = user?.tokensValidAfter ?? null
    const isVoided = validAfter !== null && jwt.iat < toSeconds(validAfter)
    if (!client || user?.status !== 'active' || isVoided) throw invalidToken()
    return {
      jwt,
      user,
      caller: {
        kind: 'user',
        appId: user.appId,
        clientId: client.publicClientId,
        userId: user.id,
        externalUserId: user.externalUserId,
        scopes: jwt.scopes,
      },
    }
  }

  // The subject of a signer JWT is the integrator's id; that of a user JWT is ours (decision 9).
  async function userOf(jwt: VerifiedJwt, app: User['appId']): Promise<User | null> {
    if (jwt.use === 'signer') return users.get(app, jwt.sub).catch(noneIfUnknown)
    return isUuid(jwt.sub) ? users.findById(app, userId(jwt.sub)) : null
  }

  /**
   * Returns the active user of a code or an opaque token that was issued at `issuedAt`. Returns
   * null if a deactivation, or the end of one of `grants`, has revoked it. `tokensValidAfter` of
   * the result covers both. Reads inside the transaction `db`.
   */
  async function findUser(
    db: Db,
    subject: { appId: string; userId: string; issuedAt: Date; grants: readonly string[] },
  ): Promise<User | null> {
    const user = await users.findActive(db, appId(subject.appId), userId(subject.userId))
    if (!user || (user.tokensValidAfter && user.tokensValidAfter > subject.issuedAt)) return null
    const { ended, last } = await grants.findEnds(db, subject.grants, subject.issuedAt)
    return ended.length > 0
      ? null
      : { ...user, tokensValidAfter: later(user.tokensValidAfter, last) }
  }

  /**
   * Returns the active user with this external id, and creates it if the app does not have it yet.
   * Returns null for an inactive user. Throws the gate's reason when the gate refuses a new user.
   */
  async function provision(name: {
    clientId: string
    externalUserId: string
  }): Promise<User | null> {
    const subjects = await users.admitSubjects([name])
    const subject = subjects.get(authId(name.clientId, name.externalUserId))
    const user = subject ? await users.findById(subject.appId, subject.userId) : null
    return user?.status === 'active' ? user : null
  }

  /** Returns the user of a user JWT. Throws TOKEN_INVALID as `userToken` does. */
  const userByToken = async (token: string): Promise<UserCaller> => (await userToken(token)).caller

  /**
   * Returns the account as its own end user of the app; null if the app is unknown or the account
   * has never logged in to it. Throws EDIT_FORBIDDEN for a deactivated user.
   */
  async function ofAccount(account: AccountCaller, clientId: ClientId): Promise<SelfCaller | null> {
    const client = await clients.findPublic(clientId)
    const external = accountSubject(account.accountId)
    const user = client && (await users.findByExternal({ app: client.appId, external }))
    if (!client || !user) return null
    if (user.status !== 'active')
      throw new DomainError('EDIT_FORBIDDEN', 'the app has ended your access; ask its owner')
    return {
      kind: 'self',
      appId: user.appId,
      clientId: client.publicClientId,
      userId: user.id,
      externalUserId: user.externalUserId,
      accountId: account.accountId,
    }
  }

  /**
   * Returns the M2M client of a machine token, with the scopes that both have. Throws TOKEN_INVALID
   * otherwise.
   */
  async function m2mByToken(token: string): Promise<M2mCaller> {
    const jwt = await jwts.verify(token, ['machine'])
    const caller = await clients.findM2m(jwt.clientId)
    if (!caller) throw invalidToken()
    return {
      ...caller,
      scopes: caller.scopes.filter((scope) => jwt.scopes.includes(scope)),
      grants: joinGrants(readLineage(jwt)),
    }
  }

  return { userToken, ofJwt, findUser, provision, userByToken, ofAccount, m2mByToken }
}

export type Subjects = ReturnType<typeof createSubjects>

// A missing user means null. Other errors, such as an unavailable database, are rethrown.
function noneIfUnknown(error: unknown): null {
  if (error instanceof DomainError && ['NOT_FOUND', 'REQUEST_INVALID'].includes(error.reason))
    return null
  throw error
}

const later = (one: Date | null, other: Date | null): Date | null =>
  one && other ? (one > other ? one : other) : (one ?? other)

/** Returns the account of an external id; undefined for an integrator's user. */
export const accountOfSubject = (externalUserId: string): string | undefined =>
  /^user:(.+)$/.exec(externalUserId)?.[1]
