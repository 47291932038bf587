import { randomUUID } from 'node:crypto'
import { SignJWT, errors, jwtVerify } from 'jose'
import { DomainError } from '../../proto/errors.ts'
import type { M2mCaller, UserCaller } from '../callers.ts'
import type { Apps } from '../identity/apps.ts'
import type { Users } from '../identity/service.ts'
import { m2mScopes } from '../identity/types.ts'
import { type UserId, appId, isClientId, isUuid, userId } from '../ids.ts'
import type { Keys } from '../keys/service.ts'
import { type Now, secondsOf } from '../lib/time.ts'
import type { SigningKeys } from './signing-keys.ts'
import { type IssuedToken, type TokenSubject, type TokenUse, signingAlgorithms } from './types.ts'

export interface TokensDeps {
  readonly issuer: string
  readonly userTtlSeconds: number
  readonly machineTtlSeconds: number
  readonly signingKeys: SigningKeys
  readonly apps: Apps
  readonly users: Users
  readonly keys: Keys
  readonly now: Now
}

/** Scopes of sign-in or of another grant; a plain client_credentials request never gets them (decision 18). */
const neverPlain = new Set(['openid', 'sign:job', 'sign:mint_user_token'])
const userScopeDefault = 'sign:job'
const scopeSyntax = /^[\x21\x23-\x5b\x5d-\x7e]+$/
const scopeMax = 1_000

/** Issues and verifies the issuer's JWTs. */
export function createTokens(deps: TokensDeps) {
  const { issuer, signingKeys, apps, users, keys, now } = deps

  /** RFC 6749 section 4.4. Without a scope: all builder scopes of the client. */
  async function issueMachine(caller: M2mCaller, requested: string | undefined): Promise<IssuedToken> {
    const grantable = caller.scopes.filter((scope) => !neverPlain.has(scope))
    const scope = chooseScopes(requested, { grantable, fallback: grantable })
    return sign({ sub: caller.m2mClientId, clientId: caller.m2mClientId, scope, use: 'machine' }, deps.machineTtlSeconds)
  }

  /** A user JWT for an active user. Scopes are those of the public client (decision 14). */
  async function mintUser(caller: M2mCaller, externalUserId: string, requested: string | undefined): Promise<IssuedToken> {
    const scope = await userScope(caller.clientId, requested)
    const user = await users.getActive(caller.appId, externalUserId)
    return signUser({ userId: user.id, clientId: caller.clientId, externalUserId: user.externalUserId }, {
      scope, notBefore: user.tokensValidAfter,
    })
  }

  /** A user JWT for the owner of a key: first 401 for a key that does not work, then 404 for one that works elsewhere. */
  async function exchangeApiKey(presented: string, clientId: string, requested: string | undefined) {
    const owner = await keys.verify(presented)
    if (!owner) throw new DomainError('CREDENTIAL_INVALID', 'the API key is not valid')
    if (owner.clientId !== clientId) throw new DomainError('NOT_FOUND', 'no such app for this credential')
    const scope = await userScope(owner.clientId, requested)
    const user = await users.findById(owner.appId, owner.userId)
    const token = await signUser(owner, { scope, notBefore: user?.tokensValidAfter ?? null })
    return { ...token, externalUserId: owner.externalUserId }
  }

  async function userScope(clientId: string, requested: string | undefined): Promise<string> {
    const client = await apps.findPublic(clientId)
    // Programmatic tokens never carry openid (decision 18).
    const grantable = (client?.scopes ?? []).filter((scope) => scope !== 'openid')
    return chooseScopes(requested, { grantable, fallback: [userScopeDefault] })
  }

  function signUser(subject: TokenSubject, options: { scope: string; notBefore: Date | null }): Promise<IssuedToken> {
    return sign({
      sub: subject.userId, clientId: subject.clientId, externalUserId: subject.externalUserId, scope: options.scope, use: 'user',
      issuedAt: Math.max(secondsOf(now()), options.notBefore ? secondsOf(options.notBefore) : 0),
    }, deps.userTtlSeconds)
  }

  async function sign(token: { sub: string; clientId: string; externalUserId?: string; scope: string; use: TokenUse; issuedAt?: number }, ttlSeconds: number): Promise<IssuedToken> {
    const { kid, alg, key } = await signingKeys.active()
    const iat = secondsOf(now())
    const claims = {
      client_id: token.clientId, azp: token.clientId, scope: token.scope, token_use: token.use,
      ...(token.externalUserId === undefined ? {} : { external_user_id: token.externalUserId }),
    }
    const accessToken = await new SignJWT(claims)
      .setProtectedHeader({ alg, kid, typ: 'at+jwt' })
      .setIssuer(issuer).setAudience(issuer).setSubject(token.sub).setJti(randomUUID())
      .setIssuedAt(token.issuedAt ?? iat).setNotBefore(iat).setExpirationTime(iat + ttlSeconds)
      .sign(key)
    return { accessToken, tokenType: 'Bearer', expiresIn: ttlSeconds, scope: token.scope }
  }

  /** The claims of a live token of ours with that use. TOKEN_INVALID for anything else, without saying why. */
  async function verify(token: string, use: TokenUse) {
    try {
      const { payload } = await jwtVerify(token, async (header) => {
        const found = header.kid === undefined ? null : await signingKeys.publicKey(header.kid)
        if (!found || found.alg !== header.alg) throw new errors.JWKSNoMatchingKey()
        return found.key
      }, {
        issuer, audience: issuer, typ: 'at+jwt', algorithms: [...signingAlgorithms], currentDate: now(),
        requiredClaims: ['exp', 'iat', 'jti', 'sub', 'client_id', 'token_use'],
      })
      if (payload['token_use'] !== use) throw invalidToken()
      return payload
    } catch (error) {
      if (error instanceof errors.JOSEError) throw invalidToken(error)
      throw error
    }
  }

  /** The M2M client a machine token was issued to, with the scopes that both still have. */
  async function m2mByToken(token: string): Promise<M2mCaller> {
    const payload = await verify(token, 'machine')
    const caller = await apps.findM2m(String(payload['client_id']))
    if (!caller) throw invalidToken()
    const scopes = String(payload['scope'] ?? '').split(' ')
    return { ...caller, scopes: caller.scopes.filter((scope) => scopes.includes(scope)) }
  }

  /** The user a user JWT was issued to, while the user is active and the token not voided. */
  async function userByToken(token: string): Promise<UserCaller> {
    const payload = await verify(token, 'user')
    const clientId = String(payload['client_id'])
    const client = isClientId(clientId) ? await apps.findPublic(clientId) : null
    const user = client && isUuid(String(payload.sub)) ? await users.findById(appId(client.app_id), toUserId(payload.sub)) : null
    const validAfter = user?.tokensValidAfter ?? null
    const voided = validAfter !== null && (payload.iat ?? 0) < secondsOf(validAfter)
    if (!client || !isClientId(clientId) || !user || user.status !== 'active' || voided) throw invalidToken()
    return {
      kind: 'user', appId: user.appId, clientId, userId: user.id, externalUserId: user.externalUserId,
      scopes: String(payload['scope'] ?? '').split(' '),
    }
  }

  return { issueMachine, mintUser, exchangeApiKey, m2mByToken, userByToken }
}

