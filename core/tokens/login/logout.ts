import { compactVerify, decodeProtectedHeader, errors } from 'jose'
import type { Users } from '../../identity/users/users.ts'
import { appId, isUuid, userId } from '../../platform/ids.ts'
import type { Pool } from '../../lib/sql.ts'
import * as store from './authorization-store.ts'
import type { SigningKeys } from '../issuer/signing-keys.ts'

export interface LogoutsDeps {
  readonly pool: Pool
  readonly issuer: string
  readonly signingKeys: SigningKeys
  readonly users: Users
}

export interface LogoutRequest {
  readonly idTokenHint?: string | undefined
  readonly clientId?: string | undefined
  readonly postLogoutRedirectUri?: string | undefined
}

/** OpenID Connect RP-Initiated Logout 1.0: who asks, and where the browser may go afterwards. */
export function createLogouts({ pool, issuer, signingKeys, users }: LogoutsDeps) {
  async function check(request: LogoutRequest) {
    const hint = request.idTokenHint === undefined ? null : await readHint(request.idTokenHint)
    // Section 2: a client_id that is not the hint's audience makes the hint worthless.
    const agreed =
      hint !== null && (request.clientId === undefined || request.clientId === hint.clientId)
    const clientId = request.clientId ?? hint?.clientId
    const client = clientId === undefined ? null : await store.findLoginClient(pool, clientId)
    const wanted = request.postLogoutRedirectUri
    const registered =
      wanted !== undefined && (client?.post_logout_redirect_uris ?? []).includes(wanted)
    return {
      confirmed: agreed,
      appName: client?.app_name ?? '',
      postLogoutRedirectUri: registered ? wanted : undefined,
      accountId: agreed && client ? await accountOf(client, hint.subject) : undefined,
    }
  }

  /** An ID token of ours, expired or not (section 4); null for anything else. */
  async function readHint(token: string): Promise<{ clientId: string; subject: string } | null> {
    const claims = await verifiedClaims(token)
    if (claims?.['iss'] !== issuer || claims['token_use'] !== 'id') return null
    const { aud, sub } = claims
    return typeof aud === 'string' && typeof sub === 'string'
      ? { clientId: aud, subject: sub }
      : null
  }

  async function verifiedClaims(token: string): Promise<Record<string, unknown> | null> {
    try {
      const { alg, kid, typ } = decodeProtectedHeader(token)
      const found = kid === undefined ? null : await signingKeys.publicKey(kid)
      if (!found || found.alg !== alg || (typ !== undefined && typ !== 'JWT')) return null
      const { payload } = await compactVerify(token, found.key, { algorithms: [found.alg] })
      const claims: unknown = JSON.parse(Buffer.from(payload).toString('utf8'))
      return typeof claims === 'object' && claims !== null
        ? Object.fromEntries(Object.entries(claims))
        : null
    } catch (error) {
      if (
        error instanceof errors.JOSEError ||
        error instanceof TypeError ||
        error instanceof SyntaxError
      )
        return null
      throw error
    }
  }

  async function accountOf(
    client: store.LoginClient,
    subject: string,
  ): Promise<string | undefined> {
    const user = isUuid(subject)
      ? await users.findById(appId(client.app_id), userId(subject))
      : null
    return /^user:(.+)$/.exec(user?.externalUserId ?? '')?.[1]
  }

  return { check }
}

export type Logouts = ReturnType<typeof createLogouts>
