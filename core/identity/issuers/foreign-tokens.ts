import { DomainError } from '../../../proto/errors.ts'
import type { UnprovedToken } from '../../lib/foreign-tokens/form.ts'
import { isEditableClaim } from '../../lib/foreign-tokens/user-claim.ts'
import { toSeconds } from '../../lib/time.ts'
import { authId } from '../../shared/ids.ts'
import type { Clients } from '../apps/clients.ts'
import type { User } from '../types.ts'
import type { Users } from '../users/users.ts'
import type { TrustRules } from './store.ts'
import {
  type Fault,
  type ForeignIdentity,
  type RuleOutcome,
  type Verification,
  toUser,
} from './verification.ts'

export interface ForeignTokensDeps {
  readonly verification: Verification
  readonly clients: Pick<Clients, 'findPublic'>
  readonly users: Pick<Users, 'get' | 'findById' | 'admitForeignSubjects'>
}

/** A valid token of a trusted issuer, with the user that it identifies. */
export interface ForeignSubject extends ForeignIdentity {
  /** Null if the app does not have the user yet. */
  readonly user: User | null
  /** Scopes of the app's public client. They limit the use of the token. */
  readonly publicScopes: readonly string[]
}

export interface TokenCheck {
  readonly accepted: boolean
  readonly rules: readonly RuleOutcome[]
  readonly trustedIssuerId: string
  readonly externalUserId: string
  readonly userStatus: string
  readonly expiresAt: string
  /** Warnings about the rules, independent of the token. */
  readonly warnings: readonly string[]
}

/** Users who present a token of an issuer that their app trusts (docs/trusted-issuers.md). */
export function createForeignTokens({ verification, clients, users }: ForeignTokensDeps) {
  /**
   * Returns the user of the token, only in the app `clientId` if it is given, or a fault. The fault
   * is `user` for an inactive user, and for a token issued before the user's last deactivation.
   * Never provisions a user.
   */
  async function verify(
    token: string,
    options: { clientId?: string | null; waitMs: number },
  ): Promise<ForeignSubject | { readonly fault: Fault }> {
    const identity = await verification.verify(token, options)
    if ('fault' in identity) return identity
    const client = await clients.findPublic(identity.trust.clientId)
    if (!client) return { fault: 'issuer' }
    const user = await find(identity)
    if (user && isShutOut(user, identity)) return { fault: 'user' }
    return { ...identity, user, publicScopes: client.scopes }
  }

  /**
   * Returns the user, and creates it if the app does not have it yet. Throws the gate's reason when
   * the gate refuses a new user. Returns null if the new user is not active.
   */
  async function provision({ trust, externalUserId, user }: ForeignSubject): Promise<User | null> {
    if (user) return user
    const name = { clientId: trust.clientId, externalUserId }
    const subjects = await users.admitForeignSubjects([name])
    const subject = subjects.get(authId(name.clientId, name.externalUserId))
    const created = subject ? await users.findById(subject.appId, subject.userId) : null
    return created?.status === 'active' ? created : null
  }

  /**
   * Reports how the app `clientId` would treat the token. Changes nothing and provisions no user.
   */
  async function check(token: string, clientId: string): Promise<TokenCheck> {
    const { outcomes, trust, token: opened } = await verification.examine(token, clientId)
    const externalUserId = opened && trust ? toUser(opened, trust) : null
    const user = trust && externalUserId ? await find({ trust, externalUserId }) : null
    const verdict = await verify(token, { clientId, waitMs: checkMs })
    return {
      accepted: !('fault' in verdict),
      rules: outcomes,
      trustedIssuerId: trust?.id ?? '',
      externalUserId: externalUserId ?? '',
      userStatus: externalUserId === null ? '' : (user?.status ?? 'unknown'),
      expiresAt: opened ? expiryOf(opened) : '',
      warnings: warningsOf(trust),
    }
  }

  const find = ({
    trust,
    externalUserId,
  }: Pick<ForeignIdentity, 'trust' | 'externalUserId'>): Promise<User | null> =>
    users.get(trust.appId, externalUserId).catch((error: unknown) => {
      if (error instanceof DomainError && error.reason === 'NOT_FOUND') return null
      throw error
    })

  return { verify, provision, check }
}

export type ForeignTokens = ReturnType<typeof createForeignTokens>

const checkMs = 1_000

const warningsOf = (trust: TrustRules | null): string[] =>
  trust && isEditableClaim(trust.userClaim)
    ? [
        `at common providers, users can change ${trust.userClaim} themselves and so become another user of this app; use a claim that they cannot change, such as sub`,
      ]
    : []

/** In ISO 8601; "" when the token has no valid expiry. */
function expiryOf({ claims: { exp } }: UnprovedToken): string {
  const isInstant = typeof exp === 'number' && Math.abs(exp) < 1e11
  return isInstant ? new Date(exp * 1000).toISOString() : ''
}

function isShutOut(user: User, { issuedAt }: ForeignIdentity): boolean {
  const { status, tokensValidAfter } = user
  return (
    status !== 'active' || (tokensValidAfter !== null && issuedAt < toSeconds(tokensValidAfter))
  )
}
