import { type Static, Type } from 'typebox'
import type {
  TokenCheck as TokenCheckMessage,
  TrustedIssuer as TrustedIssuerMessage,
} from '../../../proto/gen/es/tollgate/identity/v1/issuers_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { del, get, post, put } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, nullable, required } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/trusted-issuers'
const tags = ['apps']

const texts = (description: string) =>
  Type.Array(Type.String({ minLength: 1, maxLength: 200 }), { maxItems: 20, description })

const ruleFields = {
  issuer: required('The iss claim of its tokens; a final slash is ignored.'),
  audiences: texts('One of these must be in aud; every audience is accepted when empty.'),
  clientClaim: nullable({
    description: 'The claim with the client that a token was issued to, such as azp.',
  }),
  clientValues: texts('The values of that claim for this app.'),
  userClaim: Type.String({ description: 'The claim that becomes externalUserId.' }),
  userPrefix: Type.String({
    maxLength: 50,
    description:
      'Prefix of the claim in externalUserId, which separates the users of two issuers; may be empty.',
  }),
  jwksUri: nullable({
    description: "The address of the issuer's keys; read from its discovery document when null.",
  }),
}

const TrustedIssuer = named(
  Type.Object({
    id: Type.String(),
    ...ruleFields,
    createdAt: Instant('When it was added.'),
    updatedAt: Instant('When its rules were last replaced.'),
  }),
  'TrustedIssuer',
)
const TrustedIssuerList = named(
  Type.Object({ issuers: Type.Array(ref(TrustedIssuer)) }),
  'TrustedIssuerList',
)
const ReplacedTrustedIssuer = named(
  Type.Object({
    ...TrustedIssuer.properties,
    effectiveBy: Instant('When the last permission under the old rules has expired.'),
  }),
  'ReplacedTrustedIssuer',
)
const RemovedTrustedIssuer = named(
  Type.Object({
    success: Type.Boolean(),
    effectiveBy: Instant('When the last permission has expired.'),
    correlation_id: Type.String(),
  }),
  'RemovedTrustedIssuer',
)
const TokenCheck = named(
  Type.Object({
    accepted: Type.Boolean({ description: 'Whether the token would be accepted.' }),
    rules: Type.Array(
      Type.Object({
        rule: Type.String({
          description:
            'form, typ, alg, issuer, audience, client, user, expiry or signature; also scope, for the deployment itself.',
        }),
        passed: Type.Boolean(),
        detail: Type.String({ description: 'The value in the token, and the expected value.' }),
      }),
      { description: 'Every rule that could be applied, also after a failed one.' },
    ),
    warnings: Type.Array(Type.String(), {
      description: 'Weaknesses of the rules, such as a user claim that users can change.',
    }),
    trustedIssuerId: nullable({ description: 'The issuer whose rules were applied.' }),
    externalUserId: nullable({ description: 'The user of the token.' }),
    userStatus: nullable({
      description: 'active, inactive, or unknown for a user that would be provisioned.',
    }),
    expiresAt: nullable({ format: 'date-time', description: 'The exp claim.' }),
  }),
  'TokenCheck',
)

const Rules = Type.Object(
  {
    issuer: ruleFields.issuer,
    audiences: Type.Optional(ruleFields.audiences),
    clientClaim: Type.Optional(ruleFields.clientClaim),
    clientValues: Type.Optional(ruleFields.clientValues),
    userClaim: Type.Optional(ruleFields.userClaim),
    userPrefix: Type.Optional(ruleFields.userPrefix),
    jwksUri: Type.Optional(ruleFields.jwksUri),
  },
  { additionalProperties: false },
)
const Which = Type.Object({ issuerId: required('Which one.') })

/** An app's own identity providers: issuers whose tokens identify its users. */
export function trustedIssuerRoutes(app: App): void {
  addSchemas(app, [
    TrustedIssuer,
    TrustedIssuerList,
    ReplacedTrustedIssuer,
    RemovedTrustedIssuer,
    TokenCheck,
  ])
  listTrustedIssuers(app)
  createTrustedIssuer(app)
  updateTrustedIssuer(app)
  deleteTrustedIssuer(app)
  checkToken(app)
}

