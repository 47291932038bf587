import { Type } from 'typebox'
import { GrantType, TokenType } from '../../proto/oauth.ts'
import type { ExchangeBuilderTokenResponse } from '../../proto/gen/es/tollgate/tokens/v1/grants_pb.ts'
import { optionalClientSecret, readClientAuth } from '../auth/credentials.ts'
import { type Core, requireField } from '../core/client.ts'
import type { App } from '../http/app.ts'
import { post } from '../http/endpoint.ts'
import { CorrelationId, addSchemas, asDocumented, named, ref } from '../http/schemas.ts'
import { toBuilderSession } from '../platform-api/oidc/grant-types.ts'
import { exchangeRequires, repeatable } from '../platform-api/oidc/schemas.ts'
import { AppParams, Int64, WebAddress } from '../platform-api/schemas.ts'
import { toToken } from '../platform-api/users/tokens.ts'

const field = (description: string) => Type.Optional(Type.String({ description }))
const list = (description: string) =>
  Type.Optional(Type.Array(Type.String(), { maxItems: 16, description }))

// All fields are optional here, so that core reports missing ones in the order of the
// specification.
const ExchangeForm = Type.Object({
  grant_type: field(GrantType.tokenExchange),
  subject_token: field("A user JWT or a user's sk_ key."),
  subject_token_type: field(TokenType.accessToken),
  requested_token_type: field(TokenType.accessToken),
  audience: list('at most 16 names of the signer'),
  resource: list('at most 16 names of the signer'),
  client_id: field('Id of the M2M client, if it authenticates in the form.'),
  client_secret: field('Its secret.'),
})

const BuilderSession = named(
  Type.Object({
    access_token: Type.String(),
    token_type: Type.String({ description: 'Bearer' }),
    expires_in: Type.Integer({ description: 'Seconds.' }),
    scope: Type.String(),
    signer_url: Type.Optional(WebAddress('Address of the remote signer.')),
    discovery_url: Type.Optional(WebAddress('Address of the list of orchestrators.')),
    issued_token_type: Type.String(),
    correlation_id: CorrelationId,
    has_access: Type.Boolean({ description: 'Whether the user has money left to spend.' }),
    can_spend: Type.Boolean({
      description: 'Whether a call may be allowed: by money, or by a credit line.',
    }),
    balance_usd_micros: Int64('The remaining money, in USD micros.'),
  }),
  'BuilderSession',
)

const refuses = [
  'GRANT_INVALID',
  'TARGET_INVALID',
  'TOKEN_TYPE_UNSUPPORTED',
  'ALLOWANCE_EXHAUSTED',
] as const

/** Adds the route that exchanges a user's credential for one of a signer session. */
export function tokenRoutes(app: App, { core }: { readonly core: Core }): void {
  addSchemas(app, [BuilderSession])
  post({
    url: '/api/v1/apps/:clientId/oidc/token',
    guard: { kind: 'client' },
    wire: 'oauth',
    accepts: 'form',
    repeatable,
    limit: 'exchange',
    refuses,
    operationId: 'exchangeToken',
    summary: 'Exchange a user JWT or key for a signer session',
    description:
      "A token exchange (RFC 8693): the user JWT or sk_ key in subject_token becomes a signer JWT; the answer includes the user's balance. A user without remaining allowance gets a signer JWT, too, with has_access: false.",
    tags: ['tokens'],
    params: AppParams,
    body: ExchangeForm,
    documentedBody: asDocumented(ExchangeForm, { required: exchangeRequires }),
    response: { 200: ref(BuilderSession) },
    handler: async ({ params, body, raw, correlationId }) => {
      const authorization = optionalClientSecret(readClientAuth(raw.rawHeaders, body))
      const answer = await core
        .callsFor({ authorization, correlationId })
        .grants.exchangeBuilderToken({
          ...params,
          grantType: body.grant_type,
          subjectToken: body.subject_token ?? '',
          subjectTokenType: body.subject_token_type ?? '',
          requestedTokenType: body.requested_token_type,
          audiences: body.audience ?? [],
          resources: body.resource ?? [],
        })
      return toSignerSession(answer, correlationId)
    },
  })(app)
}

const toSignerSession = (answer: ExchangeBuilderTokenResponse, correlationId: string) => ({
  ...toToken(answer, correlationId),
  issued_token_type: answer.issuedTokenType,
  ...toBuilderSession(requireField(answer.session, 'session')),
})
