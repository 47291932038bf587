import { DomainError } from '../../../proto/errors.ts'
import { Scope, neverOfMachine } from '../../../proto/scopes.ts'
import { parseExternalUserId } from '../../shared/ids.ts'
import type { Actor } from '../../shared/audit.ts'
import type { Owners } from '../../identity/users/owners.ts'
import type { Users } from '../../identity/users/users.ts'
import type { M2mCaller } from '../../rpc/callers.ts'
import type { Jwts } from '../issuer/jwt.ts'
import { chooseScopes } from '../scopes.ts'
import type { Subjects } from '../subjects.ts'
import type { IssuedToken } from '../types.ts'
import type { ExchangeAudit } from './exchange-audit.ts'
import { type SignerTokens, requireGranted, requireTargets, signerTargets } from './signer-token.ts'

export interface ClientCredentialsDeps {
  readonly jwts: Jwts
  readonly subjects: Pick<Subjects, 'provision'>
  readonly owners: Owners
  readonly users: Pick<Users, 'refuseNewName'>
  readonly signerTokens: SignerTokens
  readonly exchangeAudit: ExchangeAudit
  readonly ttlSeconds: number
}

/** RFC 6749 section 4.4. */
export function createClientCredentialsGrant(deps: ClientCredentialsDeps) {
  const { jwts, subjects, owners, users, signerTokens, exchangeAudit, ttlSeconds } = deps

  /**
   * Issues a machine token. By default it has all of the client's scopes that a machine token may
   * have.
   */
  async function issueMachineToken(
    caller: M2mCaller,
    requestedScope: string | undefined,
  ): Promise<IssuedToken> {
    const grantable = caller.scopes.filter((scope) => !neverOfMachine.has(scope))
    const scope = chooseScopes(requestedScope, { grantable, fallback: grantable })
    return jwts.sign({
      sub: caller.m2mClientId,
      clientId: caller.m2mClientId,
      scope,
      use: 'machine',
      ttlSeconds,
      grants: caller.grants,
    })
  }

  /**
   * Issues a signer JWT of an end user, who is created if the app does not have it yet. Throws
   * CLIENT_SCOPE_MISSING without the scope sign:mint_user_token, GRANT_INVALID for an inactive
   * user.
   */
  async function mintSignerToken(
    caller: M2mCaller,
    request: { externalUserId: string; audiences: readonly string[] },
    actor: Actor,
  ) {
    const attempt = { appId: caller.appId, action: 'signer_token_minted', actor }
    return exchangeAudit.record(attempt, async () => {
      if (!caller.scopes.includes(Scope.mintUserToken)) {
        throw new DomainError(
          'CLIENT_SCOPE_MISSING',
          `the client lacks the scope ${Scope.mintUserToken}`,
        )
      }
      requireTargets(request.audiences, signerTargets(jwts.issuer))
      requireGranted(caller.publicScopes)
      const externalUserId = parseExternalUserId(request.externalUserId)
      await users.refuseNewName(caller.appId, externalUserId)
      const name = { clientId: caller.clientId, externalUserId }
      const user = await subjects.provision(name)
      if (!user) throw new DomainError('GRANT_INVALID', 'the user is inactive')
      const { grants } = caller
      return signerTokens.issue({ ...user, ...name, userId: user.id, grants })
    })
  }

  /**
   * Issues a signer JWT of the app's owner, who is one of its end users (decision 37). Throws
   * SCOPE_INVALID when the app's public client lacks sign:job, GRANT_INVALID when the app has no
   * owner or has deactivated it.
   */
  async function mintOwnerToken(
    caller: M2mCaller,
    request: { audiences: readonly string[] },
    actor: Actor,
  ) {
    const attempt = { appId: caller.appId, action: 'owner_token_minted', actor }
    return exchangeAudit.record(attempt, async () => {
      requireTargets(request.audiences, signerTargets(jwts.issuer))
      requireGranted(caller.publicScopes)
      const owner = await owners.find(caller)
      if (!owner)
        throw new DomainError(
          'GRANT_INVALID',
          'the app has no owner, so no owner token can be minted',
        )
      return signerTokens.issue({ ...owner, grants: caller.grants })
    })
  }

  return { issueMachineToken, mintSignerToken, mintOwnerToken }
}

export type ClientCredentialsGrant = ReturnType<typeof createClientCredentialsGrant>
