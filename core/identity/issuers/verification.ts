import { Scope } from '../../../proto/scopes.ts'
import { IssuerUnavailable, type IssuerKeys } from '../../lib/foreign-tokens/issuer-keys.ts'
import {
  type UnprovedToken,
  readAlgorithm,
  isForeignType,
  isUnderstood,
  readIssuer,
  openToken,
  readTexts,
  timeFault,
} from '../../lib/foreign-tokens/form.ts'
import { namedUser, userFault } from '../../lib/foreign-tokens/user-claim.ts'
import { toSeconds } from '../../lib/time.ts'
import { type ExternalUserId, externalUserId, subjectProblem } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { type Deployment, deploymentTrust, maySign } from './deployment.ts'
import { trustGrant } from './issuers.ts'
import * as store from './store.ts'

type Deps = Shared & {
  readonly keysOf: (trust: store.AppIssuer) => Pick<IssuerKeys, 'isSignedBy'>
  readonly deployment: Deployment
}

/**
 * The user identified by a valid token of a trusted issuer. The app may not have the user yet, and
 * the user may be inactive.
 */
export interface ForeignIdentity {
  readonly trust: store.AppIssuer
  readonly externalUserId: ExternalUserId
  /** Id that all credentials obtained with the token descend from. */
  readonly grant: string
  /** Unix seconds; 0 for a token without `iat`, which makes it older than any revocation. */
  readonly issuedAt: number
  readonly expiresAt: number
}

export const rules = [
  'form',
  'typ',
  'alg',
  'issuer',
  'audience',
  'client',
  'user',
  'expiry',
  'signature',
  'scope',
] as const
export type Rule = (typeof rules)[number]

/** The rule that rejects the token, or `unavailable` when the keys cannot be loaded now. */
export type Fault = Rule | 'unavailable'

export interface RuleOutcome {
  readonly rule: Rule
  readonly passed: boolean
  readonly detail: string
}

// Each candidate has its own keys, so this bounds the signature checks per token.
const candidatesMax = 3

