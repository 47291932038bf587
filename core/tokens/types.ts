import type { ClientId, ExternalUserId, UserId } from '../platform/ids.ts'

export type TokenUse = 'machine' | 'user' | 'signer' | 'id'
export const signingAlgorithms = ['RS256', 'ES256'] as const
export type SigningAlgorithm = (typeof signingAlgorithms)[number]

/** The claims of every JWT that the issuer signs (decision 9, RFC 9068). */
export interface Claims {
  readonly sub: string
  readonly client_id: string
  readonly azp: string
  readonly scope: string
  readonly token_use: TokenUse
  readonly external_user_id?: string
  readonly jti: string
  readonly iat: number
  readonly nbf: number
  readonly exp: number
}

export interface IssuedToken {
  readonly accessToken: string
  readonly tokenType: 'Bearer'
  readonly expiresIn: number
  readonly scope: string
}

export interface TokenSubject {
  readonly userId: UserId
  readonly clientId: ClientId
  readonly externalUserId: ExternalUserId
}