const listTrustedIssuers = get({
  url,
  guard: { kind: 'member_read' },
  operationId: 'listTrustedIssuers',
  summary: 'List the issuers that the app trusts',
  description: "Lists the identity providers whose tokens identify the app's users.",
  tags,
  params: AppParams,
  response: { 200: ref(TrustedIssuerList) },
  handler: async ({ params, core }) => {
    const { issuers } = await core.trustedIssuers.listTrustedIssuers(params)
    return { issuers: issuers.map(toIssuer) }
  },
})

const createTrustedIssuer = post({
  url,
  guard: { kind: 'member_edit' },
  refuses: ['CONFLICT'],
  operationId: 'createTrustedIssuer',
  summary: 'Trust an issuer',
  description:
    "Accepts tokens of an identity provider for users of this app; at most ten issuers. Returns 409 if a token could match another app's rules, too: apps that share an issuer need the same clientClaim with different clientValues.",
  tags,
  params: AppParams,
  body: Rules,
  response: { 201: ref(TrustedIssuer) },
  handler: async ({ params, body, core }, reply) => {
    const { issuer } = await core.trustedIssuers.createTrustedIssuer({
      ...params,
      rules: toRules(body),
    })
    return reply.code(201).send(toIssuer(requireField(issuer, 'issuer')))
  },
})

const updateTrustedIssuer = put({
  url,
  guard: { kind: 'member_edit' },
  refuses: ['CONFLICT'],
  operationId: 'updateTrustedIssuer',
  summary: 'Replace the rules of a trusted issuer',
  description: 'Replaces every rule. Permissions under the old rules end.',
  tags,
  params: AppParams,
  querystring: Which,
  body: Rules,
  response: { 200: ref(ReplacedTrustedIssuer) },
  handler: async ({ params, query: { issuerId }, body, core }) => {
    const request = { ...params, id: issuerId, rules: toRules(body) }
    const { issuer, effectiveBy } = await core.trustedIssuers.updateTrustedIssuer(request)
    return { ...toIssuer(requireField(issuer, 'issuer')), effectiveBy }
  },
})

const deleteTrustedIssuer = del({
  url,
  guard: { kind: 'member_edit' },
  operationId: 'deleteTrustedIssuer',
  summary: 'Stop trusting an issuer',
  description: 'Ends the trust and the permissions that came from it.',
  tags,
  params: AppParams,
  querystring: Which,
  response: { 200: ref(RemovedTrustedIssuer) },
  handler: async ({ params, query: { issuerId }, core, correlationId }) => {
    const { effectiveBy } = await core.trustedIssuers.deleteTrustedIssuer({
      ...params,
      id: issuerId,
    })
    return { success: true, effectiveBy, correlation_id: correlationId }
  },
})

const checkToken = post({
  url: `${url}/check`,
  guard: { kind: 'member_edit' },
  operationId: 'checkForeignToken',
  summary: 'Check a token against the rules',
  description:
    'Applies every rule to a token and returns the result of each. The token is neither stored nor logged, and no user is created.',
  tags,
  params: AppParams,
  body: Type.Object(
    { token: Type.String({ minLength: 1, maxLength: 20_000, description: 'A JWT.' }) },
    { additionalProperties: false },
  ),
  response: { 200: ref(TokenCheck) },
  handler: async ({ params, body, core }) => {
    const { check } = await core.trustedIssuers.checkForeignToken({
      ...params,
      token: body.token,
    })
    return toCheck(requireField(check, 'check'))
  },
})

const toRules = (body: Static<typeof Rules>) => ({
  ...body,
  clientClaim: body.clientClaim ?? '',
  jwksUri: body.jwksUri ?? '',
})

function toIssuer(issuer: TrustedIssuerMessage) {
  const rules = requireField(issuer.rules, 'rules')
  return {
    ...issuer,
    ...rules,
    clientClaim: rules.clientClaim || null,
    jwksUri: rules.jwksUri || null,
  }
}

const toCheck = (check: TokenCheckMessage) => ({
  ...check,
  trustedIssuerId: check.trustedIssuerId || null,
  externalUserId: check.externalUserId || null,
  userStatus: check.userStatus || null,
  expiresAt: check.expiresAt || null,
})
