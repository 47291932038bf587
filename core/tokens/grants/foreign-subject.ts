import { DomainError } from '../../../proto/errors.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { ForeignTokens } from '../../identity/issuers/foreign-tokens.ts'
import type { Fault } from '../../identity/issuers/verification.ts'
import { isOfOtherIssuer } from '../../lib/foreign-tokens/form.ts'
import { toSeconds } from '../../lib/time.ts'
import type { UserCaller } from '../../rpc/callers.ts'
import { invalidToken } from '../issuer/jwt.ts'
import type { Shared } from '../../shared/shared.ts'
import { type SignerSubject, requireGranted } from './signer-token.ts'

type Deps = Shared & {
  readonly issuer: string
  readonly foreignTokens: ForeignTokens
}

// Maximum time in milliseconds that a client waits for the issuer's keys. Keys that arrive later
// serve the next request.
const keysMs = 2_000

/** Tokens of issuers that apps trust, as subject tokens (docs/trusted-issuers.md). */
export function createForeignSubjects({ issuer, foreignTokens, now }: Deps) {
  /**
   * Whether a token names another issuer than ours. Text that is not a JWT follows the rules for
   * our own tokens.
   */
  const isForeign = (text: string): boolean => isOfOtherIssuer(text, issuer)

  /**
   * Returns the user of the token, only in the app `clientId` if it is given. Throws GRANT_INVALID
   * for an invalid token, UNAVAILABLE when its issuer's keys cannot be loaded. All refusals come
   * before the user is created.
   */
  async function ownerOf(
    text: string,
    clientId: string | null,
  ): Promise<{ readonly subject: SignerSubject; readonly notAfter: number }> {
    const foreign = await foreignTokens.verify(text, { clientId, waitMs: keysMs })
    if ('fault' in foreign) throw refusal(foreign.fault)
    const { trust, grant, publicScopes, expiresAt } = foreign
    requireGranted(publicScopes)
    // Clock tolerance may accept an expired token, but the credential issued for it would already
    // have expired.
    if (expiresAt <= toSeconds(now())) throw refusal('expiry')
    const user = await foreignTokens.provision(foreign)
    if (!user) throw refusal('user')
    const { appId, id: userId, externalUserId, tokensValidAfter } = user
    const ids = { appId, userId, clientId: trust.clientId, externalUserId, tokensValidAfter }
    return { subject: { ...ids, grants: [grant] }, notAfter: expiresAt }
  }

  /**
   * Returns the user of the token as a caller, only in the app `clientId` if it is given,
   * regardless of other apps' trust. Throws TOKEN_INVALID for an invalid token, NOT_FOUND for a
   * token of another app's user.
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
