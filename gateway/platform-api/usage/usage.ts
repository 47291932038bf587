import { Type } from 'typebox'
import type {
  PipelineModelUsage,
  SessionUsage,
  Usage as UsageMessage,
  UserUsage,
} from '../../../proto/gen/es/tollgate/usage/v1/usage_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, ref } from '../../http/schemas.ts'
import { AppParams, text } from '../schemas.ts'
import {
  type Address,
  addresses,
  refuseOtherUser,
  withCurrency,
  toQuery,
  usageQuery,
  userQuery,
  withOneUser,
} from './query.ts'
import { Usage } from './schemas.ts'

const UsageQuery = Type.Object({
  ...usageQuery,
  externalUserId: Type.Optional(
    text(
      "only this user, by the integrator's id or our endUserId; required with groupBy=daily_pipeline",
    ),
  ),
  userId: userQuery.userId,
})

/** Aggregated usage: of an app, at the current and the deprecated path, and of the token's user. */
export function usageRoutes(app: App): void {
  addSchemas(app, [Usage])
  for (const address of addresses('usage', 'getUsage')) readUsage(app, address)
  readOwnUsage(app)
}

function readUsage(app: App, address: Address): void {
  get({
    ...address,
    summary: 'Aggregated usage of the app',
    description:
      'Returns the totals of a range of time and the rows of the grouping groupBy, which add up to the totals. Without dates the range includes all usage.',
    tags: ['usage'],
    params: AppParams,
    querystring: UsageQuery,
    response: { 200: ref(Usage) },
    handler: async ({ params, query, core }) => {
      const { usage } = await core.usage.queryUsage({ ...params, ...toQuery(withOneUser(query)) })
      return toUsage(requireField(usage, 'usage'), query)
    },
  })(app)
}

const readOwnUsage = get({
  url: '/api/v1/user/usage',
  guard: { kind: 'user' },
  metered: true,
  operationId: 'getOwnUsage',
  summary: 'Own usage',
  description: 'Returns totals and rows of the user of the token.',
  tags: ['end user'],
  querystring: Type.Object(usageQuery),
  response: { 200: ref(Usage) },
  self: {
    operationId: 'getUsageOfMe',
    summary: 'What you have used',
    description:
      'Returns your totals of a range of time and the rows of the grouping groupBy. include=retail adds the amounts that you are billed.',
    params: AppParams,
    querystring: Type.Object(usageQuery),
  },
  handler: async ({ query, core }) => {
    refuseOtherUser(query)
    const { usage } = await core.usage.queryOwnUsage(toQuery(query))
    return toUsage(requireField(usage, 'usage'), query)
  },
})

interface UsageFilter {
  startDate?: string
  endDate?: string
  groupBy?: string
  gatewayRequestId?: string
}

/** Returns totals, and rows of the grouping in the query. */
function toUsage(
  usage: UsageMessage,
  { startDate, endDate, groupBy, gatewayRequestId }: UsageFilter,
) {
  const { clientId } = usage
  return {
    clientId,
    source: 'ledger',
    period: { start: startDate ?? null, end: endDate ?? null },
    totals: withCurrency(requireField(usage.totals, 'totals')),
    ...toRows(usage, groupBy),
    events:
      gatewayRequestId === undefined
        ? undefined
        : usage.events.map((event) => ({ ...event, clientId })),
  }
}

function toRows(usage: UsageMessage, groupBy: string | undefined) {
  switch (groupBy) {
    case 'user':
      return { byUser: usage.byUser.map(toUserRow) }
    case 'pipeline_model':
      return { byPipelineModel: usage.byPipelineModel.map(toPipelineRow) }
    case 'daily_pipeline':
      return { byDailyPipeline: usage.byDailyPipeline.map(toDailyRow) }
    case 'manifest':
      return { byManifest: usage.byManifest.map(withCurrency) }
    case 'session':
      return { bySession: usage.bySession.map(toSessionRow) }
    case 'day':
      return { byDay: usage.byDay.map(withCurrency) }
    case 'hour':
      return { byHour: usage.byHour.map(withCurrency) }
    case 'daily_top_models':
      return { byDailyTopModels: usage.byDailyTopModels.map(toDailyRow) }
    case 'hourly_top_models':
      return { byHourlyTopModels: usage.byHourlyTopModels.map(toPipelineRow) }
    default:
      return {}
  }
}

const toUserRow = (row: UserUsage) => ({
  ...withCurrency(row),
  userType: row.externalUserId === undefined ? 'unknown' : 'system_managed',
  identifier: row.externalUserId ?? row.endUserId,
})

/** Existing clients read the fee also by its second pair of names. */
const toPipelineRow = (row: PipelineModelUsage) => ({
  ...withCurrency(row),
  networkFeeWei: row.feeWei,
  networkFeeEth: row.feeEth,
})

const toDailyRow = (row: PipelineModelUsage) => ({
  ...toPipelineRow(row),
  date: row.date ?? 'other',
})

const toSessionRow = (row: SessionUsage) => ({
  ...withCurrency(row),
  sessionId: row.sessionId ?? 'other',
  endUserId: row.endUserId ?? 'other',
})
