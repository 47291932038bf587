import { compactVerify, decodeProtectedHeader, errors } from 'jose'
import type { Clients, PublicClient } from '../../identity/apps/clients.ts'
import type { Users } from '../../identity/users/users.ts'
import { isUuid, userId } from '../../platform/ids.ts'
import type { SigningKeys } from '../issuer/signing-keys.ts'
import { accountOfSubject } from '../subjects.ts'

export interface LogoutsDeps {
  readonly clients: Pick<Clients, 'findPublicOrDisabled'>
  readonly issuer: string
  readonly signingKeys: SigningKeys
  readonly users: Users
}

export interface LogoutRequest {
  readonly idTokenHint?: string | undefined
  readonly clientId?: string | undefined
  readonly postLogoutRedirectUri?: string | undefined
}

/** OpenID Connect RP-Initiated Logout 1.0: whose logout it is, and where the browser may go afterwards. */
export function createLogouts({ clients, issuer, signingKeys, users }: LogoutsDeps) {
  async function check(request: LogoutRequest) {
    const hint = request.idTokenHint === undefined ? null : await readHint(request.idTokenHint)
    const clientId = request.clientId ?? hint?.clientId
    // RP-Initiated Logout section 2: a client_id that is not the hint's audience makes the hint worthless.
    const isConfirmed = hint !== null && hint.clientId === clientId
    const client = clientId === undefined ? null : await clients.findPublicOrDisabled(clientId)
    return {
      confirmed: isConfirmed,
      appName: client?.appName ?? '',
      postLogoutRedirectUri: registeredUri(client, request.postLogoutRedirectUri),
      accountId: isConfirmed && client ? await accountOf(client, hint.subject) : undefined,
    }
  }

  /** Reads an ID token of this issuer, expired or not (RP-Initiated Logout section 4); null for anything else. */
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
      const known = kid === undefined ? null : await signingKeys.findPublicKey(kid)
      if (!known || known.alg !== alg || (typ !== undefined && typ !== 'JWT')) return null
      const { payload } = await compactVerify(token, known.key, { algorithms: [known.alg] })
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

  async function accountOf(client: PublicClient, subject: string): Promise<string | undefined> {
    const user = isUuid(subject) ? await users.findById(client.appId, userId(subject)) : null
    return user ? accountOfSubject(user.externalUserId) : undefined
  }

  return { check }
}

export type Logouts = ReturnType<typeof createLogouts>

const registeredUri = (client: PublicClient | null, uri: string | undefined): string | undefined =>
  uri !== undefined && client?.postLogoutRedirectUris.includes(uri) ? uri : undefined