/** Verifies tokens of issuers that apps trust (docs/decisions/39.md). */
export function createVerification({ pool, keysOf, deployment, now }: Deps) {
  /**
   * Returns the identity behind a token, only in the app `clientId` if it is given, or a fault. The
   * fault is `unavailable` when the issuer's keys cannot be loaded within `waitMs`.
   */
  async function verify(
    text: string,
    { clientId = null, waitMs }: { clientId?: string | null; waitMs: number },
  ): Promise<ForeignIdentity | { readonly fault: Fault }> {
    const token = openToken(text)
    if (!token) return { fault: 'form' }
    const formFault = faultOfForm(token)
    if (formFault) return { fault: formFault }
    const matching = matchingTrust(token, await trustFor(token, clientId))
    if (typeof matching === 'string') return { fault: matching }
    if (timeFault(token, toSeconds(now())) !== null) return { fault: 'expiry' }
    const proved = await prove(token, matching, waitMs)
    if ('fault' in proved) return proved
    if (!maySign(token, proved.trust)) return { fault: 'scope' }
    return identify(token, proved.trust)
  }

  /**
   * Lists the possible trusts of the token in the order of checking. With `clientId`, the app's own
   * trust comes before the deployment's; otherwise the deployment's comes first, so that no app can
   * pre-empt it.
   */
  async function trustFor(
    token: UnprovedToken,
    clientId: string | null,
  ): Promise<readonly store.AppIssuer[]> {
    const issuer = readIssuer(token)
    if (issuer === '') return []
    const ofApps = (await store.listByIssuer(pool, issuer, clientId)).toSorted(byRank)
    const ofDeployment = await deployment.trustFor(token, clientId)
    if (!ofDeployment) return ofApps
    return clientId === null ? [ofDeployment, ...ofApps] : [...ofApps, ofDeployment]
  }

  /**
   * Returns the first trust with a key that signed the token. Each trust has its own keys, so an
   * app's key set affects only that app. Checks the next trust only when the previous one certainly
   * did not sign: a trust added later can neither delay the token nor take it over while the keys
   * are unavailable.
   */
  async function prove(
    token: UnprovedToken,
    candidates: readonly store.AppIssuer[],
    waitMs: number,
  ): Promise<{ readonly trust: store.AppIssuer } | { readonly fault: Fault }> {
    for (const trust of candidates.slice(0, candidatesMax)) {
      const fault = await signatureFault(token, trust, waitMs)
      if (fault === null) return { trust }
      if (fault === 'unavailable') return { fault }
    }
    return { fault: 'signature' }
  }

  async function signatureFault(
    token: UnprovedToken,
    trust: store.AppIssuer,
    waitMs: number,
  ): Promise<'signature' | 'unavailable' | null> {
    try {
      return (await keysOf(trust).isSignedBy(trust, token, waitMs)) ? null : 'signature'
    } catch (error) {
      if (!(error instanceof IssuerUnavailable)) throw error
      return 'unavailable'
    }
  }

  /**
   * Applies every rule of the app's trust to a token, and reports each outcome even after a
   * failure.
   */
  async function examine(
    text: string,
    clientId: string,
  ): Promise<{
    readonly outcomes: readonly RuleOutcome[]
    readonly trust: store.AppIssuer | null
    readonly token: UnprovedToken | null
  }> {
    const token = openToken(text)
    if (!token)
      return {
        outcomes: [outcome('form', 'is not a JWT, or is too long')],
        trust: null,
        token: null,
      }
    const all = await trustFor(token, clientId)
    const passes = (trust: store.AppIssuer): number =>
      Number(isForAudience(token, trust)) + Number(isForClient(token, trust))
    const [trust = null] = all.toSorted((one, other) => passes(other) - passes(one))
    const form = formOutcomes(token, trust)
    const time = timeFault(token, toSeconds(now()))
    const expiry = outcome('expiry', time, printable(token.claims['exp']))
    if (!trust) return { outcomes: [...form, expiry], trust, token }
    const ofTrust = outcomesOf(token, trust)
    return {
      outcomes: [
        ...form,
        ...ofTrust,
        expiry,
        await signatureOutcome(trust, token),
        ...scopeOutcomes(token, trust),
      ],
      trust,
      token,
    }
  }

  async function signatureOutcome(
    trust: store.AppIssuer,
    token: UnprovedToken,
  ): Promise<RuleOutcome> {
    try {
      const isSigned = await keysOf(trust).isSignedBy(trust, token, examineMs)
      return outcome('signature', isSigned ? null : 'does not match any key of the issuer', 'sound')
    } catch (error) {
      if (!(error instanceof IssuerUnavailable)) throw error
      return outcome('signature', `cannot be checked: ${error.message}`)
    }
  }

  return { verify, examine }
}

export type Verification = ReturnType<typeof createVerification>

const examineMs = 4_000

function faultOfForm(token: UnprovedToken): Fault | null {
  if (!isUnderstood(token)) return 'form'
  if (!isForeignType(token.header['typ'])) return 'typ'
  return readAlgorithm(token) ? null : 'alg'
}

/** Sorts trusts that name a client first, then oldest first. */
const byRank = (one: store.AppIssuer, other: store.AppIssuer): number =>
  Number(one.clientClaim === null) - Number(other.clientClaim === null) ||
  one.createdAt.getTime() - other.createdAt.getTime() ||
  (one.id < other.id ? -1 : 1)

/** Returns the trusts that match the token's audience and client, at least one, or a fault. */
function matchingTrust(
  token: UnprovedToken,
  all: readonly store.AppIssuer[],
): readonly store.AppIssuer[] | Fault {
  if (all.length === 0) return 'issuer'
  const forAudience = all.filter((trust) => isForAudience(token, trust))
  if (forAudience.length === 0) return 'audience'
  const matching = forAudience.filter((trust) => isForClient(token, trust))
  return matching.length > 0 ? matching : 'client'
}

