import type * as pb from '../../proto/gen/ts-proto/tollgate/usage/v1/usage.ts'
import { m2mBasic, user } from '../callers.ts'
import { formatEth } from '../lib/money.ts'
import { type Handlers, rpc } from '../serve.ts'
import type { Usage, UsageQuery } from './service.ts'
import type { PipelineModelSums, Shown, Sums, UsageReport, UserSums } from './types.ts'

export function createUsageRpc({ usage }: { usage: Usage }) {
  const usageService: Handlers<pb.UsageServiceServer> = {
    queryUsage: rpc(m2mBasic(), async (request: pb.QueryUsageRequest, caller) => {
      const query = queryOf(request)
      return { usage: toUsage(caller.clientId, query, await usage.query(caller.appId, query, request.userId)) }
    }),

    queryOwnUsage: rpc(user(), async (request: pb.QueryOwnUsageRequest, caller) => {
      const query = queryOf(request)
      const own = { appId: caller.appId, id: caller.userId, externalUserId: caller.externalUserId }
      return { usage: toUsage(caller.clientId, query, await usage.queryOwn(own, query)) }
    }),
  }
  return { usageService }
}

const queryOf = ({ startDate, endDate, groupBy }: pb.QueryOwnUsageRequest): UsageQuery => ({ startDate, endDate, groupBy })

// The period is echoed as it was asked for (billing facts 6.1).
const toUsage = (clientId: string, { startDate, endDate }: UsageQuery, report: UsageReport): pb.Usage => ({
  clientId, start: startDate, end: endDate, totals: toTotals(report.totals), byUser: report.byUser.map(toUser),
  byPipelineModel: report.byPipelineModel.map(toPipelineModel),
})

const toTotals = (sums: Shown<Sums>): pb.UsageTotals => ({
  requestCount: String(sums.requests), totalFeeWei: String(sums.fee), totalFeeEth: formatEth(sums.fee),
  networkFeeUsdMicros: String(sums.micros), unpricedCount: String(sums.unpriced),
})

// More users than rows come together in one last row, so that the rows still add up.
const toUser = (sums: Shown<UserSums>): pb.UserUsage => ({
  endUserId: sums.userId ?? 'other', externalUserId: sums.externalUserId ?? undefined, requestCount: String(sums.requests),
  feeWei: String(sums.fee), networkFeeUsdMicros: String(sums.micros),
})

const toPipelineModel = (sums: Shown<PipelineModelSums>): pb.PipelineModelUsage => ({
  pipeline: sums.pipeline, modelId: sums.modelId, requestCount: String(sums.requests), feeWei: String(sums.fee),
  feeEth: formatEth(sums.fee), networkFeeUsdMicros: String(sums.micros),
})
