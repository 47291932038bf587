import type * as pb from '../../proto/gen/ts-proto/tollgate/usage/v1/usage.ts'
import type { Caller, SelfCaller, UserCaller } from '../rpc/callers.ts'
import {
  type RequireMetering,
  appReader,
  endUser,
  m2mBasic,
  orMember,
  orOperator,
  orSelf,
} from '../rpc/guards.ts'
import { type Handlers, type StreamContext, rpc, streamRpc } from '../rpc/serve.ts'
import { formatDecimal18, formatEth, microsDown, microsUp, usdAttos } from '../lib/money.ts'
import type { PriceRule } from '../plans/terms.ts'
import type { Follow, StreamMessage } from './feed/follow.ts'
import type { NetworkCharge } from './feed/store.ts'
import type { History, HistoryQuery } from './history/history.ts'
import type { FindRules } from './history/rules.ts'
import type { Usage, UsageQuery } from './service.ts'
import type { ChargedRow, RequestItem, SessionEntry, Sums, Totals, UsageReport } from './types.ts'
import type { UserFinder } from './users.ts'

export interface UsageRpcDeps {
  readonly usage: Usage
  readonly history: History
  readonly follow: Follow
  readonly findUser: UserFinder
  readonly findRules: FindRules
  readonly requireMetering: RequireMetering
  /** Whether OpenMeter also reports usage. */
  readonly openmeterConfigured: boolean
}

export function createUsageRpc({
  usage,
  history,
  follow,
  findUser,
  findRules,
  requireMetering,
  openmeterConfigured,
}: UsageRpcDeps) {
  const app = orOperator(requireMetering(orMember(m2mBasic(), 'read')), appReader())
  const own = requireMetering(orSelf(endUser()))

  async function toRequests(items: readonly RequestItem[]): Promise<pb.UsageRequest[]> {
    const ruleOf = await findRules(items)
    return items.map((item) => toRequest(item, ruleOf(item)))
  }

  const toAnswer = async (clientId: string, query: UsageQuery, report: UsageReport) => ({
    usage: { ...toUsage(clientId, query, report), events: await toRequests(report.events) },
  })

  const usageService: Handlers<pb.UsageServiceServer> = {
    queryUsage: rpc(app, async (request: pb.QueryUsageRequest, caller) => {
      const query = queryOf(request)
      const report = await usage.query(caller.appId, query, request.userId)
      return toAnswer(caller.clientId, query, report)
    }),

    queryOwnUsage: rpc(own, async (request: pb.QueryOwnUsageRequest, caller) => {
      const query = queryOf(request)
      return toAnswer(caller.clientId, query, await usage.queryOwn(selfOf(caller), query))
    }),

    listUsageRequests: rpc(app, async (request: pb.ListUsageRequestsRequest, caller) => {
      const { items, nextCursor } = await history.requests(
        caller.appId,
        historyOf(request),
        request.userId,
      )
      return { requests: await toRequests(items), nextCursor, openmeterConfigured }
    }),

    listOwnUsageRequests: rpc(own, async (request: pb.ListOwnUsageRequestsRequest, caller) => {
      const { items, nextCursor } = await history.ownRequests(selfOf(caller), historyOf(request))
      return {
        requests: await toRequests(items),
        nextCursor,
        openmeterConfigured,
        clientId: caller.clientId,
        externalUserId: caller.externalUserId,
      }
    }),

    listUsageSessions: rpc(app, async (request: pb.ListUsageSessionsRequest, caller) => {
      const { items, nextCursor } = await history.sessions(
        caller.appId,
        historyOf(request),
        request.userId,
      )
      return {
        sessions: items.map(toSession),
        nextCursor,
        openmeterConfigured,
      }
    }),

    listOwnUsageSessions: rpc(own, async (request: pb.ListOwnUsageSessionsRequest, caller) => {
      const { items, nextCursor } = await history.ownSessions(selfOf(caller), historyOf(request))
      return {
        sessions: items.map(toSession),
        nextCursor,
        openmeterConfigured,
        clientId: caller.clientId,
        externalUserId: caller.externalUserId,
      }
    }),

    streamUsage: streamRpc(app, async (request: pb.StreamUsageRequest, emit: Emit, context) => {
      const user =
        request.userId === undefined ? null : await findUser(context.caller.appId, request.userId)
      await follow({
        ...streaming(emit, context),
        appId: context.caller.appId,
        userId: user?.id ?? null,
        after: request.after,
      })
    }),

    streamOwnUsage: streamRpc(
      own,
      async (request: pb.StreamOwnUsageRequest, emit: Emit, context) => {
        await follow({
          ...streaming(emit, context),
          ...selfOf(context.caller),
          userId: context.caller.userId,
          after: request.after,
        })
      },
    ),
  }
  return { usageService }
}