function identify(
  token: UnprovedToken,
  trust: store.AppIssuer,
): ForeignIdentity | { readonly fault: Fault } {
  const user = toUser(token, trust)
  if (user === null) return { fault: 'user' }
  const { iat, exp } = token.claims
  return {
    trust,
    externalUserId: user,
    grant: trustGrant(trust),
    issuedAt: typeof iat === 'number' && iat > 0 ? Math.floor(iat) : 0,
    expiresAt: Math.floor(Number(exp)),
  }
}

const isForAudience = ({ claims }: UnprovedToken, { audiences }: store.TrustRules): boolean =>
  audiences.length === 0 ||
  readTexts(claims['aud']).some((audience) => audiences.includes(audience))

// Own properties only, so that a claim name such as "constructor" matches nothing inherited.
const claimOf = ({ claims }: UnprovedToken, name: string): unknown =>
  Object.hasOwn(claims, name) ? claims[name] : undefined

const isForClient = (
  token: UnprovedToken,
  { clientClaim, clientValues }: store.TrustRules,
): boolean =>
  clientClaim === null ||
  readTexts(claimOf(token, clientClaim)).some((value) => clientValues.includes(value))

/**
 * Returns the user named by the token; null if there is none, or if the name is reserved or
 * malformed (decision 8).
 */
export function toUser(token: UnprovedToken, trust: store.TrustRules): ExternalUserId | null {
  const named = namedUser(token.claims, trust)
  return named !== null && subjectProblem(named) === null ? externalUserId(named) : null
}

function formOutcomes(token: UnprovedToken, trust: store.TrustRules | null): RuleOutcome[] {
  const { typ, alg } = token.header
  const typFault = isForeignType(typ) ? null : 'must be absent, JWT or at+jwt'
  const critFault = isUnderstood(token)
    ? null
    : 'must not name extensions: crit, or b64 that is not true'
  const algFault = readAlgorithm(token) ? null : 'must be RS256 or ES256'
  const issuerFault = trust ? null : 'is not trusted by this app'
  return [
    outcome('form', critFault, 'is a JWT'),
    outcome('typ', typFault, printable(typ)),
    outcome('alg', algFault, printable(alg)),
    outcome('issuer', issuerFault, printable(token.claims['iss'])),
  ]
}

function outcomesOf(token: UnprovedToken, trust: store.AppIssuer): RuleOutcome[] {
  const { audiences, clientClaim, clientValues, userClaim } = trust
  const client = clientClaim === null ? undefined : claimOf(token, clientClaim)
  return [
    outcome(
      'audience',
      isForAudience(token, trust) ? null : `must name one of ${audiences.join(', ')}`,
      audiences.length === 0 ? 'any' : `aud is ${printable(token.claims['aud'])}`,
    ),
    outcome(
      'client',
      isForClient(token, trust) ? null : `must be one of ${clientValues.join(', ')}`,
      clientClaim === null ? 'any' : `${clientClaim} is ${printable(client)}`,
    ),
    outcome(
      'user',
      toUser(token, trust) === null ? userFault(token.claims, userClaim) : null,
      `${userClaim} is ${printable(claimOf(token, userClaim))}`,
    ),
  ]
}

/** The scope rule applies only to the deployment's trust. */
function scopeOutcomes(token: UnprovedToken, trust: store.AppIssuer): RuleOutcome[] {
  if (trust.id !== deploymentTrust) return []
  const fault = maySign(token, trust) ? null : `must hold ${Scope.signJob}`
  return [outcome('scope', fault, printable(token.claims['scope']))]
}

const outcome = (rule: Rule, fault: string | null, value = ''): RuleOutcome => ({
  rule,
  passed: fault === null,
  detail: fault === null ? value : [value, fault].filter(Boolean).join(': '),
})

const printableMax = 200

/** Shows a token's value to people, cut short. */
const printable = (value: unknown): string =>
  value === undefined ? 'absent' : (JSON.stringify(value) ?? '').slice(0, printableMax)
