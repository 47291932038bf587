import type { ClientId, ExternalUserId, UserId } from '../shared/ids.ts'

export type TokenUse = 'machine' | 'user' | 'signer' | 'id'
export const signingAlgorithms = ['RS256', 'ES256'] as const
export type SigningAlgorithm = (typeof signingAlgorithms)[number]

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
