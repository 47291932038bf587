import { DomainError } from '../../../proto/errors.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { ForeignTokens } from '../../identity/issuers/foreign-tokens.ts'
import type { Fault } from '../../identity/issuers/verification.ts'
import { isOfOtherIssuer } from '../../lib/foreign-tokens/form.ts'
import { type Now, secondsOf } from '../../lib/time.ts'
import type { UserCaller } from '../../rpc/callers.ts'
import { invalidToken } from '../issuer/jwt.ts'
import { type SignerSubject, requireGranted } from './signer-token.ts'

export interface ForeignSubjectsDeps {
  readonly issuer: string
  readonly foreignTokens: ForeignTokens
  readonly now: Now
}

// A client waits so long for an answer; keys that come later are there for the next one.
const keysMs = 2_000

/** Tokens of issuers that apps trust, as subject tokens (docs/trusted-issuers.md). */
export function createForeignSubjects({ issuer, foreignTokens, now }: ForeignSubjectsDeps) {
  /** Whether a token names another issuer than ours. What is no JWT is left to the rules for ours. */
  const isForeign = (text: string): boolean => isOfOtherIssuer(text, issuer)

  /**
   * The user that the token stands for, in the app `clientId` where one is named. GRANT_INVALID when it stands for none, UNAVAILABLE
   * while the keys of its issuer cannot be had. Every refusal comes before the user, whom the token may create.
   */
  async function ownerOf(
    text: string,
    clientId: string | null,
  ): Promise<{ readonly subject: SignerSubject; readonly notAfter: number }> {
    const foreign = await foreignTokens.verify(text, { clientId, waitMs: keysMs })
    if ('fault' in foreign) throw refusal(foreign.fault)
    const { trust, grant, publicScopes, expiresAt } = foreign
    requireGranted(publicScopes)
    // Clocks may differ, but what it is exchanged for would be over before it began.
    if (expiresAt <= secondsOf(now())) throw refusal('expiry')
    const user = await foreignTokens.provision(foreign)
    if (!user) throw refusal('user')
    const { appId, id: userId, externalUserId, tokensValidAfter } = user
    const ids = { appId, userId, clientId: trust.clientId, externalUserId, tokensValidAfter }
    return { subject: { ...ids, grants: [grant] }, notAfter: expiresAt }
  }

  /**
   * The user that the token stands for, in the app `clientId` where one is named: what other apps trust does not matter to it.
   * TOKEN_INVALID when it stands for none, NOT_FOUND when it stands for one of another app.
   */
  async function callerOf(text: string, clientId: string | null): Promise<UserCaller> {
    const { subject } = await ownerOf(text, clientId).catch(async (error: unknown) => {
      const reason = error instanceof DomainError ? error.reason : null
      if (reason !== 'GRANT_INVALID' && reason !== 'SCOPE_INVALID') throw error
      if (clientId !== null && (await isOfAnother(text, clientId)))
        throw new DomainError('NOT_FOUND', 'no such app for this credential')
      throw invalidToken(error)
    })
    return { ...subject, kind: 'user', scopes: [Scope.signJob] }
  }

  async function isOfAnother(text: string, clientId: string): Promise<boolean> {
    const foreign = await foreignTokens.verify(text, { waitMs: keysMs })
    return !('fault' in foreign) && foreign.trust.clientId !== clientId
  }

  return { isForeign, ownerOf, callerOf }
}

export type ForeignSubjects = ReturnType<typeof createForeignSubjects>

const refusal = (fault: Fault): DomainError =>
  fault === 'unavailable'
    ? new DomainError(
        'UNAVAILABLE',
        "the keys of the subject token's issuer cannot be loaded now; try again",
      )
    : new DomainError(
        'GRANT_INVALID',
        `the subject token is not valid here, by the rule "${fault}" of its issuer`,
      )
