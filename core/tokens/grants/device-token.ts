import { DomainError } from '../../../proto/errors.ts'
import type { ExchangeDeviceTokenRequest } from '../../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import { TokenType } from '../../../proto/oauth.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { Context } from '../../rpc/serve.ts'
import { readLineage } from '../issuer/jwt.ts'
import type { Subjects } from '../subjects.ts'
import type { ExchangeAudit } from './exchange-audit.ts'
import type { SignerTokens } from './signer-token.ts'

export interface DeviceTokenDeps {
  readonly subjects: Subjects
  readonly signerTokens: SignerTokens
  readonly exchangeAudit: ExchangeAudit
}

/** Exchanges the token of a logged-in device for a signer JWT (docs/tokens.md). */
export function createDeviceTokenExchange({
  subjects,
  signerTokens,
  exchangeAudit,
}: DeviceTokenDeps) {
  async function exchange({ deviceToken, clientId }: ExchangeDeviceTokenRequest, context: Context) {
    const { jwt, user, caller } = await subjects.userToken(deviceToken).catch(asInvalidGrant)
    const attempt = {
      appId: caller.appId,
      action: 'device_token_exchange',
      actor: { name: caller.clientId, context },
    }
    return exchangeAudit.record(attempt, async () => {
      if (clientId !== undefined && clientId !== caller.clientId) throw invalidDeviceToken()
      if (!jwt.scopes.includes(Scope.signJob))
        throw new DomainError('GRANT_INVALID', `the device token lacks the scope ${Scope.signJob}`)
      const issued = await signerTokens.issue(
        { ...caller, tokensValidAfter: user.tokensValidAfter, grants: readLineage(jwt) },
        { notAfter: jwt.exp },
      )
      return { ...issued, issuedTokenType: TokenType.accessToken }
    })
  }

  return { exchange }
}

export type DeviceTokenExchange = ReturnType<typeof createDeviceTokenExchange>

const invalidDeviceToken = (cause?: unknown): DomainError =>
  new DomainError('GRANT_INVALID', 'the device token is not valid here, or has expired', { cause })

function asInvalidGrant(error: unknown): never {
  if (error instanceof DomainError && error.reason === 'TOKEN_INVALID')
    throw invalidDeviceToken(error)
  throw error
}
