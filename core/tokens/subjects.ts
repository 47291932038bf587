import type { UserCaller } from '../rpc/callers.ts'
import type { Apps } from '../identity/apps/apps.ts'
import type { Users } from '../identity/users/users.ts'
import type { User } from '../identity/types.ts'
import { appId, isClientId, isUuid, userId } from '../platform/ids.ts'
import { secondsOf } from '../lib/time.ts'
import { type Jwts, type VerifiedJwt, invalidToken } from './issuer/jwt.ts'

export interface SubjectsDeps {
  readonly jwts: Jwts
  readonly apps: Apps
  readonly users: Users
}

/** A live token together with the active user it was issued for. */
export interface UserToken {
  readonly jwt: VerifiedJwt
  readonly user: User
  readonly caller: UserCaller
}

/** For whom a token stands now: its user may have been deactivated since. */
export function createSubjects({ jwts, apps, users }: SubjectsDeps) {
  /** TOKEN_INVALID unless `token` is a live user JWT of an active user. */
  const userToken = async (token: string): Promise<UserToken> =>
    ofUser(await jwts.verify(token, ['user']))

  /** TOKEN_INVALID when the user behind a user or signer JWT is not active, or voided it. */
  async function ofUser(jwt: VerifiedJwt): Promise<UserToken> {
    const { clientId } = jwt
    const client = isClientId(clientId) ? await apps.findPublic(clientId) : null
    const user = client ? await userOf(jwt, client.app_id) : null
    const validAfter = user?.tokensValidAfter ?? null
    const voided = validAfter !== null && jwt.iat < secondsOf(validAfter)
    if (!isClientId(clientId) || !user || user.status !== 'active' || voided) throw invalidToken()
    return {
      jwt,
      user,
      caller: {
        kind: 'user',
        appId: user.appId,
        clientId,
        userId: user.id,
        externalUserId: user.externalUserId,
        scopes: jwt.scopes,
      },
    }
  }

  // A signer JWT's subject is the integrator's id, a user JWT's is ours (decision 9).
  async function userOf(jwt: VerifiedJwt, app: string): Promise<User | null> {
    if (jwt.use === 'signer') return users.get(appId(app), jwt.sub).catch(() => null)
    return isUuid(jwt.sub) ? users.findById(appId(app), userId(jwt.sub)) : null
  }

  return { userToken, ofUser }
}

export type Subjects = ReturnType<typeof createSubjects>
