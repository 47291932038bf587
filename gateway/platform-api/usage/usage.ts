import { Type } from 'typebox'
import type {
  DayUsage,
  PipelineModelUsage,
  SessionUsage,
  Usage as UsageMessage,
  UsageTotals,
  UserUsage,
} from '../../../proto/gen/es/tollgate/usage/v1/usage_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { route } from '../../http/route.ts'
import { addSchemas, ref } from '../../http/schemas.ts'
import { AppParams, text } from '../schemas.ts'
import { toRequest } from './history.ts'
import { refuseOtherUser, toCount, toQuery, usageQuery, userQuery, withOneUser } from './query.ts'
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
const currency = 'USD'

/** Aggregated usage: of an app, at the current and the deprecated path, and of the token's user. */
export function usageRoutes(app: App): void {
  addSchemas(app, [Usage])
  const url = '/api/v1/builder/apps/:clientId/usage'
  readUsage(app, { url, operationId: 'getUsage' })
  readUsage(app, {
    url: '/api/v1/apps/:clientId/usage',
    operationId: 'getUsageAlias',
    successor: url,
  })
  readOwnUsage(app)
}

interface Address {
  readonly url: string
  readonly operationId: string
  readonly successor?: string
}

function readUsage(app: App, { url, operationId, successor }: Address): void {
  app.get(
    url,
    route(
      {
        guard: { kind: 'm2m_basic' },
        limit: 'failures',
        metered: true,
        ...(successor === undefined ? {} : { successor }),
      },
      {
        operationId,
        summary: 'Aggregated usage of the app',
        description:
          'Returns the totals of a range of time and the rows of the grouping groupBy, which add up to the totals. Without dates the range includes all usage.',
        tags: ['usage'],
        params: AppParams,
        querystring: UsageQuery,
        response: { 200: ref(Usage) },
      },
    ),
    async ({ params, query, core }) => {
      const { usage } = await core.usage.query({ ...params, ...toQuery(withOneUser(query)) })
      return toUsage(requireField(usage, 'usage'), query)
    },
  )
}

function readOwnUsage(app: App): void {
  app.get(
    '/api/v1/user/usage',
    route(
      { guard: { kind: 'user' }, metered: true },
      {
        operationId: 'getOwnUsage',
        summary: 'Own usage',
        description: 'Returns totals and rows of the user of the token.',
        tags: ['end user'],
        querystring: Type.Object(usageQuery),
        response: { 200: ref(Usage) },
      },
    ),
    async ({ query, core }) => {
      refuseOtherUser(query)
      const { usage } = await core.usage.queryOwn(toQuery(query))
      return toUsage(requireField(usage, 'usage'), query)
    },
  )
}

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
    totals: toTotals(requireField(usage.totals, 'totals')),
    ...(groupBy === 'user' ? { byUser: usage.byUser.map(toUserRow) } : {}),
    ...(groupBy === 'pipeline_model'
      ? { byPipelineModel: usage.byPipelineModel.map(toPipelineRow) }
      : {}),
    ...(groupBy === 'daily_pipeline'
      ? { byDailyPipeline: usage.byDailyPipeline.map(toDailyRow) }
      : {}),
    ...(groupBy === 'manifest' ? { byManifest: usage.byManifest.map(toManifestRow) } : {}),
    ...(groupBy === 'session' ? { bySession: usage.bySession.map(toSessionRow) } : {}),
    ...(groupBy === 'day' ? { byDay: usage.byDay.map(toDayRow) } : {}),
    ...(gatewayRequestId === undefined
      ? {}
      : { events: usage.events.map((event) => toRequest(event, clientId)) }),
  }
}

// Retail figures are present only if core calculated them.
const billable = ({
  endUserBillableUsdMicros,
}: {
  endUserBillableUsdMicros?: string | undefined
}) => (endUserBillableUsdMicros === undefined ? {} : { endUserBillableUsdMicros })
const rate = ({ retailRateUsd }: { retailRateUsd?: string | undefined }) =>
  retailRateUsd === undefined ? {} : { retailRateUsd }

const toTotals = (totals: UsageTotals) => ({
  requestCount: toCount(totals.requestCount),
  currency,
  totalFeeWei: totals.totalFeeWei,
  totalFeeEth: totals.totalFeeEth,
  networkFeeUsdMicros: totals.networkFeeUsdMicros,
  ownerChargeWei: totals.ownerChargeWei,
  ownerChargeUsdMicros: totals.ownerChargeUsdMicros,
  platformFeeWei: totals.platformFeeWei,
  platformFeeUsdMicros: totals.platformFeeUsdMicros,
  platformCutPercent: totals.platformCutPercent ?? null,
  unpricedCount: toCount(totals.unpricedCount),
  ...billable(totals),
})

function toUserRow(row: UserUsage) {
  const {
    endUserId,
    externalUserId,
    requestCount,
    feeWei,
    networkFeeUsdMicros,
    ownerChargeUsdMicros,
    platformFeeUsdMicros,
  } = row
  const known = externalUserId !== undefined
  return {
    endUserId,
    externalUserId: externalUserId ?? null,
    userType: known ? 'system_managed' : 'unknown',
    identifier: externalUserId ?? endUserId,
    requestCount: toCount(requestCount),
    currency,
    feeWei,
    networkFeeUsdMicros,
    ownerChargeUsdMicros,
    platformFeeUsdMicros,
    ...billable(row),
  }
}

function toPipelineRow(row: PipelineModelUsage) {
  const {
    pipeline,
    modelId,
    requestCount,
    feeWei,
    feeEth,
    networkFeeUsdMicros,
    ownerChargeUsdMicros,
    platformFeeUsdMicros,
  } = row
  return {
    pipeline,
    modelId,
    requestCount: toCount(requestCount),
    currency,
    // Existing clients read the second pair of names.
    feeWei,
    feeEth,
    networkFeeWei: feeWei,
    networkFeeEth: feeEth,
    networkFeeUsdMicros,
    ownerChargeUsdMicros,
    platformFeeUsdMicros,
    ...rate(row),
    ...billable(row),
  }
}

const toDailyRow = (row: PipelineModelUsage) => ({
  date: row.date ?? 'other',
  ...toPipelineRow(row),
})

const toManifestRow = (row: SessionUsage) => ({
  manifestId: row.manifestId,
  pipeline: row.pipeline,
  modelId: row.modelId,
  requestCount: toCount(row.requestCount),
  currency,
  feeWei: row.feeWei,
  networkFeeUsdMicros: row.networkFeeUsdMicros,
  networkFeeUsdExact: row.networkFeeUsdExact,
  ownerChargeUsdMicros: row.ownerChargeUsdMicros,
  platformFeeUsdMicros: row.platformFeeUsdMicros,
  billableSecs: row.billableSecs,
  ...(row.firstAt === undefined ? {} : { firstAt: row.firstAt }),
  ...(row.lastAt === undefined ? {} : { lastAt: row.lastAt }),
  ...rate(row),
  ...billable(row),
})

const toSessionRow = (row: SessionUsage) => ({
  sessionId: row.sessionId ?? 'other',
  endUserId: row.endUserId ?? 'other',
  externalUserId: row.externalUserId ?? null,
  ...toManifestRow(row),
})

const toDayRow = (row: DayUsage) => ({
  date: row.date,
  requestCount: toCount(row.requestCount),
  currency,
  feeWei: row.feeWei,
  networkFeeUsdMicros: row.networkFeeUsdMicros,
  ownerChargeUsdMicros: row.ownerChargeUsdMicros,
  platformFeeUsdMicros: row.platformFeeUsdMicros,
  ...billable(row),
})
