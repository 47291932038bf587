import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, text } from '../schemas.ts'

const optional = (description: string) => Type.Optional(Type.String({ description }))
const age = (description: string) => Type.Optional(Type.Integer({ description }))
const nanos = (description: string) =>
  Type.Optional(Type.String({ pattern: '^[0-9]+$', description }))

const CredentialPart = Type.Object({
  kind: Type.String({
    description:
      'api_key, signer_session, token, headers, other, missing, malformed, ambiguous or unread.',
  }),
  id: optional("The key's or session's id, or a token's jti."),
  issuer: optional('Of a token.'),
  externalUserId: optional('The user of the credential.'),
  source: optional('Source of the identity: memory, redis, core or token.'),
  ageMs: age('Age of its verification there.'),
})

const SessionPart = Type.Object({
  id: Type.String(),
  type: Type.String({ description: 'live, lv2v, fixed or empty.' }),
  app: Type.String({ description: "The application of the signer's state." }),
  sequence: optional('The number of the call.'),
  lastUpdate: optional("The signer's time of the call."),
  priceWei: optional('Wei for priceUnits.'),
  priceUnits: optional('Seconds, 720p pixel seconds, or calls.'),
  priorCall: Type.Optional(
    Type.Object({
      sequence: optional('Its number.'),
      at: optional("The signer's time of it."),
      source: Type.String({ description: 'sidecar, core, none (it is the first) or assumed.' }),
    }),
  ),
})

const MoneyPart = Type.Object({
  source: Type.String({ description: 'Source of the money: lease, core, offline or none.' }),
  boundUsdNanos: nanos('The most that the call can cost.'),
  remainingUsdNanos: nanos("Core's last figure of money that is neither lent nor pending."),
  remainingAgeMs: age('Age of that figure.'),
  accessAgeMs: age("Age of core's last answer whether the user may spend."),
  lease: Type.Optional(
    Type.Object({
      id: Type.String(),
      amountUsdNanos: Type.String({ description: 'All money lent under it.' }),
      leftUsdNanos: Type.String({ description: 'The remaining money before the call.' }),
      ageMs: Type.Integer({ description: "Age of core's last answer about it." }),
      endsInMs: Type.Integer({ description: 'Remaining time until its end.' }),
    }),
  ),
  usdPerEth: optional('The rate.'),
  rateAgeMs: age('Age of the rate.'),
  rateRaised: Type.Optional(
    Type.Boolean({ description: 'Whether an old rate with a margin was used.' }),
  ),
  limit: optional('The limit that refused the call.'),
  coreAway: Type.Optional(Type.Boolean({ description: 'Whether core did not answer.' })),
})

const decisionFields = {
  id: Type.String(),
  sidecarId: Type.String(),
  decidedAt: Instant("Time of the decision, by the sidecar's clock."),
  durationMicros: Type.Integer({
    description: 'Duration from the complete request to its answer.',
  }),
  status: Type.Integer({ description: 'Status of the answer to the signer.' }),
  code: Type.String(),
  reason: Type.String(),
  occasion: Type.String({ description: 'Reason for the record: refusal, request or sample.' }),
  rule: Type.String(),
  credential: CredentialPart,
  session: Type.Optional(SessionPart),
  money: Type.Optional(MoneyPart),
}

const DecisionAnswer = named(
  Type.Object({
    ...decisionFields,
    explanation: Type.Array(Type.String(), { description: 'The decision explained in sentences.' }),
  }),
  'Decision',
)

const DecisionList = named(
  Type.Object({
    decisions: Type.Array(Type.Object(decisionFields), { description: 'The newest first.' }),
  }),
  'DecisionList',
)

const DecisionQuery = Type.Object({
  externalUserId: Type.Optional(text('only those about this user')),
  code: Type.Optional(text('only this code')),
  limit: Type.Optional(
    Type.String({
      pattern: '^([1-9][0-9]?|100)$',
      description: 'a whole number from 1 to 100; 20 when absent',
    }),
  ),
})

const DecisionParams = Type.Object({
  ...AppParams.properties,
  decisionId: Type.String({ description: 'The member `decision` of the answer to the signer.' }),
})

/** Recorded sidecar decisions about the app's users. */
export function decisionRoutes(app: App): void {
  addSchemas(app, [DecisionAnswer, DecisionList])
  get({
    url: '/api/v1/apps/:clientId/decisions',
    guard: { kind: 'm2m_or_member' },
    operationId: 'listDecisions',
    summary: 'Recorded decisions about users of the app, the newest first',
    description:
      'Lists recorded decisions of the signer webhook: every refusal, and permissions that were requested or sampled.',
    tags: ['apps'],
    params: AppParams,
    querystring: DecisionQuery,
    response: { 200: ref(DecisionList) },
    handler: async ({ params, query: { limit, ...filter }, core }) => {
      const query = { ...params, ...filter, limit: Number(limit ?? 0) }
      return core.decisions.listDecisions(query)
    },
  })(app)
  get({
    url: '/api/v1/apps/:clientId/decisions/:decisionId',
    guard: { kind: 'm2m_or_member' },
    operationId: 'getDecision',
    summary: 'Why a call was allowed or refused',
    description:
      'Returns one decision with all of its inputs, and an explanation in sentences. The answer to the signer has the id.',
    tags: ['apps'],
    params: DecisionParams,
    response: { 200: ref(DecisionAnswer) },
    handler: async ({ params, core }) => {
      const { decision, explanation } = await core.decisions.getDecision(params)
      return { ...decision, explanation }
    },
  })(app)
}
