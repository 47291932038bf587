import type * as pb from '../../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import { Scope } from '../../proto/scopes.ts'
import { type M2mCaller, callerName } from '../rpc/callers.ts'
import {
  serviceCaller,
  bearer,
  m2m,
  member,
  oauthClient,
  operator,
  operatorWrite,
  orOperator,
  platformAdmin,
} from '../rpc/guards.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'
import { batchedRpc } from '../rpc/batched.ts'
import type { KeyRotation } from './issuer/rotation.ts'
import type { ClientCredentialsGrant } from './grants/client-credentials.ts'
import type { UserTokens } from './user-tokens.ts'
import type { SigningKeys } from './issuer/signing-keys.ts'

interface TokensRpcDeps {
  readonly userTokens: UserTokens
  readonly clientCredentials: ClientCredentialsGrant
  readonly signingKeys: SigningKeys
  readonly rotation: KeyRotation
}

export function createTokensRpc({
  userTokens,
  clientCredentials,
  signingKeys,
  rotation,
}: TokensRpcDeps) {
  const minter = m2m(Scope.usersToken)
  const mint = ({ externalUserId, scope }: pb.MintUserTokenRequest, caller: M2mCaller) =>
    userTokens.mint(caller, externalUserId, scope)
  const tokenService: Handlers<pb.TokenServiceServer> = {
    issueMachineToken: rpc(oauthClient(), async (request: pb.IssueMachineTokenRequest, caller) =>
      clientCredentials.issueMachineToken(caller, request.scope),
    ),
    mintUserToken: rpc(minter, mint),
    mintUserTokens: batchedRpc('tollgate.tokens.v1.TokenService/MintUserToken', minter, mint),
    mintTestToken: rpc(
      member('edit'),
      async ({ externalUserId }: pb.MintTestTokenRequest, caller) =>
        userTokens.mintForTest(caller, externalUserId),
    ),
    exchangeApiKey: rpc(bearer(), async (request: pb.ExchangeApiKeyRequest, caller, context) =>
      userTokens.exchangeApiKey({ apiKey: caller.token, ...request }, context),
    ),
    getJwks: rpc(serviceCaller('gateway', 'sidecar'), async (_request: pb.GetJwksRequest) => ({
      keys: (await signingKeys.jwks()).map((jwk) => ({
        kty: jwk['kty'] ?? '',
        kid: jwk['kid'] ?? '',
        alg: jwk['alg'] ?? '',
        use: jwk['use'] ?? '',
        n: jwk['n'],
        e: jwk['e'],
        crv: jwk['crv'],
        x: jwk['x'],
        y: jwk['y'],
      })),
    })),
    rotateSigningKeys: rpc(
      orOperator(platformAdmin(), operatorWrite()),
      async ({ force }: pb.RotateSigningKeysRequest, caller) =>
        rotation.rotate({ force, actor: callerName(caller) }),
    ),
    listSigningKeys: rpc(
      orOperator(platformAdmin(), operator()),
      async (_request: pb.ListSigningKeysRequest) => ({
        keys: (await rotation.list()).map(({ kid, alg, status, created_at, retire_at }) => ({
          kid,
          alg,
          status,
          createdAt: created_at.toISOString(),
          retireAt: retire_at?.toISOString(),
        })),
      }),
    ),
  }
  return { tokenService }
}
