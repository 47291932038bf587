import { DomainError } from '../../proto/errors.ts'
import type { M2mCaller, UserCaller } from '../rpc/callers.ts'
import type { Apps } from '../identity/apps/apps.ts'
import type { Users } from '../identity/users/users.ts'
import type { Keys } from '../keys/service.ts'
import { type Jwts, invalidToken } from './issuer/jwt.ts'
import { chooseScopes } from './scopes.ts'
import type { Subjects } from './subjects.ts'
import type { IssuedToken, TokenSubject } from './types.ts'

export interface TokensDeps {
  readonly userTtlSeconds: number
  readonly machineTtlSeconds: number
  readonly jwts: Jwts
  readonly subjects: Subjects
  readonly apps: Apps
  readonly users: Users
  readonly keys: Keys
}

/** Scopes of sign-in or of another grant; a plain client_credentials request never gets them (decision 18). */
const neverPlain = new Set(['openid', 'sign:job', 'sign:mint_user_token'])
const userScopeDefault = 'sign:job'

/** Machine and user JWTs outside of any login, and whom a JWT stands for. */
export function createTokens(deps: TokensDeps) {
  const { jwts, subjects, apps, users, keys } = deps

  /** RFC 6749 section 4.4. Without a scope: all builder scopes of the client. */
  async function issueMachine(
    caller: M2mCaller,
    requested: string | undefined,
  ): Promise<IssuedToken> {
    const grantable = caller.scopes.filter((scope) => !neverPlain.has(scope))
    const scope = chooseScopes(requested, { grantable, fallback: grantable })
    return jwts.sign({
      sub: caller.m2mClientId,
      clientId: caller.m2mClientId,
      scope,
      use: 'machine',
      ttlSeconds: deps.machineTtlSeconds,
    })
  }

  /** A user JWT for an active user. Scopes are those of the public client (decision 14). */
  async function mintUser(
    caller: M2mCaller,
    externalUserId: string,
    requested: string | undefined,
  ): Promise<IssuedToken> {
    const scope = userScope(caller.publicScopes, requested)
    const user = await users.getActive(caller.appId, externalUserId)
    return signUser(
      { userId: user.id, clientId: caller.clientId, externalUserId: user.externalUserId },
      {
        scope,
        notBefore: user.tokensValidAfter,
      },
    )
  }

  /** A user JWT for the owner of a key: first 401 for a key that does not work, then 404 for one that works elsewhere. */
  async function exchangeApiKey(
    presented: string,
    clientId: string,
    requested: string | undefined,
  ) {
    const owner = await keys.verify(presented)
    if (!owner) throw new DomainError('CREDENTIAL_INVALID', 'the API key is not valid')
    if (owner.clientId !== clientId)
      throw new DomainError('NOT_FOUND', 'no such app for this credential')
    const scope = userScope(owner.publicScopes, requested)
    const token = await signUser(owner, { scope, notBefore: owner.tokensValidAfter })
    return { ...token, externalUserId: owner.externalUserId }
  }

  function userScope(publicScopes: readonly string[], requested: string | undefined): string {
    // Programmatic tokens never carry openid (decision 18).
    const grantable = publicScopes.filter((scope) => scope !== 'openid')
    return chooseScopes(requested, { grantable, fallback: [userScopeDefault] })
  }

  function signUser(
    subject: TokenSubject,
    options: { scope: string; notBefore: Date | null },
  ): Promise<IssuedToken> {
    return jwts.sign({
      sub: subject.userId,
      clientId: subject.clientId,
      externalUserId: subject.externalUserId,
      scope: options.scope,
      use: 'user',
      voidedBefore: options.notBefore,
      ttlSeconds: deps.userTtlSeconds,
    })
  }

  /** The M2M client a machine token was issued to, with the scopes that both still have. */
  async function m2mByToken(token: string): Promise<M2mCaller> {
    const jwt = await jwts.verify(token, ['machine'])
    const caller = await apps.findM2m(jwt.clientId)
    if (!caller) throw invalidToken()
    return { ...caller, scopes: caller.scopes.filter((scope) => jwt.scopes.includes(scope)) }
  }

  /** The user a user JWT was issued to, while the user is active and the token not voided. */
  const userByToken = async (token: string): Promise<UserCaller> =>
    (await subjects.userToken(token)).caller

  return { issueMachine, mintUser, exchangeApiKey, m2mByToken, userByToken }
}

export type Tokens = ReturnType<typeof createTokens>
