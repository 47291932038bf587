import { type ProtectedHeaderParameters, compactVerify, decodeProtectedHeader, errors } from 'jose'
import type { PublicClient } from '../../identity/apps/clients.ts'
import type { Users } from '../../identity/users/users.ts'
import { isUnderstood } from '../../lib/foreign-tokens/form.ts'
import { isUuid, userId } from '../../shared/ids.ts'
import type { SigningKeys } from '../issuer/signing-keys.ts'
import { accountOfSubject } from '../subjects.ts'

export interface IdTokenHintsDeps {
  readonly issuer: string
  readonly signingKeys: SigningKeys
  readonly users: Pick<Users, 'findById'>
}

/** Client and subject of an ID token that the client got earlier. The token may have expired. */
export interface IdTokenHint {
  readonly clientId: string
  readonly subject: string
}

/** Reads `id_token_hint` (OpenID Connect Core section 3.1.2.1, RP-Initiated Logout section 4). */
export function createIdTokenHints({ issuer, signingKeys, users }: IdTokenHintsDeps) {
  /** Reads an ID token of this issuer, expired or not. Returns null for anything else. */
  async function read(token: string): Promise<IdTokenHint | null> {
    const claims = await verifiedClaims(token)
    if (claims?.['iss'] !== issuer || claims['token_use'] !== 'id') return null
    const { aud, sub } = claims
    return typeof aud === 'string' && typeof sub === 'string'
      ? { clientId: aud, subject: sub }
      : null
  }

  async function verifiedClaims(token: string): Promise<Record<string, unknown> | null> {
    try {
      const header = decodeProtectedHeader(token)
      const { alg, kid } = header
      const known = kid === undefined ? null : await signingKeys.findPublicKey(kid)
      if (!known || known.alg !== alg || !hasIdTokenForm(header)) return null
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

  /**
   * Returns the account of a subject in the client's ID tokens; undefined for an integrator's user.
   */
  async function accountOf(
    { appId }: Pick<PublicClient, 'appId'>,
    subject: string,
  ): Promise<string | undefined> {
    const user = isUuid(subject) ? await users.findById(appId, userId(subject)) : null
    return user ? accountOfSubject(user.externalUserId) : undefined
  }

  return { read, accountOf }
}

const hasIdTokenForm = (header: ProtectedHeaderParameters): boolean =>
  (header.typ === undefined || header.typ === 'JWT') && isUnderstood({ header })

export type IdTokenHints = ReturnType<typeof createIdTokenHints>
