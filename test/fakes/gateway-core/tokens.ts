import type { ServiceDefinition } from '@grpc/grpc-js'
import * as keys from '../../../proto/gen/ts-proto/tollgate/keys/v1/keys.ts'
import * as builder from '../../../proto/gen/ts-proto/tollgate/keys/v1/builder.ts'
import * as tokens from '../../../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import * as grants from '../../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import * as devices from '../../../proto/gen/ts-proto/tollgate/tokens/v1/devices.ts'
import * as authorization from '../../../proto/gen/ts-proto/tollgate/tokens/v1/authorization.ts'
import { at, clientId, user } from './identity.ts'

const token = { accessToken: 'a.b.c', tokenType: 'Bearer', expiresIn: 300, scope: 'sign:job' }

export const answers = {
  createKey: {
    keyId: 'k-1',
    apiKey: `${clientId}_svc_ak_x`,
    createdAt: at,
    externalUserId: 'ada',
    clientId,
    label: undefined,
  } satisfies keys.CreateKeyResponse,
  provisionUser: {
    id: user.id,
    clientId,
    externalUserId: 'ada',
    email: 'ada@example.com',
    status: 'active',
    created: true,
    apiKey: 'sk_x',
  } satisfies builder.ProvisionUserResponse,
  exchangeBuilderToken: {
    ...token,
    issuedTokenType: 'urn:ietf:params:oauth:token-type:access_token',
    session: {
      hasAccess: true,
      canSpend: true,
      balanceUsdMicros: '4200000',
      lifetimeGrantedUsdMicros: '5000000',
      signerUrl: 'https://signer.example',
      discoveryUrl: 'https://signer.example/discover-orchestrators',
    },
  } satisfies grants.ExchangeBuilderTokenResponse,
  listKeys: {
    keys: [
      {
        keyId: 'k-1',
        createdAt: at,
        status: 'active',
        revokedAt: undefined,
        lastUsedAt: undefined,
        prefix: 'svc_ak_1a2b',
        label: 'laptop',
      },
    ],
    nextCursor: undefined,
  } satisfies keys.ListKeysResponse,
  revokeKey: { revokedAt: at, effectiveBy: at } satisfies keys.RevokeKeyResponse,
  issueMachineToken: {
    ...token,
    expiresIn: 3600,
    scope: 'users:read',
  } satisfies tokens.IssueMachineTokenResponse,
  mintUserToken: token satisfies tokens.MintUserTokenResponse,
  mintTestToken: {
    accessToken: token.accessToken,
    expiresIn: 60,
  } satisfies tokens.MintTestTokenResponse,
  exchangeApiKey: { ...token, externalUserId: 'ada' } satisfies tokens.ExchangeApiKeyResponse,
  getJwks: {
    keys: [
      {
        kty: 'RSA',
        kid: 'one',
        alg: 'RS256',
        use: 'sig',
        n: 'AQAB',
        e: 'AQAB',
        crv: undefined,
        x: undefined,
        y: undefined,
      },
    ],
  } satisfies tokens.GetJwksResponse,
}

export const services: ServiceDefinition[] = [
  keys.KeyServiceService,
  builder.BuilderUserServiceService,
  tokens.TokenServiceService,
  grants.GrantServiceService,
  devices.DeviceServiceService,
  authorization.AuthorizationServiceService,
]