type Emit = (message: pb.StreamUsageResponse) => void

const streaming = <C extends Caller>(
  emit: Emit,
  { writable, reauthorize, signal }: StreamContext<C>,
) => ({
  emit: (message: StreamMessage) => emit(toStreamResponse(message)),
  writable,
  readmit: reauthorize,
  signal,
})

const selfOf = ({ appId, userId, externalUserId }: UserCaller | SelfCaller) => ({
  appId,
  id: userId,
  externalUserId,
})

const queryOf = ({
  startDate,
  endDate,
  groupBy,
  gatewayRequestId,
  includeRetail,
  pipeline,
  modelId,
}: pb.QueryOwnUsageRequest): UsageQuery => ({
  startDate,
  endDate,
  groupBy,
  gatewayRequestId,
  includeRetail,
  pipeline,
  modelId,
})

const historyOf = ({
  manifestId,
  startDate,
  endDate,
  limit,
  cursor,
}: pb.ListOwnUsageRequestsRequest): HistoryQuery => ({
  manifestId,
  startDate,
  endDate,
  limit,
  cursor,
})

// Micros are rounded once; money and counts are text. The period repeats the text of the query
// (docs/usage.md).
function toUsage(
  clientId: string,
  { startDate, endDate }: UsageQuery,
  report: UsageReport,
): Omit<pb.Usage, 'events'> {
  const rows = <T>(grouping: UsageReport['grouping'], render: (row: ChargedRow) => T): T[] =>
    report.grouping === grouping ? report.rows.map(render) : []
  return {
    clientId,
    start: startDate,
    end: endDate,
    totals: toTotals(report.totals),
    byUser: rows('user', toUser),
    byPipelineModel: rows('pipeline_model', toPipelineModel),
    byDailyPipeline: rows('daily_pipeline', toPipelineModel),
    byManifest: rows('manifest', toSessionSums),
    bySession: rows('session', toSessionSums),
    byDay: rows('day', toDay),
    byHour: rows('hour', toHour),
    byDailyTopModels: rows('daily_top_models', toPipelineModel),
    byHourlyTopModels: rows('hourly_top_models', toPipelineModel),
  }
}

const optional = (value: bigint | null): string | undefined =>
  value === null ? undefined : String(value)

const toTotals = (totals: Totals): pb.UsageTotals => ({
  requestCount: String(totals.requests),
  totalFeeWei: String(totals.fee),
  totalFeeEth: formatEth(totals.fee),
  networkFeeUsdMicros: String(totals.micros),
  unpricedCount: String(totals.unpriced),
  ownerChargeWei: String(totals.ownerWei),
  ownerChargeUsdMicros: String(totals.ownerMicros),
  platformFeeWei: String(totals.platformWei),
  platformFeeUsdMicros: String(totals.platformMicros),
  platformCutPercent:
    totals.cutBasisPoints === null
      ? undefined
      : formatDecimal18(totals.cutBasisPoints * 10n ** 16n),
  endUserBillableUsdMicros: optional(totals.billableMicros),
})

const common = (row: ChargedRow) => ({
  requestCount: String(row.requests),
  feeWei: String(row.fee),
  networkFeeUsdMicros: String(row.micros),
  ownerChargeUsdMicros: String(row.ownerMicros),
  platformFeeUsdMicros: String(row.platformMicros),
  endUserBillableUsdMicros: optional(row.billableMicros),
})

// Rows beyond the limit are merged into one last row, so that the rows still add up.
const nameOf = (row: ChargedRow): string => row.userId ?? (row.rest ? 'other' : 'unknown')
const other = 'other'

const toUser = (row: ChargedRow): pb.UserUsage => ({
  ...common(row),
  endUserId: nameOf(row),
  externalUserId: row.externalUserId ?? undefined,
})

const toPipelineModel = (row: ChargedRow): pb.PipelineModelUsage => ({
  ...common(row),
  pipeline: row.pipeline ?? other,
  modelId: row.modelId ?? other,
  feeEth: formatEth(row.fee),
  retailRateUsd: row.retailRateUsd ?? undefined,
  date: row.day ?? undefined,
  hour: row.hour ?? undefined,
})

const toSessionSums = (row: ChargedRow): pb.SessionUsage => ({
  ...common(row),
  sessionId: row.sessionId ?? undefined,
  manifestId: row.manifestId ?? other,
  endUserId: row.sessionId === null ? undefined : nameOf(row),
  externalUserId: row.externalUserId ?? undefined,
  pipeline: row.pipeline ?? other,
  modelId: row.modelId ?? other,
  networkFeeUsdExact: formatDecimal18(row.cost),
  billableSecs: plain(row.billableSecs),
  firstAt: row.rest ? undefined : row.firstAt?.toISOString(),
  lastAt: row.rest ? undefined : row.lastAt?.toISOString(),
  retailRateUsd: row.retailRateUsd ?? undefined,
})

