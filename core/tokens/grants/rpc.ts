import { DomainError } from '../../../proto/errors.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import {
  actorOf,
  serviceCaller,
  m2m,
  oauthClient,
  optionalOauthClient,
  endUser,
} from '../../rpc/callers.ts'
import { parseCursor, parseLimit } from '../../platform/cursor.ts'
import { addSeconds } from '../../lib/time.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Introspection } from '../revocation/introspection.ts'
import type { Logins } from '../login/login.ts'
import type { Revocation } from '../revocation/revocation.ts'
import type { SignerSessions } from '../sessions/signer-sessions.ts'
import type { AuthorizationCodeGrant } from './authorization-code.ts'
import type { DeviceCodeGrant } from './device-code.ts'
import type { DeviceExchange } from './device-token.ts'
import type { MintSigner } from './mint-signer.ts'
import type { RefreshTokenGrant } from './refresh-token.ts'
import type { TokenExchange } from './token-exchange.ts'

export interface GrantsRpcDeps {
  readonly tokenExchange: TokenExchange
  readonly mintSigner: MintSigner
  readonly deviceCode: DeviceCodeGrant
  readonly authorizationCode: AuthorizationCodeGrant
  readonly refreshToken: RefreshTokenGrant
  readonly deviceToken: DeviceExchange
  readonly introspection: Introspection
  readonly revocation: Revocation
  readonly logins: Logins
  readonly sessions: SignerSessions
  readonly revocationBoundSeconds: number
}

export function createGrantsRpc(deps: GrantsRpcDeps) {
  const { sessions } = deps
  const grantService: Handlers<pb.GrantServiceServer> = {
    exchangeToken: rpc(optionalOauthClient(), deps.tokenExchange.exchange),
    mintSignerToken: rpc(
      oauthClient(),
      async (request: pb.MintSignerTokenRequest, caller, context) =>
        deps.mintSigner.mint(caller, request, actorOf(caller, context)),
    ),
    redeemDeviceCode: rpc(serviceCaller(), async (request: pb.RedeemDeviceCodeRequest) => ({
      tokens: await deps.deviceCode.redeem(request),
    })),
    redeemAuthorizationCode: rpc(
      serviceCaller(),
      async (request: pb.RedeemAuthorizationCodeRequest) => ({
        tokens: await deps.authorizationCode.redeem(request),
      }),
    ),
    redeemRefreshToken: rpc(
      serviceCaller(),
      async ({ clientId, refreshToken, scope }: pb.RedeemRefreshTokenRequest) => ({
        tokens: await deps.refreshToken.redeem({ clientId, refreshToken, scope }),
      }),
    ),
    introspectToken: rpc(oauthClient(), async (request: pb.IntrospectTokenRequest, caller) =>
      deps.introspection.introspect(caller, request.token),
    ),
    revokeToken: rpc(
      optionalOauthClient(),
      async ({ token, clientId }: pb.RevokeTokenRequest, client, context) => {
        await deps.revocation.revoke({ token, clientId }, client, context)
        return {}
      },
    ),
    getUserInfo: rpc(endUser(), async (_request: pb.GetUserInfoRequest, caller) => {
      if (!caller.scopes.includes('openid'))
        throw new DomainError('SCOPE_MISSING', 'the token lacks the scope openid')
      const account = /^user:(.+)$/.exec(caller.externalUserId)?.[1] ?? null
      const { email, email_verified, name } = await deps.logins.personal(account, caller.scopes)
      return {
        sub: caller.userId,
        email: typeof email === 'string' ? email : undefined,
        emailVerified: typeof email_verified === 'boolean' ? email_verified : undefined,
        name: typeof name === 'string' ? name : undefined,
      }
    }),
    exchangeDeviceToken: rpc(
      serviceCaller(),
      async (request: pb.ExchangeDeviceTokenRequest, _caller, context) =>
        deps.deviceToken.exchange(request, context),
    ),
    listSignerSessions: rpc(
      m2m('users:write'),
      async (request: pb.ListSignerSessionsRequest, caller) => {
        const { user, items, nextCursor } = await sessions.list(caller, {
          externalUserId: request.externalUserId,
          after: parseCursor(request.cursor),
          limit: parseLimit(request.limit),
        })
        return {
          nextCursor,
          sessions: items.map((session) => ({
            id: session.id,
            externalUserId: user.externalUserId,
            label: session.label,
            scope: session.scope,
            createdAt: session.createdAt.toISOString(),
            expiresAt: session.expires_at.toISOString(),
            lastUsedAt: session.last_used_at?.toISOString(),
            revokedAt: session.revoked_at?.toISOString(),
          })),
        }
      },
    ),
    revokeSignerSession: rpc(
      m2m('users:write'),
      async (request: pb.RevokeSignerSessionRequest, caller, context) => {
        const revokedAt = await sessions.revoke(caller, request, actorOf(caller, context))
        return {
          revokedAt: revokedAt.toISOString(),
          effectiveBy: addSeconds(revokedAt, deps.revocationBoundSeconds).toISOString(),
        }
      },
    ),
  }
  return { grantService }
}
