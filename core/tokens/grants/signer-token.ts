import { DomainError } from '../../../proto/errors.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { Allowances } from '../../allowances/service.ts'
import type { Clients } from '../../identity/apps/clients.ts'
import { withoutFinalSlashes } from '../../lib/text/urls.ts'
import type { AppId, ClientId, ExternalUserId, UserId } from '../../platform/ids.ts'
import type { Jwts } from '../issuer/jwt.ts'

export interface SignerTokensDeps {
  readonly clients: Pick<Clients, 'findPublic'>
  readonly jwts: Jwts
  readonly allowances: Pick<Allowances, 'balanceOf'>
  readonly ttlSeconds: number
  /** Refuses users without anything left to spend. */
  readonly enforceAllowance: boolean
  /** The signer of apps that name none of their own. */
  readonly defaultSignerUrl: string
}

export interface SignerSubject {
  readonly appId: AppId
  readonly userId: UserId
  readonly clientId: ClientId
  readonly externalUserId: ExternalUserId
  readonly tokensValidAfter: Date | null
  /** What the token descends from. */
  readonly grants: readonly string[]
}

/** Signer JWTs, with the balance and the signer that a signer session names (docs/identity.md). */
export function createSignerTokens(deps: SignerTokensDeps) {
  const { clients, jwts, allowances, ttlSeconds, enforceAllowance, defaultSignerUrl } = deps

  /**
   * What an answer with a signer credential says beside it. SCOPE_INVALID when the app's public client lacks sign:job;
   * ALLOWANCE_EXHAUSTED when nothing is left and that is enforced.
   */
  async function sessionOf(subject: Omit<SignerSubject, 'tokensValidAfter' | 'grants'>) {
    const client = await clients.findPublic(subject.clientId)
    if (!client) throw ungranted()
    requireGranted(client.scopes)
    const balance = await allowances.balanceOf(subject)
    if (enforceAllowance && !balance.hasAccess) {
      throw new DomainError('ALLOWANCE_EXHAUSTED', 'the allowance of this user is used up')
    }
    const signerUrl = client.dmzUrl || defaultSignerUrl
    return {
      hasAccess: balance.hasAccess,
      balanceUsdMicros: balance.balanceUsdMicros,
      lifetimeGrantedUsdMicros: balance.lifetimeGrantedUsdMicros,
      signerUrl,
      discoveryUrl:
        signerUrl === '' ? '' : `${withoutFinalSlashes(signerUrl)}/discover-orchestrators`,
    }
  }

  /**
   * A signer JWT. Refuses as `sessionOf`. `notAfter` (Unix seconds) is the expiry of the token that it is exchanged for;
   * `decided` is called when nothing is left but the signature.
   */
  async function issue(
    subject: SignerSubject,
    { notAfter, decided }: { notAfter?: number | undefined; decided?: () => void } = {},
  ) {
    const session = await sessionOf(subject)
    decided?.()
    const token = await jwts.sign({
      sub: subject.externalUserId,
      clientId: subject.clientId,
      externalUserId: subject.externalUserId,
      scope: Scope.signJob,
      use: 'signer',
      ttlSeconds,
      voidedBefore: subject.tokensValidAfter,
      grants: subject.grants,
      ...(notAfter === undefined ? {} : { notAfter }),
    })
    return { ...token, session }
  }

  return { issue, sessionOf }
}

export type SignerTokens = ReturnType<typeof createSignerTokens>

const ungranted = (): DomainError =>
  new DomainError('SCOPE_INVALID', `the app does not grant the scope ${Scope.signJob}`)

/** SCOPE_INVALID unless the scopes of the app's public client hold sign:job. */
export function requireGranted(publicScopes: readonly string[]): void {
  if (!publicScopes.includes(Scope.signJob)) throw ungranted()
}

const legacyAudiences = ['livepeer-clearinghouse', 'livepeer-remote-signer']

/** TARGET_INVALID unless every audience and resource is one of `accepted`. Final slashes do not count. */
export function requireTargets(targets: readonly string[], accepted: readonly string[]): void {
  const trimmed = accepted.map(withoutFinalSlashes)
  if (targets.every((target) => trimmed.includes(withoutFinalSlashes(target)))) return
  throw new DomainError(
    'TARGET_INVALID',
    `audience and resource may only name ${accepted[0] ?? ''}`,
  )
}

/** What the audience and resource of a signer JWT may name. */
export const signerTargets = (issuer: string): string[] => [issuer, ...legacyAudiences]
