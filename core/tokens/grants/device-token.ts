import { DomainError } from '../../../proto/errors.ts'
import type { ExchangeDeviceTokenRequest } from '../../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import type { Context } from '../../rpc/serve.ts'
import type { Subjects } from '../subjects.ts'
import type { Journal } from './journal.ts'
import { type SignerTokens, accessTokenType } from './signer-token.ts'

export interface DeviceExchangeDeps {
  readonly subjects: Subjects
  readonly signerTokens: SignerTokens
  readonly journal: Journal
}

/** The token of a logged-in device for a signer JWT (identity facts 6.5). */
export function createDeviceExchange({ subjects, signerTokens, journal }: DeviceExchangeDeps) {
  async function exchange({ deviceToken, clientId }: ExchangeDeviceTokenRequest, context: Context) {
    const { jwt, user, caller } = await subjects.userToken(deviceToken).catch(asInvalidGrant)
    const attempt = {
      appId: caller.appId,
      action: 'device_token_exchange',
      actor: { name: caller.clientId, context },
    }
    return journal.both(attempt, async () => {
      if (clientId !== undefined && clientId !== caller.clientId) throw invalidDeviceToken()
      if (!jwt.scopes.includes('sign:job'))
        throw new DomainError('GRANT_INVALID', 'the device token lacks the scope sign:job')
      const issued = await signerTokens.issue(
        { ...caller, tokensValidAfter: user.tokensValidAfter },
        jwt.exp,
      )
      return { ...issued, issuedTokenType: accessTokenType }
    })
  }

  return { exchange }
}

export type DeviceExchange = ReturnType<typeof createDeviceExchange>

const invalidDeviceToken = (cause?: unknown): DomainError =>
  new DomainError('GRANT_INVALID', 'the device token is not valid here, or has expired', { cause })

function asInvalidGrant(error: unknown): never {
  if (error instanceof DomainError && error.reason === 'TOKEN_INVALID')
    throw invalidDeviceToken(error)
  throw error
}
