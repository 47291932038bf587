import { DomainError } from '../../proto/errors.ts'
import type { Clients } from '../identity/apps/clients.ts'
import type { User } from '../identity/types.ts'
import type { Users } from '../identity/users/users.ts'
import type { Db } from '../lib/sql.ts'
import { secondsOf } from '../lib/time.ts'
import { type Grants, joinGrants } from '../platform/grants/grants.ts'
import { type AccountId, appId, authId, isUuid, userId } from '../platform/ids.ts'
import type { M2mCaller, UserCaller } from '../rpc/callers.ts'
import { type Jwts, type VerifiedJwt, invalidToken, lineageOf } from './issuer/jwt.ts'

export interface SubjectsDeps {
  readonly jwts: Jwts
  readonly clients: Pick<Clients, 'findM2m' | 'findPublic'>
  readonly users: Users
  readonly grants: Pick<Grants, 'findEnds'>
}

/** A valid token together with the active user that it was issued for. */
export interface UserToken {
  readonly jwt: VerifiedJwt
  readonly user: User
  readonly caller: UserCaller
}

/** The users and clients that tokens stand for, as they are now: they may have been deactivated since the token was issued. */
export function createSubjects({ jwts, clients, users, grants }: SubjectsDeps) {
  /** TOKEN_INVALID unless `token` is a valid user JWT of an active user. */
  const userToken = async (token: string): Promise<UserToken> =>
    ofJwt(await jwts.verify(token, ['user']))

  /** The user behind a user or signer JWT. TOKEN_INVALID when it is not active, or a deactivation voided the token. */
  async function ofJwt(jwt: VerifiedJwt): Promise<UserToken> {
    const client = await clients.findPublic(jwt.clientId)
    const user = client ? await userOf(jwt, client.appId) : null
    const validAfter = user?.tokensValidAfter ?? null
    const isVoided = validAfter !== null && jwt.iat < secondsOf(validAfter)
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

  // The subject of a signer JWT is the integrator's id, that of a user JWT is ours (decision 9).
  async function userOf(jwt: VerifiedJwt, app: User['appId']): Promise<User | null> {
    if (jwt.use === 'signer') return users.get(app, jwt.sub).catch(noneIfUnknown)
    return isUuid(jwt.sub) ? users.findById(app, userId(jwt.sub)) : null
  }

  /**
   * The active user of a code or an opaque token that was issued at `issuedAt`; null when a deactivation, or the end of
   * one of `grants`, has voided it. Its tokens are valid after all of those. Reads inside the transaction `db`.
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
   * The active user of that external id, created when the app does not have it yet; null when it is not active. The reason
   * of the gate when it refuses a new user.
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

  /** The user that a user JWT was issued for. TOKEN_INVALID as `userToken`. */
  const userByToken = async (token: string): Promise<UserCaller> => (await userToken(token)).caller

  /** The M2M client that a machine token was issued to, with the scopes that both have. TOKEN_INVALID otherwise. */
  async function m2mByToken(token: string): Promise<M2mCaller> {
    const jwt = await jwts.verify(token, ['machine'])
    const caller = await clients.findM2m(jwt.clientId)
    if (!caller) throw invalidToken()
    return {
      ...caller,
      scopes: caller.scopes.filter((scope) => jwt.scopes.includes(scope)),
      grants: joinGrants(lineageOf(jwt)),
    }
  }

  return { userToken, ofJwt, findUser, provision, userByToken, m2mByToken }
}

export type Subjects = ReturnType<typeof createSubjects>

// What is not there is no user; a database that does not answer says nothing about it.
function noneIfUnknown(error: unknown): null {
  if (error instanceof DomainError && ['NOT_FOUND', 'REQUEST_INVALID'].includes(error.reason))
    return null
  throw error
}

const later = (one: Date | null, other: Date | null): Date | null =>
  one && other ? (one > other ? one : other) : (one ?? other)

/** The external id of a dashboard account as an end user of an app. Integrators cannot provision such ids (decision 8). */
export const accountSubject = (account: AccountId): string => `user:${account}`

/** The account behind an external id; undefined for the id of an integrator's user. */
export const accountOfSubject = (externalUserId: string): string | undefined =>
  /^user:(.+)$/.exec(externalUserId)?.[1]
