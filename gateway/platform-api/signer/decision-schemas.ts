import { Type } from 'typebox'
import { oneOf } from '../schemas.ts'

/** Schemas of the signer's decision request and its answer (docs/signer-webhook.md). */

const anything = { additionalProperties: true }
const integer = (description: string) => Type.Optional(Type.Integer({ description }))
const text = (description: string) => Type.Optional(Type.String({ description }))

const Headers = Type.Object(
  {},
  {
    description:
      "Headers of the end user's request: each name with a list of values, or with one value.",
    additionalProperties: Type.Unsafe<string | string[]>({
      anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'string' } }],
    }),
  },
)

const State = Type.Object(
  {
    StateID: text('The payment session.'),
    PMSessionID: text('Not read.'),
    LastUpdate: text("The signer's time of this call, RFC 3339 to the nanosecond."),
    OrchestratorAddress: text('Not read.'),
    App: text("The application's name; signers before 0.9.1 do not send it."),
    AuthExpiry: integer('Not read.'),
    SenderNonce: integer('Not read.'),
    Balance: text('Credit left at the orchestrator in wei, digits or digits/digits.'),
    InitialPricePerUnit: integer('Wei; it may exceed 2^53.'),
    InitialPixelsPerUnit: integer('Units for that price.'),
    Type: text('live, lv2v, fixed or empty.'),
    SequenceNumber: integer('0 for the first call, then one more for each call.'),
    AuthID: text('The identity from an earlier answer; empty at the first call.'),
  },
  {
    ...anything,
    description: "The signer's payment session after this call's tickets.",
  },
)

const question = { headers: Type.Optional(Headers), state: Type.Optional(State) }

export const AuthorizeRequest = Type.Object(
  {
    ...question,
    authorization: text(
      "The end user's credential, instead of one in the headers; its scheme may be omitted.",
    ),
    payload: Type.Optional(Type.Object(question, anything)),
  },
  {
    ...anything,
    description: 'headers and state, as the signer sends them; or authorization and payload.',
  },
)

export const Permission = Type.Object(
  {
    status: Type.Unsafe<200>({ type: 'integer', enum: [200] }),
    auth_id: Type.String({ description: '{clientId}:{externalUserId}, at most 256 bytes.' }),
    externalUserId: Type.String(),
    expiry: Type.Integer({
      description: 'Unix seconds until which the signer may skip this call; 0: call it each time.',
    }),
    identity: Type.Object({
      issuer: Type.String(),
      client_id: Type.String(),
      usage_subject: Type.String(),
      usage_subject_type: oneOf(['external_user_id'], 'The type of usage_subject.'),
    }),
    maxPrice: Type.Optional(
      Type.Object(
        {
          price: Type.Integer({ description: 'It may exceed 2^53.' }),
          currency: oneOf(['wei'], 'Of the price.'),
          unit: oneOf(
            ['seconds', '720p-pixel-seconds', 'fixed'],
            "The unit of the session's type.",
          ),
        },
        { description: 'The highest price that is allowed; absent without one.' },
      ),
    ),
    decision: text('Id to explain this decision; present if it was recorded.'),
  },
  { description: 'The call may be signed.' },
)

/**
 * Codes of refusals by status. 480, 481 and 482 control the signer's clients and are never sent.
 */
export const refusalCodes = {
  400: ['ambiguous_credential', 'invalid_state'],
  401: ['missing_credential', 'invalid_api_key', 'invalid_token'],
  402: ['owner_payment_method_required'],
  403: [
    'end_user_cap_reached',
    'insufficient_scope',
    'invalid_identity',
    'signer_not_bound',
    'user_inactive',
    'untyped_call',
    'limit_exceeded',
  ],
  429: ['limit_exceeded', 'rate_limited'],
  431: ['request_too_large'],
  483: [
    'insufficient_balance',
    'no_payment_method',
    'debt_ceiling_reached',
    'owner_debt_ceiling_reached',
  ],
  503: ['rate_unavailable', 'billing_unavailable', 'authorization_unavailable'],
} as const

export const Refusal = Type.Object(
  {
    status: Type.Unsafe<number>({
      type: 'integer',
      enum: Object.keys(refusalCodes).map(Number),
      description: Object.entries(refusalCodes)
        .map(([status, codes]) => `${status}: ${codes.join(', ')}.`)
        .join(' '),
    }),
    reason: Type.String({ description: "The text for the signer's client; it may change." }),
    code: oneOf([...new Set(Object.values(refusalCodes).flat())], 'Why not.'),
    decision: text("Id with which ./tollgate decision, and the app's route, explain it."),
  },
  { description: 'The call must not be signed.' },
)