export type Tokens = ReturnType<typeof createTokens>

const toUserId = (sub: unknown): UserId => userId(String(sub))

const invalidToken = (cause?: unknown): DomainError =>
  new DomainError('TOKEN_INVALID', 'the token is not valid, or has expired', { cause })

/** Every scope that a client may be granted, for the discovery document. */
export const grantableScopes = [...m2mScopes.filter((scope) => !neverPlain.has(scope)), userScopeDefault]

function chooseScopes(requested: string | undefined, { grantable, fallback }: { grantable: readonly string[]; fallback: readonly string[] }): string {
  if (requested === undefined) return fallback.filter((scope) => grantable.includes(scope)).join(' ')
  if (requested.length > scopeMax) throw new DomainError('SCOPE_INVALID', `scope is longer than ${scopeMax} characters`)
  const scopes = [...new Set(requested.split(' ').filter(Boolean))]
  if (scopes.length === 0) throw new DomainError('REQUEST_INVALID', 'scope must name at least one scope, or be left out')
  const refused = scopes.find((scope) => !scopeSyntax.test(scope) || !grantable.includes(scope))
  if (refused !== undefined) {
    const shown = scopeSyntax.test(refused) ? ` ${refused.slice(0, 64)}` : ''
    throw new DomainError('SCOPE_INVALID', `the scope${shown} may not be granted here; choose from: ${grantable.join(' ')}`)
  }
  return scopes.join(' ')
}
