import type { Balance } from '../../../proto/gen/es/tollgate/allowances/v1/allowances_pb.ts'
import type {
  DayUsage,
  PipelineModelUsage,
  SessionUsage,
  Usage,
  UsageCharge,
  UsageRequest,
  UsageSession,
  UsageTotals,
  UserUsage,
} from '../../../proto/gen/es/tollgate/usage/v1/usage_pb.ts'
import { DomainError } from '../../../proto/errors.ts'
import { present } from '../../core/client.ts'

const currency = 'USD'

export interface UsageAsked {
  startDate?: string
  endDate?: string
  groupBy?: string
  gatewayRequestId?: string
}

/** The usage body (billing facts 6.1); rows stand in it only when they were asked for. */
export function toUsage(
  usage: Usage,
  { startDate, endDate, groupBy, gatewayRequestId }: UsageAsked,
) {
  const { clientId } = usage
  return {
    clientId,
    source: 'ledger',
    period: { start: startDate ?? null, end: endDate ?? null },
    totals: toTotals(present(usage.totals, 'totals')),
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

// Optional figures stand in the answer only when core gave them.
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
  } = row
  return {
    pipeline,
    modelId,
    requestCount: toCount(requestCount),
    currency,
    // The second pair of names is what existing clients read (billing facts 6.1).
    feeWei,
    feeEth,
    networkFeeWei: feeWei,
    networkFeeEth: feeEth,
    networkFeeUsdMicros,
    ownerChargeUsdMicros,
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
  ...billable(row),
})

/** One ticket (billing facts 6.3). */
export const toRequest = (item: UsageRequest, clientId: string) => ({
  time: item.time,
  clientId,
  appName: item.appName,
  endUserId: item.endUserId,
  externalUserId: item.externalUserId ?? null,
  eventId: item.eventId,
  gatewayRequestId: item.gatewayRequestId,
  pipeline: item.pipeline,
  modelId: item.modelId,
  manifestId: item.manifestId,
  sessionId: item.sessionId,
  sequenceNumber: item.sequenceNumber,
  feeWei: item.feeWei,
  networkFeeUsdMicros: item.networkFeeUsdMicros ?? null,
  networkFeeUsdExact: item.networkFeeUsdExact ?? null,
  ethUsdPrice: item.ethUsdPrice ?? null,
  billableSecs: item.billableSecs,
  pixels: item.pixels,
})

/** One signer session (billing facts 6.3). */
export const toSession = (item: UsageSession, clientId: string) => ({
  sessionId: item.sessionId,
  manifestId: item.manifestId,
  clientId,
  appName: item.appName,
  endUserId: item.endUserId,
  externalUserId: item.externalUserId ?? null,
  pipeline: item.pipeline,
  modelId: item.modelId,
  requestCount: toCount(item.requestCount),
  unpricedCount: toCount(item.unpricedCount),
  feeWei: item.feeWei,
  networkFeeUsdMicros: item.networkFeeUsdMicros,
  networkFeeUsdExact: item.networkFeeUsdExact,
  billableSecs: item.billableSecs,
  pixels: item.pixels,
  startedAt: item.startedAt,
  ...(item.endedAt === undefined ? {} : { endedAt: item.endedAt }),
})

/** What one batch took from one user. */
export const toCharge = (charge: UsageCharge) => ({
  chargeId: charge.chargeId,
  endUserId: charge.endUserId,
  externalUserId: charge.externalUserId,
  costUsdMicros: charge.costUsdMicros,
  costUsdExact: charge.costUsdExact,
  balanceUsdMicros: charge.balanceUsdMicros,
  balanceUsdExact: charge.balanceUsdExact,
  overageUsdExact: charge.overageUsdExact,
  ticketCount: toCount(charge.ticketCount),
  time: charge.time,
})

export const toBalance = (balance: Balance) => ({
  externalUserId: balance.externalUserId,
  balanceUsdMicros: balance.balanceUsdMicros,
  remainingUsdMicros: balance.remainingUsdMicros,
  consumedUsdMicros: balance.consumedUsdMicros,
  lifetimeGrantedUsdMicros: balance.lifetimeGrantedUsdMicros,
  hasAccess: balance.hasAccess,
  unpricedCount: toCount(balance.unpricedTickets),
  ...(balance.asOf === undefined ? {} : { asOf: balance.asOf }),
})

/** A number of tickets as a JSON integer. */
function toCount(text: string): number {
  const count = Number(text || '0')
  if (Number.isSafeInteger(count) && count >= 0) return count
  throw new DomainError('INTERNAL', "core's answer holds a count that is none")
}
