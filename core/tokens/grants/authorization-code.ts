import { hash } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { GrantType } from '../../../proto/oauth.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { Clients, PublicClient } from '../../identity/apps/clients.ts'
import type { LoginAdmission } from '../../identity/members/login-policy.ts'
import { equalSecrets } from '../../lib/crypto.ts'
import type { Db } from '../../lib/sql.ts'
import * as store from '../login/store.ts'
import type { Redemption, TokenFamilies } from '../login/token-families.ts'
import { splitScopes, stillAllowed } from '../scopes.ts'
import type { Subjects } from '../subjects.ts'
import type { Shared } from '../../shared/shared.ts'

export interface AuthorizationCodeRequest {
  readonly clientId: string
  readonly code: string
  readonly redirectUri: string
  readonly codeVerifier: string
}

type Deps = Shared & {
  readonly clients: Pick<Clients, 'findPublic'>
  readonly subjects: Subjects
  readonly families: TokenFamilies
  readonly loginPolicy: Pick<LoginAdmission, 'admitsNew'>
}

/** RFC 7636 section 4.1. */
const verifierSyntax = /^[A-Za-z0-9\-._~]{43,128}$/

/** RFC 6749 section 4.1.3 with PKCE (RFC 7636), method S256 only. */
export function createAuthorizationCodeGrant(deps: Deps) {
  const { clients, subjects, families, loginPolicy, now } = deps

  async function redeem(request: AuthorizationCodeRequest) {
    const client = await clients.findPublic(request.clientId)
    if (!client) throw new DomainError('CREDENTIAL_INVALID', 'unknown client')
    if (!client.grantTypes.includes(GrantType.authorizationCode)) {
      throw new DomainError('CLIENT_UNAUTHORIZED', 'this client may not use authorization codes')
    }
    return families.redeem((db) => step(db, client, request))
  }

  async function step(
    db: Db,
    client: PublicClient,
    request: AuthorizationCodeRequest,
  ): Promise<Redemption> {
    const codeHash = hash('sha256', request.code, 'buffer')
    const code = await store.lockCode(db, codeHash)
    if (!code || code.client_id !== client.clientId) return { refusal: invalidCode() }
    if (code.consumed_at !== null) return endReused(db, client, code)
    if (code.expires_at <= now() || !fits(code, request)) return { refusal: invalidCode() }
    const { grants } = code
    const user = await subjects.findUser(db, {
      appId: client.appId,
      userId: code.user_id,
      issuedAt: code.auth_time,
      grants,
    })
    const scope = stillAllowed(code.scope, client.scopes)
    const isAdmitted = user !== null && (await loginPolicy.admitsNew(db, client, code.account_id))
    if (!isAdmitted || scope === '') return { refusal: invalidCode() }
    await store.consumeCode(db, codeHash, now())
    const login = { id: code.family_id, user, authTime: code.auth_time, grants }
    const expiresAt = await families.begin(db, login)
    const family = {
      ...login,
      clientId: client.clientId,
      publicClientId: client.publicClientId,
      accountId: code.account_id,
      scope,
      nonce: code.nonce,
    }
    // OpenID Connect Core section 11: a login outlives its access token only with the person's
    // consent to offline_access.
    const isRefreshable =
      client.grantTypes.includes(GrantType.refreshToken) &&
      splitScopes(scope).includes(Scope.offlineAccess)
    if (!isRefreshable) return { family, refreshToken: undefined }
    return { family, refreshToken: await families.addRefreshToken(db, family, expiresAt) }
  }

  const endReused = (db: Db, client: PublicClient, code: store.CodeRow): Promise<Redemption> =>
    families.endReused(
      db,
      { id: code.family_id, cause: 'code_reused', actor: client.clientId },
      invalidCode(),
    )

  return { redeem }
}

export type AuthorizationCodeGrant = ReturnType<typeof createAuthorizationCodeGrant>

const fits = (code: store.CodeRow, { redirectUri, codeVerifier }: AuthorizationCodeRequest) =>
  code.redirect_uri === redirectUri && proves(codeVerifier, code.code_challenge)

const proves = (verifier: string, challenge: string): boolean =>
  verifierSyntax.test(verifier) && equalSecrets(hash('sha256', verifier, 'base64url'), challenge)

const invalidCode = (): DomainError =>
  new DomainError('GRANT_INVALID', 'the code, its redirect_uri or its code_verifier is not valid')
