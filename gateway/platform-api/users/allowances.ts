import { Type } from 'typebox'
import type {
  Allowance as AllowanceMessage,
  Grant as GrantMessage,
} from '../../../proto/gen/es/tollgate/allowances/v1/allowances_pb.ts'
import { present } from '../../core/client.ts'
import type { App } from '../../http/listener.ts'
import { IdempotencyHeader, UserParams } from '../request-schemas.ts'
import { route } from '../../http/route.ts'
import { Allowance, GrantedAllowance, grantSources, oneOf, ref } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/users/:externalUserId/allowances'
// The old name, for reading only (service specification, Versioning).
const creditsUrl = '/api/v1/apps/:clientId/users/:externalUserId/credits'
const tags = ['allowances']

const GrantBody = Type.Object(
  {
    amountUsdMicros: Type.String({
      pattern: '^[1-9][0-9]{0,29}$',
      description: 'a positive integer in a string, at most 1000000000000000 (10^15)',
    }),
    source: Type.Optional(oneOf(grantSources, 'manual when absent')),
    featureKey: Type.Optional(
      Type.Unsafe<string | null>({
        type: 'string',
        nullable: true,
        maxLength: 200,
        description: 'pays for this feature only',
      }),
    ),
  },
  { additionalProperties: false },
)

/** What a user may spend, and grants on top of the Starter allowance. */
export function allowanceRoutes(app: App): void {
  const guard = { kind: 'm2m', scope: 'users:read' } as const
  for (const [address, rules] of [
    [url, { guard }],
    [creditsUrl, { guard, successor: url }],
  ] as const) {
    app.get(
      address,
      route(rules, {
        summary: 'Allowance detail',
        tags,
        params: UserParams,
        response: { 200: ref(Allowance) },
      }),
      async ({ params, core }) => {
        const { allowance } = await core.allowances.read(params)
        return toAllowance(present(allowance, 'allowance'))
      },
    )
  }

  app.post(
    url,
    route(
      { guard: { kind: 'm2m', scope: 'users:write' }, amounts: ['amountUsdMicros'] },
      {
        summary: 'Grant an amount on top of what is there',
        tags,
        params: UserParams,
        headers: IdempotencyHeader,
        body: GrantBody,
        response: { 200: ref(GrantedAllowance) },
      },
    ),
    async ({ params, headers, body, core }) => {
      const { allowance, grant } = await core.allowances.grant({
        ...params,
        amountUsdMicros: body.amountUsdMicros,
        source: body.source ?? 'manual',
        featureKey: body.featureKey?.trim() || undefined,
        idempotencyKey: headers['idempotency-key'],
      })
      return {
        ...toAllowance(present(allowance, 'allowance')),
        grant: toGrant(present(grant, 'grant')),
      }
    },
  )
}

function toAllowance(allowance: AllowanceMessage) {
  const { balanceUsdMicros, consumedUsdMicros, lifetimeGrantedUsdMicros, hasAccess } = allowance
  const amounts = { balanceUsdMicros, consumedUsdMicros, lifetimeGrantedUsdMicros }
  return {
    externalUserId: allowance.externalUserId,
    ...amounts,
    grants: allowance.grants.map(toGrant),
    remainingUsdMicros: allowance.remainingUsdMicros,
    hasAccess,
    // Existing clients read the figures from here (billing facts 7.1).
    allowances: { ...amounts, hasAccess },
  }
}

const toGrant = (grant: GrantMessage) => ({
  id: grant.id,
  amountUsdMicros: grant.amountUsdMicros,
  source: present(
    grantSources.find((source) => source === grant.source),
    'source',
  ),
  createdAt: grant.createdAt,
  featureKey: grant.featureKey ?? null,
  expiresAt: grant.expiresAt ?? null,
  remainingUsdMicros: grant.remainingUsdMicros,
})
