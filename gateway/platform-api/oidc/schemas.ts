import { Type } from 'typebox'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import { Scope } from '../../../proto/scopes.ts'
import { named } from '../../http/schemas.ts'
import { Email, Int64, WebAddress } from '../schemas.ts'

/** Requests and answers of the token routes. */

const field = (description: string) => Type.Optional(Type.String({ description }))
const list = (description: string) =>
  Type.Optional(Type.Array(Type.String(), { maxItems: 16, description }))

/** Fields that RFC 8693 section 2.1 and RFC 8707 allow to be repeated. */
export const repeatable = ['audience', 'resource'] as const

const clientFields = {
  client_id: field('Id of the client.'),
  client_secret: field('Of a confidential client.'),
}
const exchangeFields = {
  subject_token: field('The credential of the user: a user JWT or an API key.'),
  subject_token_type: field(TokenType.accessToken),
  requested_token_type: field(TokenType.accessToken),
  audience: list('The audience of the token; may be repeated.'),
  resource: list('The resource of the token; may be repeated.'),
  scope: field('Space-separated.'),
}

export const TokenForm = Type.Object({
  grant_type: Type.String({ description: 'The grant type.' }),
  ...clientFields,
  ...exchangeFields,
  external_user_id: field(`With the scope ${Scope.mintUserToken}.`),
  device_code: field('The code of the device grant.'),
  code: field('Of the authorization code grant.'),
  redirect_uri: field('As in the authorization request.'),
  code_verifier: field('RFC 7636.'),
  refresh_token: field('Of the refresh grant.'),
})

/**
 * Fields that core requires of an exchange, in the order of its refusals (RFC 8693 section 2.1).
 */
export const exchangeRequires = ['grant_type', 'subject_token', 'subject_token_type'] as const

export const ExchangeForm = Type.Object({
  grant_type: field(GrantType.tokenExchange),
  ...clientFields,
  ...exchangeFields,
})

export const DeviceForm = Type.Object({
  ...clientFields,
  scope: field('Space-separated; every scope of the client when absent.'),
  resource: list('The issuer.'),
})

export const BearerForm = Type.Object({
  access_token: field('The token, if the header does not have it (RFC 6750 section 2.2).'),
})

export const PresentedToken = Type.Object({
  ...clientFields,
  token: Type.String({ description: 'The token in question.' }),
  token_type_hint: field('Not needed.'),
})

const session = {
  signer_url: Type.Optional(WebAddress('Address of the remote signer.')),
  discovery_url: Type.Optional(WebAddress('Address of the list of orchestrators.')),
  has_access: Type.Boolean({ description: 'Whether the user has money left to spend.' }),
  can_spend: Type.Boolean({
    description: 'Whether a call may be allowed: by money, or by a credit line.',
  }),
  balance_usd_micros: Int64('The remaining money, in USD micros.'),
  balanceUsdMicros: Type.String({ description: 'The same as a string.' }),
  lifetimeGrantedUsdMicros: Type.String({ description: 'Starter and all grants.' }),
}

const token = {
  access_token: Type.String(),
  token_type: Type.String(),
  expires_in: Type.Integer({ description: 'Seconds.' }),
  scope: Type.String(),
  correlation_id: Type.String({ description: 'The same as the header X-Correlation-Id.' }),
}

export const SignerSession = Type.Object({ ...token, issued_token_type: Type.String(), ...session })

export const AnyToken = Type.Object({
  ...token,
  issued_token_type: field('RFC 8693.'),
  id_token: field(`With the scope ${Scope.openid}.`),
  refresh_token: field('Works once.'),
  ...Type.Partial(Type.Object(session)).properties,
})

export const DeviceAuthorization = Type.Object({
  device_code: Type.String(),
  user_code: Type.String(),
  verification_uri: WebAddress('Address at which the user enters user_code.'),
  verification_uri_complete: WebAddress('The same with user_code in it.'),
  expires_in: Type.Integer({ description: 'Seconds.' }),
  interval: Type.Integer({ description: 'Seconds between two polls.' }),
})

export const Introspection = Type.Object({
  active: Type.Boolean(),
  client_id: field('The client that it was issued to.'),
  sub: field('The user of the token.'),
  scope: field('Space-separated.'),
  token_type: field('Bearer, or refresh_token.'),
  exp: Type.Optional(Type.Integer()),
  iat: Type.Optional(Type.Integer()),
  iss: field('The issuer.'),
  aud: field('For whom.'),
  jti: field('The id of the token.'),
  external_user_id: field("The integrator's id of the user."),
})

export const UserInfo = Type.Object({
  sub: Type.String(),
  email: Type.Optional({ ...Email, description: `With the scope ${Scope.email}.` }),
  email_verified: Type.Optional(Type.Boolean()),
  name: field(`With the scope ${Scope.profile}.`),
})

export const Jwks = named(
  Type.Object({
    keys: Type.Array(
      Type.Object({
        kty: Type.String(),
        kid: Type.String(),
        alg: Type.String(),
        use: Type.String(),
        n: Type.Optional(Type.String()),
        e: Type.Optional(Type.String()),
        crv: Type.Optional(Type.String()),
        x: Type.Optional(Type.String()),
        y: Type.Optional(Type.String()),
      }),
    ),
  }),
  'Jwks',
)
