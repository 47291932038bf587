import { DomainError } from '../../../proto/errors.ts'
import type { Allowances } from '../../allowances/service.ts'
import type { ClientId, ExternalUserId, AppId, UserId } from '../../platform/ids.ts'
import type { Pool } from '../../lib/sql.ts'
import { findPublicClient } from '../login/client-store.ts'
import type { Jwts } from '../issuer/jwt.ts'
import type { GrantsConfig } from './config.ts'

export interface SignerTokensDeps {
  readonly pool: Pool
  readonly jwts: Jwts
  readonly allowances: Pick<Allowances, 'balance'>
  readonly config: GrantsConfig
  readonly defaultSignerUrl: string
}

export interface SignerSubject {
  readonly appId: AppId
  readonly userId: UserId
  readonly clientId: ClientId
  readonly externalUserId: ExternalUserId
  readonly tokensValidAfter: Date | null
}

export const accessTokenType = 'urn:ietf:params:oauth:token-type:access_token'
export const jwtTokenType = 'urn:ietf:params:oauth:token-type:jwt'
const signScope = 'sign:job'

/** Signer JWTs with what a signer session tells about balance and signer (identity facts 2.5 and 6.3). */
export function createSignerTokens({
  pool,
  jwts,
  allowances,
  config,
  defaultSignerUrl,
}: SignerTokensDeps) {
  /**
   * SCOPE_INVALID when the app does not let its users sign; ALLOWANCE_EXHAUSTED when that is enforced.
   * `notAfter` (Unix seconds) is the end of the token that it was given for.
   */
  async function issue(subject: SignerSubject, notAfter?: number) {
    const client = await findPublicClient(pool, subject.clientId)
    if (!client?.scopes.includes(signScope)) {
      throw new DomainError('SCOPE_INVALID', `the app does not grant the scope ${signScope}`)
    }
    const balance = await allowances.balance(subject)
    if (config.enforceAllowance && !balance.hasAccess) {
      throw new DomainError('ALLOWANCE_EXHAUSTED', 'the allowance of this user is used up')
    }
    const token = await jwts.sign({
      sub: subject.externalUserId,
      clientId: subject.clientId,
      externalUserId: subject.externalUserId,
      scope: signScope,
      use: 'signer',
      ttlSeconds: config.signerTtlSeconds,
      voidedBefore: subject.tokensValidAfter,
      ...(notAfter === undefined ? {} : { notAfter }),
    })
    const signerUrl = client.dmz_url || defaultSignerUrl
    return {
      ...token,
      session: {
        hasAccess: balance.hasAccess,
        balanceUsdMicros: balance.balanceUsdMicros,
        lifetimeGrantedUsdMicros: balance.lifetimeGrantedUsdMicros,
        signerUrl,
        discoveryUrl:
          signerUrl === '' ? '' : `${signerUrl.replace(/\/+$/, '')}/discover-orchestrators`,
      },
    }
  }

  return { issue }
}

export type SignerTokens = ReturnType<typeof createSignerTokens>

const legacyAudiences = ['livepeer-clearinghouse', 'livepeer-remote-signer']

/** TARGET_INVALID unless every named audience and resource is one of `accepted` (a final slash aside). */
export function requireTargets(named: readonly string[], accepted: readonly string[]): void {
  const trimmed = accepted.map(withoutSlash)
  if (named.every((target) => trimmed.includes(withoutSlash(target)))) return
  throw new DomainError(
    'TARGET_INVALID',
    `audience and resource may only name ${accepted[0] ?? ''}`,
  )
}

export const signerTargets = (issuer: string): string[] => [issuer, ...legacyAudiences]

const withoutSlash = (text: string): string => text.replace(/\/+$/, '')
