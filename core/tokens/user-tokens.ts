import { DomainError } from '../../proto/errors.ts'
import { Scope } from '../../proto/scopes.ts'
import type { Users } from '../identity/users/users.ts'
import type { Keys } from '../keys/keys.ts'
import { joinGrants, keyGrant } from '../shared/lineage/grants.ts'
import type { M2mCaller, MemberCaller } from '../rpc/callers.ts'
import type { ExchangeAudit } from './grants/exchange-audit.ts'
import type { Jwts } from './issuer/jwt.ts'
import { chooseScopes } from './scopes.ts'
import type { IssuedToken, TokenSubject } from './types.ts'

export interface UserTokensDeps {
  readonly ttlSeconds: number
  readonly jwts: Jwts
  readonly users: Users
  readonly keys: Pick<Keys, 'find' | 'ownerOf'>
  readonly exchangeAudit: ExchangeAudit
}

interface ApiKeyExchange {
  readonly apiKey: string
  readonly clientId: string
  readonly scope?: string | undefined
}

/** User JWTs without a login: minted by the app's backend, or exchanged for an API key. */
export function createUserTokens(deps: UserTokensDeps) {
  const { ttlSeconds, jwts, users, keys, exchangeAudit } = deps

  /**
   * Mints a JWT for an active user, with scopes of the app's public client (decision 14). Throws
   * NOT_FOUND for an inactive user.
   */
  async function mint(
    caller: M2mCaller,
    externalUserId: string,
    requestedScope: string | undefined,
  ): Promise<IssuedToken> {
    const scope = userScope(caller.publicScopes, requestedScope)
    const user = await users.getActive(caller.appId, externalUserId)
    return sign(
      { userId: user.id, clientId: caller.clientId, externalUserId: user.externalUserId },
      { scope, voidedBefore: user.tokensValidAfter, grants: caller.grants },
    )
  }

  /**
   * Mints a JWT for a call that a member tries as a user. Throws NOT_FOUND for an inactive user.
   */
  async function mintForTest(
    { appId, clientId }: MemberCaller,
    externalUserId: string,
  ): Promise<IssuedToken> {
    const user = await users.getActive(appId, externalUserId)
    return jwts.sign({
      sub: user.id,
      clientId,
      externalUserId: user.externalUserId,
      scope: Scope.signJob,
      use: 'user',
      voidedBefore: user.tokensValidAfter,
      ttlSeconds: testTtlSeconds,
    })
  }

  /**
   * Exchanges a key for a user JWT of the key's user. Throws CREDENTIAL_INVALID for an invalid key,
   * NOT_FOUND for another app's key.
   */
  async function exchangeApiKey(
    { apiKey, clientId, scope: requestedScope }: ApiKeyExchange,
    context: { readonly correlationId: string },
  ) {
    const key = await keys.find(apiKey)
    if (!key) throw invalidKey()
    if (key.clientId !== clientId)
      throw new DomainError('NOT_FOUND', 'no such app for this credential')
    const actor = { name: key.keyId, context }
    const attempt = { appId: key.appId, action: 'api_key_token_exchange', actor }
    return exchangeAudit.record(attempt, async () => {
      const scope = userScope(key.publicScopes, requestedScope)
      const owner = await keys.ownerOf(key)
      if (!owner) throw invalidKey()
      const token = await sign(owner, {
        scope,
        voidedBefore: owner.tokensValidAfter,
        grants: joinGrants(owner.grants, [keyGrant(owner.keyId)]),
      })
      return { ...token, externalUserId: owner.externalUserId }
    })
  }

  const sign = (
    subject: TokenSubject,
    options: { scope: string; voidedBefore: Date | null; grants: readonly string[] },
  ): Promise<IssuedToken> =>
    jwts.sign({
      sub: subject.userId,
      clientId: subject.clientId,
      externalUserId: subject.externalUserId,
      scope: options.scope,
      use: 'user',
      voidedBefore: options.voidedBefore,
      grants: options.grants,
      ttlSeconds,
    })

  return { mint, mintForTest, exchangeApiKey }
}

const testTtlSeconds = 60

const invalidKey = (): DomainError =>
  new DomainError('CREDENTIAL_INVALID', 'the API key is not valid')

export type UserTokens = ReturnType<typeof createUserTokens>

function userScope(publicScopes: readonly string[], requested: string | undefined): string {
  // A token without a login never carries openid (decision 18).
  const grantable = publicScopes.filter((scope) => scope !== Scope.openid)
  return chooseScopes(requested, { grantable, fallback: [Scope.signJob] })
}
