import { Type } from 'typebox'
import { Scope } from '../../../proto/scopes.ts'
import type { Allowance as AllowanceMessage } from '../../../proto/gen/es/tollgate/balances/v1/allowances_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { meteringReasons } from '../../http/route.ts'
import { IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import {
  FeatureBalances,
  Instant,
  Micros,
  UserParams,
  allowanceAmounts,
  canSpend,
  nullable,
  oneOf,
  spendRefusal,
} from '../schemas.ts'

const url = '/api/v1/apps/:clientId/users/:externalUserId/allowances'
// The deprecated path; read only.
const creditsUrl = '/api/v1/apps/:clientId/users/:externalUserId/credits'
const tags = ['allowances']
const refuses = meteringReasons
const grantRefuses = [...meteringReasons, 'FEATURE_UNKNOWN'] as const

const creditSources = ['trial', 'manual', 'promo', 'plan_adjustment'] as const

const Credit = named(
  Type.Object({
    id: Type.String(),
    amountUsdMicros: Micros('The granted amount.'),
    source: oneOf(creditSources, 'The reason of the grant.'),
    createdAt: Instant('When it was granted.'),
    featureKey: nullable({ description: 'Set if the grant pays for one feature only.' }),
    expiresAt: nullable({ format: 'date-time' }),
    remainingUsdMicros: Micros('The remaining amount.'),
  }),
  'Grant',
)

const { hasAccess, ...amounts } = allowanceAmounts

const allowanceFields = {
  externalUserId: Type.String(),
  ...amounts,
  grants: Type.Array(ref(Credit)),
  remainingUsdMicros: Micros('The money that may pay for any call, minus held money.'),
  hasAccess,
  canSpend,
  spendRefusal,
  featureBalances: FeatureBalances,
  allowances: Type.Object({ ...amounts, hasAccess }, { description: 'The same figures again.' }),
}

const Allowance = named(Type.Object(allowanceFields), 'Allowance')
const CreditedAllowance = named(
  Type.Object({ ...allowanceFields, grant: ref(Credit) }),
  'GrantedAllowance',
)

const CreditBody = Type.Object(
  {
    amountUsdMicros: Type.String({
      pattern: '^[1-9][0-9]{0,29}$',
      description: 'a positive integer in a string, at most 1000000000000000 (10^15)',
    }),
    source: Type.Optional(oneOf(creditSources, 'manual when absent')),
    featureKey: Type.Optional(
      Type.Unsafe<string | null>({
        type: 'string',
        nullable: true,
        maxLength: 200,
        description:
          'pays for this feature only: network_spend (anything), a pipeline of the catalogue, or pipeline:modelId',
      }),
    ),
  },
  { additionalProperties: false },
)

/** A user's allowance, and credit on top of the Starter allowance (`grants` on the wire). */
export function allowanceRoutes(app: App): void {
  addSchemas(app, [Credit, Allowance, CreditedAllowance])
  readAllowance(app)
  createCredit(app)
}

function readAllowance(app: App): void {
  const guard = { kind: 'm2m', scope: Scope.usersRead } as const
  for (const [address, operationId, rules] of [
    [url, 'getAllowance', { guard, refuses, members: 'read' }],
    [creditsUrl, 'getCredits', { guard, refuses, successor: url }],
  ] as const) {
    get({
      url: address,
      ...rules,
      operationId,
      summary: 'Allowance detail',
      description:
        "Returns the user's balance, and the grants in effect with their remaining amounts. The figures count money that can pay for any call; featureBalances lists money that is bound to a feature.",
      tags,
      params: UserParams,
      response: { 200: ref(Allowance) },
      handler: async ({ params, core }) => {
        const { allowance } = await core.allowances.getAllowance(params)
        return toAllowance(requireField(allowance, 'allowance'))
      },
    })(app)
  }
}

const createCredit = post({
  url,
  guard: { kind: 'm2m', scope: Scope.usersWrite },
  members: 'edit',
  amounts: ['amountUsdMicros'],
  refuses: grantRefuses,
  operationId: 'createGrant',
  summary: 'Add credit to the balance',
  description:
    "Adds credit to the user's balance; earlier credit stays. With featureKey the credit pays only for calls of that feature. Always send an Idempotency-Key, so that a repeated request grants once; without one each request grants again.",
  tags,
  params: UserParams,
  headers: IdempotencyHeader,
  body: CreditBody,
  response: { 200: ref(CreditedAllowance) },
  handler: async ({ params, headers, body, core }) => {
    const { allowance, grant } = await core.allowances.createGrant({
      ...params,
      amountUsdMicros: body.amountUsdMicros,
      source: body.source ?? 'manual',
      featureKey: body.featureKey?.trim() || undefined,
      idempotencyKey: headers['idempotency-key'],
    })
    return {
      ...toAllowance(requireField(allowance, 'allowance')),
      grant,
    }
  },
})

/** Existing clients read the figures also in `allowances`. */
const toAllowance = ({ spendRefusal: refusal, ...allowance }: AllowanceMessage) => ({
  ...allowance,
  ...(refusal === '' ? {} : { spendRefusal: refusal }),
  allowances: allowance,
})
