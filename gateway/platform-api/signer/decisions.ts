import { Type } from 'typebox'
import type { Decision } from '../../../proto/gen/es/tollgate/signer/v1/decisions_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { route } from '../../http/route.ts'
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
  externalUserId: optional('Whom it stands for.'),
  source: optional('Where that was known from: memory, redis, core or token.'),
  ageMs: age('Since it was verified there.'),
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
  source: Type.String({ description: 'Where the money came from: lease, core, offline or none.' }),
  boundUsdNanos: nanos('The most that the call can cost.'),
  remainingUsdNanos: nanos('What core last said to be neither lent nor pending.'),
  remainingAgeMs: age('Since core said so.'),
  accessAgeMs: age('Since core last said whether the user may spend.'),
  lease: Type.Optional(
    Type.Object({
      id: Type.String(),
      amountUsdNanos: Type.String({ description: 'All that was lent under it.' }),
      leftUsdNanos: Type.String({ description: 'What was left before the call.' }),
      ageMs: Type.Integer({ description: "Since core's last answer about it." }),
      endsInMs: Type.Integer({ description: 'Until its end.' }),
    }),
  ),
  usdPerEth: optional('The rate.'),
  rateAgeMs: age('Since the rate was observed.'),
  rateRaised: Type.Optional(Type.Boolean({ description: 'An old rate with a margin.' })),
  limit: optional('Which limit refused.'),
  coreAway: Type.Optional(Type.Boolean({ description: 'Core did not answer.' })),
})

const decisionFields = {
  id: Type.String(),
  sidecarId: Type.String(),
  decidedAt: Instant("By the sidecar's clock."),
  durationMicros: Type.Integer({ description: 'From the whole request to its answer.' }),
  status: Type.Integer({ description: 'Of the answer to the signer.' }),
  code: Type.String(),
  reason: Type.String(),
  occasion: Type.String({ description: 'Why it is recorded: refusal, request or sample.' }),
  rule: Type.String(),
  credential: CredentialPart,
  session: Type.Optional(SessionPart),
  money: Type.Optional(MoneyPart),
}

const DecisionAnswer = named(
  Type.Object({
    ...decisionFields,
    explanation: Type.Array(Type.String(), { description: 'The same in sentences.' }),
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
  app.get(
    '/api/v1/apps/:clientId/decisions',
    route(
      { guard: { kind: 'm2m_or_member' } },
      {
        operationId: 'listDecisions',
        summary: 'Recorded decisions about users of the app, the newest first',
        description:
          'Decisions of the signer webhook that were recorded: every refusal, and permissions that were asked for or sampled.',
        tags: ['apps'],
        params: AppParams,
        querystring: DecisionQuery,
        response: { 200: ref(DecisionList) },
      },
    ),
    async ({ params, query: { limit, ...filter }, core }) => {
      const query = { ...params, ...filter, limit: Number(limit ?? 0) }
      return { decisions: (await core.decisions.list(query)).decisions.map(toDecision) }
    },
  )
  app.get(
    '/api/v1/apps/:clientId/decisions/:decisionId',
    route(
      { guard: { kind: 'm2m_or_member' } },
      {
        operationId: 'getDecision',
        summary: 'Why a call was allowed or refused',
        description:
          'One decision with all that it rested on, and the same in sentences. The id stands in the answer to the signer.',
        tags: ['apps'],
        params: DecisionParams,
        response: { 200: ref(DecisionAnswer) },
      },
    ),
    async ({ params, core }) => {
      const { decision, explanation } = await core.decisions.get(params)
      return { ...toDecision(requireField(decision, 'decision')), explanation }
    },
  )
}

const toDecision = ({ credential, ...decision }: Decision) => ({
  ...decision,
  credential: requireField(credential, 'credential'),
})
