import { DomainError } from '../../../proto/errors.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { Allowances } from '../../balances/credit/allowances.ts'
import type { Clients } from '../../identity/apps/clients.ts'
import { withoutFinalSlashes } from '../../lib/text/urls.ts'
import type { AppId, ClientId, ExternalUserId, UserId } from '../../shared/ids.ts'
import type { Jwts } from '../issuer/jwt.ts'

export interface SignerTokensDeps {
  readonly clients: Pick<Clients, 'findPublic'>
  readonly jwts: Jwts
  readonly allowances: Pick<Allowances, 'balanceOf'>
  readonly ttlSeconds: number
  /** Whether users with nothing left to spend are refused. */
  readonly enforceAllowance: boolean
  /** Signer for apps that do not set their own. */
  readonly defaultSignerUrl: string
}

export interface SignerSubject {
  readonly appId: AppId
  readonly userId: UserId
  readonly clientId: ClientId
  readonly externalUserId: ExternalUserId
  readonly tokensValidAfter: Date | null
  /** Ids that the token descends from. */
  readonly grants: readonly string[]
}

/** The user's account refuses, with the code of the webhook. */
const exhausted = (code: string): string =>
  `this user can spend nothing (${code}): ${remedies[code] ?? 'give credit, or change the plan'}`

const remedies: Readonly<Record<string, string>> = {
  no_payment_method: 'add a payment method, or give credit',
  debt_ceiling_reached: 'pay the debt, or give credit',
}

/** Issues signer JWTs, with the balance and the signer's URL (docs/tokens.md). */
export function createSignerTokens(deps: SignerTokensDeps) {
  const { clients, jwts, allowances, ttlSeconds, enforceAllowance, defaultSignerUrl } = deps

  /**
   * Returns the balance and signer data that accompany a signer credential. Throws SCOPE_INVALID
   * when the app's public client lacks sign:job, ALLOWANCE_EXHAUSTED when nothing is left to spend
   * and `enforceAllowance` is set.
   */
  async function sessionOf(subject: Omit<SignerSubject, 'tokensValidAfter' | 'grants'>) {
    const client = await clients.findPublic(subject.clientId)
    if (!client) throw ungranted()
    requireGranted(client.scopes)
    const balance = await allowances.balanceOf(subject)
    if (enforceAllowance && !balance.canSpend)
      throw new DomainError('ALLOWANCE_EXHAUSTED', exhausted(balance.spendRefusal))
    const signerUrl = client.dmzUrl || defaultSignerUrl
    return {
      hasAccess: balance.hasAccess,
      canSpend: balance.canSpend,
      balanceUsdMicros: balance.balanceUsdMicros,
      lifetimeGrantedUsdMicros: balance.lifetimeGrantedUsdMicros,
      signerUrl,
      discoveryUrl:
        signerUrl === '' ? '' : `${withoutFinalSlashes(signerUrl)}/discover-orchestrators`,
    }
  }

  /**
   * Issues a signer JWT. Throws as `sessionOf` does. `notAfter` (Unix seconds) is the expiry of the
   * exchanged token. Calls `decided` when only the signature is left to do.
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

/** Throws SCOPE_INVALID unless the scopes of the app's public client include sign:job. */
export function requireGranted(publicScopes: readonly string[]): void {
  if (!publicScopes.includes(Scope.signJob)) throw ungranted()
}

const legacyAudiences = ['livepeer-clearinghouse', 'livepeer-remote-signer']

/**
 * Throws TARGET_INVALID unless every audience and resource is in `accepted`. Ignores final slashes.
 */
export function requireTargets(targets: readonly string[], accepted: readonly string[]): void {
  const trimmed = accepted.map(withoutFinalSlashes)
  if (targets.every((target) => trimmed.includes(withoutFinalSlashes(target)))) return
  throw new DomainError(
    'TARGET_INVALID',
    `audience and resource may only name ${accepted[0] ?? ''}`,
  )
}

/** Allowed audiences and resources of a signer JWT. */
export const signerTargets = (issuer: string): string[] => [issuer, ...legacyAudiences]
