import type { Balance } from '../../proto/gen/es/tollgate/allowances/v1/allowances_pb.ts'
import type {
  PipelineModelUsage, Usage, UserUsage,
} from '../../proto/gen/es/tollgate/usage/v1/usage_pb.ts'
import { DomainError } from '../../proto/errors.ts'
import { present } from '../core.ts'

const currency = 'USD'

export interface UsageAsked { startDate?: string; endDate?: string; groupBy?: string }

/** The usage body (billing facts 6.1); rows stand in it only when they were asked for. */
export function toUsage(usage: Usage, { startDate, endDate, groupBy }: UsageAsked) {
  const { requestCount, unpricedCount, totalFeeWei, totalFeeEth, networkFeeUsdMicros } =
    present(usage.totals, 'totals')
  return {
    clientId: usage.clientId,
    source: 'ledger',
    period: { start: startDate ?? null, end: endDate ?? null },
    totals: {
      requestCount: toCount(requestCount), currency, totalFeeWei, totalFeeEth, networkFeeUsdMicros,
      unpricedCount: toCount(unpricedCount),
    },
    ...(groupBy === 'user' ? { byUser: usage.byUser.map(toUserRow) } : {}),
    ...(groupBy === 'pipeline_model' ? { byPipelineModel: usage.byPipelineModel.map(toPipelineRow) } : {}),
  }
}

function toUserRow({ endUserId, externalUserId, requestCount, feeWei, networkFeeUsdMicros }: UserUsage) {
  const known = externalUserId !== undefined
  return {
    endUserId, externalUserId: externalUserId ?? null,
    userType: known ? 'system_managed' : 'unknown', identifier: externalUserId ?? 'unknown',
    requestCount: toCount(requestCount), currency, feeWei, networkFeeUsdMicros,
  }
}

function toPipelineRow(row: PipelineModelUsage) {
  const { pipeline, modelId, requestCount, feeWei, feeEth, networkFeeUsdMicros } = row
  return {
    pipeline, modelId, requestCount: toCount(requestCount), currency,
    // The second pair of names is what existing clients read (billing facts 6.1).
    feeWei, feeEth, networkFeeWei: feeWei, networkFeeEth: feeEth, networkFeeUsdMicros,
  }
}

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
