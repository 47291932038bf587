import { hash } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { equalSecrets } from '../../lib/crypto.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { type PublicClient, findActiveUser, findPublicClient } from '../login/client-store.ts'
import * as store from '../login/family-store.ts'
import type { Logins, Redeemed } from '../login/login.ts'

export interface AuthorizationCodeRequest {
  readonly clientId: string
  readonly code: string
  readonly redirectUri: string
  readonly codeVerifier: string
}

export interface AuthorizationCodeDeps {
  readonly pool: Pool
  readonly logins: Logins
  readonly now: Now
}

// RFC 7636 section 4.1.
const verifierSyntax = /^[A-Za-z0-9\-._~]{43,128}$/

/** RFC 6749 section 4.1.3 with PKCE, S256 only. */
export function createAuthorizationCodeGrant({ pool, logins, now }: AuthorizationCodeDeps) {
  async function redeem(request: AuthorizationCodeRequest) {
    const client = await findPublicClient(pool, request.clientId)
    if (!client) throw new DomainError('CREDENTIAL_INVALID', 'unknown client')
    if (!client.grant_types.includes('authorization_code')) {
      throw new DomainError('CLIENT_UNAUTHORIZED', 'this client may not use authorization codes')
    }
    return logins.redeem((db) => step(db, client, request))
  }

  async function step(
    db: Db,
    client: PublicClient,
    request: AuthorizationCodeRequest,
  ): Promise<Redeemed> {
    const codeHash = hash('sha256', request.code, 'buffer')
    const code = await store.lockCode(db, codeHash)
    if (!code || code.client_id !== client.client_id) return { refusal: invalidCode() }
    if (code.consumed_at !== null) return logins.end(db, code.family_id, invalidCode())
    if (
      code.expires_at <= now() ||
      code.redirect_uri !== request.redirectUri ||
      !proves(request.codeVerifier, code.code_challenge)
    ) {
      return { refusal: invalidCode() }
    }
    const user = await findActiveUser(db, { appId: client.app_id, id: code.user_id })
    if (!user || (user.tokensValidAfter !== null && user.tokensValidAfter > code.auth_time))
      return { refusal: invalidCode() }
    await store.consumeCode(db, codeHash, now())
    const expiresAt = await logins.begin(db, { id: code.family_id, user })
    const login = {
      familyId: code.family_id,
      user,
      clientId: client.client_id,
      accountId: code.account_id,
      scope: code.scope,
      authTime: code.auth_time,
      nonce: code.nonce,
    }
    const refreshable = client.grant_types.includes('refresh_token')
    return {
      login,
      refreshToken: refreshable ? await logins.addRefresh(db, login, expiresAt) : undefined,
    }
  }

  return { redeem }
}

export type AuthorizationCodeGrant = ReturnType<typeof createAuthorizationCodeGrant>

const proves = (verifier: string, challenge: string): boolean =>
  verifierSyntax.test(verifier) && equalSecrets(hash('sha256', verifier, 'base64url'), challenge)

const invalidCode = (): DomainError =>
  new DomainError('GRANT_INVALID', 'the code, its redirect_uri or its code_verifier is not valid')
