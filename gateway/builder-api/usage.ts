import { type Static, Type } from 'typebox'
import { DomainError } from '../../proto/errors.ts'
import type { QueryMeterResponse } from '../../proto/gen/es/tollgate/usage/v1/meters_pb.ts'
import type { CoreCalls } from '../core/client.ts'
import type { App } from '../http/app.ts'
import { type RouteRules, route } from '../http/route.ts'
import { addSchemas, named, ref } from '../http/schemas.ts'
import { AppParams, oneOf } from '../platform-api/schemas.ts'

const meters = [
  'network_fee_usd_micros',
  'billable_usd_micros',
  'signed_ticket_count',
  'fee_wei',
  'billable_secs',
  'network_fee_usd_micros_by_manifest',
] as const

const groupByMax = 20

const instant = (description: string) =>
  Type.Optional(Type.String({ format: 'date-time', description }))

/** The parameters as documented. */
export const MeterParameters = Type.Object({
  meter: oneOf(meters, 'The meter to sum.'),
  externalUserId: Type.Optional(
    Type.String({ description: 'If present, it must be the user of the credential.' }),
  ),
  from: instant('Start of the range, inclusive; the first usage when absent.'),
  to: instant('End of the range, exclusive; now when absent.'),
  groupBy: Type.Optional(
    Type.Array(Type.String(), {
      maxItems: groupByMax,
      description:
        'Dimensions of the meter: pipeline, model_id, and manifest_id of fee_wei, billable_secs and network_fee_usd_micros_by_manifest. client_id and external_user_id are always present.',
    }),
  ),
})

// Core validates the values, in the order of the specification. A parameter that occurs once is a
// string, not a list.
const text = Type.Optional(Type.String())
/** The parameters as the route validates them. */
export const AnyParameters = Type.Object(
  {
    meter: text,
    externalUserId: text,
    from: text,
    to: text,
    groupBy: Type.Optional(
      Type.Union([
        Type.Array(Type.String(), {
          maxItems: groupByMax,
          description: `at most ${groupByMax} dimensions`,
        }),
        Type.String(),
      ]),
    ),
  },
  { additionalProperties: false },
)
export type AnyParameters = Static<typeof AnyParameters>

export const MeterUsage = Type.Object({
  clientId: Type.String(),
  meter: Type.String(),
  actor: Type.String({ description: 'Whose usage it is: the user of the credential.' }),
  subjects: Type.Array(Type.String()),
  rows: Type.Array(
    Type.Object({
      subject: Type.String(),
      windowStart: Type.String({ format: 'date-time' }),
      windowEnd: Type.String({ format: 'date-time' }),
      value: Type.Number({ description: 'The sum as a number; not exact above 2^53.' }),
      valueExact: Type.String({ description: 'The sum as an exact decimal.' }),
      groupBy: Type.Record(Type.String(), Type.String()),
    }),
  ),
})
const NamedMeterUsage = named(MeterUsage, 'MeterUsage')

const usualRules: RouteRules = {
  guard: { kind: 'actor' },
  limit: 'failures',
  refuses: ['METERING_NOT_CONFIGURED', 'METERING_FAILED'],
}

/** Adds the metered usage of the calling user; no other user can be queried. */
export function usageRoutes(app: App, rules: RouteRules = usualRules): void {
  addSchemas(app, [NamedMeterUsage])
  const { config, schema } = route({
    ...rules,
    operationId: 'queryUsage',
    summary: 'Metered usage of the caller',
    description:
      'The sums of one meter for the user of the credential. Without usage the answer has no rows. The rows of a meter in micros add up exactly to the sum of all usage.',
    tags: ['usage'],
    params: AppParams,
    querystring: AnyParameters,
    response: { 200: ref(NamedMeterUsage) },
  })
  app.get(
    '/api/v1/apps/:clientId/usage',
    {
      config: { ...config, documentedQuery: MeterParameters },
      schema,
      // A missing app id is reported before any other error.
      onRequest: async ({ params }) => requireClientId(params),
    },
    async ({ params: { clientId }, query, core }, reply) =>
      reply.header('cache-control', 'no-store').send(await queryUsage(core, { clientId, query })),
  )
}

/**
 * Returns the usage of the user whose credential the calls carry. Throws core's refusals, in the
 * order of docs/builder-api.md.
 */
export async function queryUsage(
  core: CoreCalls,
  { clientId, query }: { readonly clientId: string; readonly query: AnyParameters },
): Promise<Static<typeof MeterUsage>> {
  const { groupBy = [], ...rest } = query
  const dimensions = typeof groupBy === 'string' ? [groupBy] : groupBy
  const answer = await core.meters.queryMeter({ clientId, ...rest, groupBy: dimensions })
  return toUsage(answer, { clientId, meter: rest.meter ?? '' })
}

export function requireClientId(params: unknown): void {
  const { clientId } = Object(params)
  if (clientId === '') throw new DomainError('REQUEST_INVALID', 'clientId is required')
}

function toUsage(
  { externalUserId, rows }: QueryMeterResponse,
  { clientId, meter }: { clientId: string; meter: string },
) {
  const subject = `${clientId}:${externalUserId}`
  return {
    clientId,
    meter,
    actor: externalUserId,
    subjects: [subject],
    rows: rows.map(({ windowStart, windowEnd, value, dimensions }) => ({
      subject,
      windowStart,
      windowEnd,
      value: Number(value),
      valueExact: value,
      groupBy: dimensions,
    })),
  }
}
