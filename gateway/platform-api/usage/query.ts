import { Type } from 'typebox'
import { DomainError } from '../../../proto/errors.ts'
import { oneOf, required, text } from '../schemas.ts'

/** Rules and query parameters shared by the usage routes. */

const read = { guard: { kind: 'm2m_basic' }, limit: 'failures', metered: true } as const

/** Returns the rules of an app's figures at their current and their deprecated address. */
export function addresses(path: 'usage' | 'usage/balance', operationId: string) {
  const url = `/api/v1/builder/apps/:clientId/${path}`
  return [
    { ...read, url, operationId, members: 'read' },
    {
      ...read,
      url: `/api/v1/apps/:clientId/${path}`,
      operationId: `${operationId}Alias`,
      successor: url,
    },
  ] as const
}

export type Address = ReturnType<typeof addresses>[number]

const groupings = [
  'none',
  'user',
  'pipeline_model',
  'daily_pipeline',
  'manifest',
  'session',
  'day',
  'hour',
  'daily_top_models',
  'hourly_top_models',
] as const

export const dateQuery = {
  startDate: Type.Optional(text('ISO 8601, inclusive')),
  endDate: Type.Optional(text('ISO 8601; a date alone means the end of that UTC day')),
}

export const usageQuery = {
  ...dateQuery,
  groupBy: Type.Optional(oneOf(groupings, 'The grouping of the rows that follow the totals.')),
  include: Type.Optional(oneOf(['retail'], 'retail adds the amounts that end users are billed.')),
  includeRetail: Type.Optional(oneOf(['1', 'true', '0', 'false'], 'The same as include=retail.')),
  gatewayRequestId: Type.Optional(
    required('Only the tickets of this gateway request, with the tickets themselves.'),
  ),
  pipeline: Type.Optional(
    required('Only tickets of this pipeline; not with groupBy=manifest or session.'),
  ),
  modelId: Type.Optional(
    required('Only tickets of this model; not with groupBy=manifest or session.'),
  ),
}

export const asOf = Type.Optional(
  text(
    'ISO 8601 instant, not in the future: the balance at that time, by the booking times of grants and charges',
  ),
)
/** Both parameters that select a user (docs/decisions/44.md). */
export const userQuery = {
  externalUserId: Type.Optional(text("only this user, by the integrator's id or our endUserId")),
  userId: Type.Optional(text('the same as externalUserId')),
}

interface UserQuery {
  userId?: string
  externalUserId?: string
}

/**
 * Returns the query with the user from either parameter. Throws REQUEST_INVALID if both are given.
 */
export function withOneUser<Query extends UserQuery>({ userId, externalUserId, ...query }: Query) {
  if (userId !== undefined && externalUserId !== undefined) {
    throw new DomainError(
      'REQUEST_INVALID',
      'name the user by userId or by externalUserId, not by both',
    )
  }
  return { ...query, userId: userId ?? externalUserId }
}

interface RetailQuery {
  include?: string
  includeRetail?: string
}

/** Returns the usage query in core's form. */
export const toQuery = <Query extends RetailQuery>({
  include,
  includeRetail,
  ...query
}: Query) => ({
  ...query,
  includeRetail: include === 'retail' || includeRetail === '1' || includeRetail === 'true',
})

/**
 * Rejects a query with a user where the token selects the user: the caller would expect that user's
 * figures.
 */
export function refuseOtherUser(query: object): void {
  const name = ['userId', 'endUserId', 'externalUserId', 'external_user_id'].find((parameter) =>
    Object.hasOwn(query, parameter),
  )
  if (name === undefined) return
  throw new DomainError(
    'REQUEST_INVALID',
    `${name} is not allowed; this route returns the usage of the token's user`,
  )
}

export const withCurrency = <Row extends object>(row: Row) => ({ ...row, currency: 'USD' })
