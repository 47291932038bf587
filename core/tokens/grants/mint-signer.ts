import { DomainError } from '../../../proto/errors.ts'
import type { M2mCaller } from '../../rpc/callers.ts'
import type { Users } from '../../identity/users/users.ts'
import type { Actor } from '../../platform/audit.ts'
import { authId, parseExternalUserId } from '../../platform/ids.ts'
import type { Journal } from './journal.ts'
import { type SignerTokens, requireTargets, signerTargets } from './signer-token.ts'

const scopeNeeded = 'sign:mint_user_token'

export interface MintSignerDeps {
  readonly issuer: string
  readonly users: Users
  readonly signerTokens: SignerTokens
  readonly journal: Journal
}

/** client_credentials for a signer JWT of an end user, in one call (identity facts 2.4). */
export function createMintSigner({ issuer, users, signerTokens, journal }: MintSignerDeps) {
  async function mint(
    caller: M2mCaller,
    request: { externalUserId: string; audiences: readonly string[] },
    actor: Actor,
  ) {
    return journal.both({ appId: caller.appId, action: 'signer_token_minted', actor }, async () => {
      if (!caller.scopes.includes(scopeNeeded)) {
        throw new DomainError('CLIENT_SCOPE_MISSING', `the client lacks the scope ${scopeNeeded}`)
      }
      requireTargets(request.audiences, signerTargets(issuer))
      const external = parseExternalUserId(request.externalUserId)
      const name = { clientId: caller.clientId, externalUserId: external }
      const subject = (await users.resolveSubjects([name])).get(authId(caller.clientId, external))
      const user = subject ? await users.findById(subject.appId, subject.userId) : null
      if (user?.status !== 'active') throw new DomainError('GRANT_INVALID', 'the user is inactive')
      return signerTokens.issue({ ...user, ...name, userId: user.id })
    })
  }

  return { mint }
}

export type MintSigner = ReturnType<typeof createMintSigner>
