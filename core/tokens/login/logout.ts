import type { Clients, PublicClient } from '../../identity/apps/clients.ts'
import type { IdTokenHints } from './id-token-hints.ts'

export interface LogoutsDeps {
  readonly clients: Pick<Clients, 'findPublicOrDisabled'>
  readonly idTokenHints: IdTokenHints
}

export interface LogoutRequest {
  readonly idTokenHint?: string | undefined
  readonly clientId?: string | undefined
  readonly postLogoutRedirectUri?: string | undefined
}

/**
 * OpenID Connect RP-Initiated Logout 1.0: identifies the account, and checks where the browser may
 * go afterwards.
 */
export function createLogouts({ clients, idTokenHints }: LogoutsDeps) {
  async function check(request: LogoutRequest) {
    const hint =
      request.idTokenHint === undefined ? null : await idTokenHints.read(request.idTokenHint)
    const clientId = request.clientId ?? hint?.clientId
    // RP-Initiated Logout section 2: ignore the hint if its audience is not client_id.
    const isConfirmed = hint !== null && hint.clientId === clientId
    const client = clientId === undefined ? null : await clients.findPublicOrDisabled(clientId)
    return {
      confirmed: isConfirmed,
      appName: client?.appName ?? '',
      postLogoutRedirectUri: registeredUri(client, request.postLogoutRedirectUri),
      accountId:
        isConfirmed && client ? await idTokenHints.accountOf(client, hint.subject) : undefined,
    }
  }

  return { check }
}

export type Logouts = ReturnType<typeof createLogouts>

const registeredUri = (client: PublicClient | null, uri: string | undefined): string | undefined =>
  uri !== undefined && client?.postLogoutRedirectUris.includes(uri) ? uri : undefined