const toDay = (row: ChargedRow): pb.DayUsage => ({ ...common(row), date: row.day ?? other })
const toHour = (row: ChargedRow): pb.HourUsage => ({ ...common(row), hour: row.hour ?? other })

/** Removes the trailing zeros that Postgres prints. */
const plain = (decimal: string): string =>
  decimal.includes('.') ? decimal.replace(/\.?0+$/, '') : decimal

const instant = (text: string): string => new Date(text).toISOString()

const toRequest = (item: RequestItem, rule: PriceRule | null): pb.UsageRequest => ({
  time: instant(item.signedAt),
  eventId: item.eventId,
  gatewayRequestId: item.requestId,
  endUserId: item.userId,
  externalUserId: item.externalUserId ?? undefined,
  appName: item.appName,
  pipeline: item.pipeline,
  modelId: item.modelId,
  manifestId: item.manifestId,
  sessionId: item.sessionId,
  sequenceNumber: String(item.sequenceNumber),
  feeWei: String(item.fee),
  networkFeeUsdMicros: item.cost === null ? undefined : String(microsUp(item.cost)),
  networkFeeUsdExact: item.cost === null ? undefined : formatDecimal18(item.cost),
  ethUsdPrice: item.usdAttosPerEth === null ? undefined : formatDecimal18(item.usdAttosPerEth),
  billableSecs: plain(item.billableSecs),
  pixels: item.pixels,
  ...(item.cost === null || item.retail === null || item.platformFee === null
    ? noCharges
    : toCharges({ ...item, cost: item.cost, retail: item.retail, platformFee: item.platformFee })),
  platformFeeWei: optional(item.platformWei),
  termsId: optional(item.termsId),
  priceRule: rule ?? undefined,
})

const noCharges = {
  endUserBillableUsdMicros: undefined,
  endUserBillableUsdExact: undefined,
  ownerChargeUsdMicros: undefined,
  platformFeeUsdExact: undefined,
}

const toCharges = ({
  cost,
  retail,
  platformFee,
}: Pick<Sums, 'cost' | 'retail' | 'platformFee'>) => ({
  endUserBillableUsdMicros: String(microsUp(retail)),
  endUserBillableUsdExact: formatDecimal18(retail),
  ownerChargeUsdMicros: String(microsUp(usdAttos(cost + platformFee))),
  platformFeeUsdExact: formatDecimal18(platformFee),
})

const toSession = (item: SessionEntry): pb.UsageSession => ({
  sessionId: item.sessionId,
  manifestId: item.manifestId,
  endUserId: item.userId,
  externalUserId: item.externalUserId ?? undefined,
  appName: item.appName,
  pipeline: item.pipeline,
  modelId: item.modelId,
  requestCount: String(item.requests),
  unpricedCount: String(item.unpriced),
  feeWei: String(item.fee),
  networkFeeUsdMicros: String(microsUp(item.cost)),
  networkFeeUsdExact: formatDecimal18(item.cost),
  billableSecs: plain(item.billableSecs),
  pixels: item.pixels,
  ...toCharges(item),
  platformFeeWei: String(item.platformWei),
  startedAt: instant(item.startedAt),
  endedAt: item.endedAt?.toISOString(),
})

const toOwnerCharge = (network: NetworkCharge | null) =>
  network === null
    ? {
        networkFeeUsdExact: undefined,
        ownerChargeUsdExact: undefined,
        platformFeeUsdExact: undefined,
      }
    : {
        networkFeeUsdExact: formatDecimal18(network.cost),
        ownerChargeUsdExact: formatDecimal18(network.cost + network.platformFee),
        platformFeeUsdExact: formatDecimal18(network.platformFee),
      }

const toStreamResponse = ({
  cursor,
  charge,
  reset,
}: StreamMessage): pb.StreamUsageResponse & pb.StreamOwnUsageResponse => ({
  cursor,
  reset,
  charge:
    charge === null
      ? undefined
      : {
          chargeId: charge.chargeId,
          endUserId: charge.userId,
          externalUserId: charge.externalUserId,
          costUsdMicros: String(microsUp(charge.cost)),
          costUsdExact: formatDecimal18(charge.cost),
          balanceUsdMicros: String(microsDown(charge.balanceAfter)),
          balanceUsdExact: formatDecimal18(charge.balanceAfter),
          overageUsdExact: formatDecimal18(charge.overage),
          ticketCount: String(charge.ticketCount),
          time: charge.createdAt.toISOString(),
          ...toOwnerCharge(charge.network),
        },
})
