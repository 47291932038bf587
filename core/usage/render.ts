import type * as pb from '../../proto/gen/ts-proto/tollgate/usage/v1/usage.ts'
import { formatDecimal18, formatEth, microsDown, microsUp } from '../lib/money.ts'
import type { Said } from './feed/follow.ts'
import type { UsageQuery } from './service.ts'
import type { RequestItem, SessionItem, Shown, Totals, UsageReport } from './types.ts'

/** Usage as it goes over the wire: micros rounded once, money and counts as text. */

// The period is echoed as it was asked for (billing facts 6.1).
export function toUsage(
  clientId: string,
  { startDate, endDate }: UsageQuery,
  report: UsageReport,
): pb.Usage {
  const rows = <T>(grouping: UsageReport['grouping'], render: (row: Shown) => T): T[] =>
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
    events: report.events.map(toRequest),
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

const common = (row: Shown) => ({
  requestCount: String(row.requests),
  feeWei: String(row.fee),
  networkFeeUsdMicros: String(row.micros),
  ownerChargeUsdMicros: String(row.ownerMicros),
  endUserBillableUsdMicros: optional(row.billableMicros),
})

// More rows than are shown come together in one last row, so that they still add up.
const nameOf = (row: Shown): string => row.userId ?? (row.rest ? 'other' : 'unknown')
const other = 'other'

const toUser = (row: Shown): pb.UserUsage => ({
  ...common(row),
  endUserId: nameOf(row),
  externalUserId: row.externalUserId ?? undefined,
})

const toPipelineModel = (row: Shown): pb.PipelineModelUsage => ({
  ...common(row),
  pipeline: row.pipeline ?? other,
  modelId: row.modelId ?? other,
  feeEth: formatEth(row.fee),
  retailRateUsd: row.retailRateUsd ?? undefined,
  date: row.day ?? undefined,
})

const toSessionSums = (row: Shown): pb.SessionUsage => ({
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

const toDay = (row: Shown): pb.DayUsage => ({ ...common(row), date: row.day ?? other })

/** A decimal without the zeros that Postgres keeps at its end. */
const plain = (decimal: string): string =>
  decimal.includes('.') ? decimal.replace(/\.?0+$/, '') : decimal

const instant = (text: string): string => new Date(text).toISOString()

export const toRequest = (item: RequestItem): pb.UsageRequest => ({
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
})

export const toSession = (item: SessionItem, endedAt: Date | null): pb.UsageSession => ({
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
  startedAt: instant(item.startedAt),
  endedAt: endedAt?.toISOString(),
})

export const toSaid = ({
  cursor,
  charge,
  reset,
}: Said): pb.StreamUsageResponse & pb.StreamOwnUsageResponse => ({
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
          ticketCount: String(charge.ticketCount ?? 0),
          time: charge.createdAt.toISOString(),
        },
})
