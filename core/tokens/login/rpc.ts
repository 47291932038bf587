import { DomainError } from '../../../proto/errors.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/tokens/v1/authorization.ts'
import { addSeconds } from '../../lib/time.ts'
import { gatewayCaller, self } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { type Authorizations, hashClientVersion } from './authorization.ts'
import type { Logouts } from './logout.ts'
import type { OwnLogins } from './own-logins.ts'

export function createAuthorizationRpc({
  authorizations,
  logouts,
  ownLogins,
  revocationBoundSeconds,
}: {
  authorizations: Authorizations
  logouts: Logouts
  ownLogins: OwnLogins
  /** Maximum time that other processes' caches may still allow what has ended. */
  revocationBoundSeconds: number
}) {
  const authorizationService: Handlers<pb.AuthorizationServiceServer> = {
    checkAuthorization: rpc(gatewayCaller(), async (request: pb.CheckAuthorizationRequest) => {
      const { client, scopes, needsConsent, refusal } = await authorizations.check(request)
      return {
        clientId: client.clientId,
        appName: client.appName,
        appColor: client.appColor,
        scopes,
        needsConsent,
        error: refusal?.error ?? '',
        errorDescription: refusal?.description ?? '',
        clientVersion: hashClientVersion(client),
      }
    }),
    grantAuthorization: rpc(
      gatewayCaller(),
      async ({ sessionToken, request, ...consent }: pb.GrantAuthorizationRequest) => {
        if (!request) throw new DomainError('REQUEST_INVALID', 'request is required')
        return { code: await authorizations.authorize({ ...request, sessionToken }, consent) }
      },
    ),
    checkLogout: rpc(gatewayCaller(), async (request: pb.CheckLogoutRequest) =>
      logouts.check(request),
    ),
    listOwnLogins: rpc(self(), async (_: pb.ListOwnLoginsRequest, caller) => ({
      logins: await ownLogins.list(caller),
    })),
    endOwnLogin: rpc(self(), async ({ loginId }: pb.EndOwnLoginRequest, caller) => {
      const endedAt = await ownLogins.end(caller, loginId)
      const effectiveBy = addSeconds(endedAt, revocationBoundSeconds)
      return { endedAt: endedAt.toISOString(), effectiveBy: effectiveBy.toISOString() }
    }),
    getInitiateLogin: rpc(gatewayCaller(), async (request: pb.GetInitiateLoginRequest) => ({
      initiateLoginUri: await authorizations.initiateLoginUri(request.clientId),
    })),
  }
  return { authorizationService }
}
