import { DomainError } from '../../../proto/errors.ts'
import { Scope } from '../../../proto/scopes.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import { type M2mCaller, type UserCaller, toActor } from '../../rpc/callers.ts'
import {
  gatewayCaller,
  m2m,
  oauthClient,
  optionalOauthClient,
  orMember,
  endUser,
} from '../../rpc/guards.ts'
import { parseCursor, parseLimit } from '../../shared/cursor.ts'
import { addSeconds } from '../../lib/time.ts'
import { batchedRpc } from '../../rpc/batched.ts'
import { type Context, type Handlers, rpc } from '../../rpc/serve.ts'
import type { Introspection } from '../revocation/introspection.ts'
import type { TokenFamilies } from '../login/token-families.ts'
import type { Revocation } from '../revocation/revocation.ts'
import type { SignerSessions } from '../sessions/signer-sessions.ts'
import { accountOfSubject } from '../subjects.ts'
import type { AuthorizationCodeGrant } from './authorization-code.ts'
import type { BuilderExchange } from './builder-exchange.ts'
import type { ClientCredentialsGrant } from './client-credentials.ts'
import type { DeviceCodeGrant } from './device-code.ts'
import type { DeviceTokenExchange } from './device-token.ts'
import type { RefreshTokenGrant } from './refresh-token.ts'
import type { TokenExchange } from './token-exchange.ts'

export interface GrantsRpcDeps {
  readonly tokenExchange: TokenExchange
  readonly builderExchange: BuilderExchange
  readonly clientCredentials: ClientCredentialsGrant
  readonly deviceCode: DeviceCodeGrant
  readonly authorizationCode: AuthorizationCodeGrant
  readonly refreshToken: RefreshTokenGrant
  readonly deviceToken: DeviceTokenExchange
  readonly introspection: Introspection
  readonly revocation: Revocation
  readonly families: Pick<TokenFamilies, 'personalClaims'>
  readonly sessions: SignerSessions
  readonly revocationBoundSeconds: number
}

export function createGrantsRpc(deps: GrantsRpcDeps) {
  const grantService: Handlers<pb.GrantServiceServer> = {
    ...exchanges(deps),
    mintSignerToken: rpc(
      oauthClient(),
      async (request: pb.MintSignerTokenRequest, caller, context) =>
        deps.clientCredentials.mintSignerToken(caller, request, toActor(caller, context)),
    ),
    mintOwnerToken: rpc(oauthClient(), mintOwner(deps)),
    redeemDeviceCode: rpc(gatewayCaller(), async (request: pb.RedeemDeviceCodeRequest) => ({
      tokens: await deps.deviceCode.redeem(request),
    })),
    redeemAuthorizationCode: rpc(
      gatewayCaller(),
      async (request: pb.RedeemAuthorizationCodeRequest) => ({
        tokens: await deps.authorizationCode.redeem(request),
      }),
    ),
    redeemRefreshToken: rpc(
      gatewayCaller(),
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
    getUserInfo: rpc(endUser(), readUserInfo(deps)),
    exchangeDeviceToken: rpc(
      gatewayCaller(),
      async (request: pb.ExchangeDeviceTokenRequest, _caller, context) =>
        deps.deviceToken.exchange(request, context),
    ),
    listSignerSessions: rpc(
      orMember(m2m(Scope.usersWrite), 'read'),
      async (request: pb.ListSignerSessionsRequest, caller) => {
        const { user, items, nextCursor } = await deps.sessions.list(caller, {
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
      orMember(m2m(Scope.usersWrite), 'edit'),
      async (request: pb.RevokeSignerSessionRequest, caller, context) => {
        const revokedAt = await deps.sessions.revoke(caller, request, toActor(caller, context))
        return {
          revokedAt: revokedAt.toISOString(),
          effectiveBy: addSeconds(revokedAt, deps.revocationBoundSeconds).toISOString(),
        }
      },
    ),
  }
  return { grantService }
}

/** Token exchange (RFC 8693) of both APIs, as single and batched RPCs. */
function exchanges({ tokenExchange, builderExchange }: GrantsRpcDeps) {
  const client = optionalOauthClient()
  const path = 'tollgate.tokens.v1.GrantService'
  return {
    exchangeToken: rpc(client, tokenExchange.exchange),
    exchangeTokens: batchedRpc(`${path}/ExchangeToken`, client, tokenExchange.exchange),
    exchangeBuilderToken: rpc(client, builderExchange.exchange),
    exchangeBuilderTokens: batchedRpc(
      `${path}/ExchangeBuilderToken`,
      client,
      builderExchange.exchange,
    ),
  }
}

const mintOwner =
  ({ clientCredentials }: Pick<GrantsRpcDeps, 'clientCredentials'>) =>
  (request: pb.MintOwnerTokenRequest, caller: M2mCaller, context: Context) =>
    clientCredentials.mintOwnerToken(caller, request, toActor(caller, context))

/** OpenID Connect Core section 5.3. */
const readUserInfo =
  ({ families }: Pick<GrantsRpcDeps, 'families'>) =>
  async (_request: pb.GetUserInfoRequest, caller: UserCaller) => {
    if (!caller.scopes.includes(Scope.openid))
      throw new DomainError('SCOPE_MISSING', `the token lacks the scope ${Scope.openid}`)
    const account = accountOfSubject(caller.externalUserId) ?? null
    const { email, email_verified, name } = await families.personalClaims(account, caller.scopes)
    return {
      sub: caller.userId,
      email: typeof email === 'string' ? email : undefined,
      emailVerified: typeof email_verified === 'boolean' ? email_verified : undefined,
      name: typeof name === 'string' ? name : undefined,
    }
  }
