import type * as pb from '../../../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import type { DateRange } from '../../lib/time.ts'
import { type RequireMetering, m2mBasic, operator } from '../../rpc/callers.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { LossReports, SessionLoss } from './report.ts'
import type { AppLoss, LossSums } from './store.ts'

export function createLossRpc({
  losses,
  requireMetering,
}: {
  losses: LossReports
  requireMetering: RequireMetering
}) {
  const lossService: Handlers<pb.LossServiceServer> = {
    listLoss: rpc(requireMetering(m2mBasic()), async (request: pb.ListLossRequest, caller) => {
      const { startDate, endDate, cursor, limit } = request
      const report = await losses.ofApp(caller.appId, { startDate, endDate, cursor, limit })
      return {
        clientId: caller.clientId,
        period: toPeriod(report.period),
        totals: toTotals(report.totals),
        sessions: report.sessions.map(toSession),
        nextCursor: report.nextCursor,
      }
    }),

    getLossReport: rpc(
      operator(),
      async ({ clientId, startDate, endDate }: pb.GetLossReportRequest) => {
        const { period, totals, apps, sessions, unattributed } = await losses.report(clientId, {
          startDate,
          endDate,
        })
        return {
          period: toPeriod(period),
          totals: toTotals(totals),
          apps: apps.map(toApp),
          sessions: sessions.map(toSession),
          unattributedEvents: String(unattributed.events),
          unattributedFeeWei: String(unattributed.fee),
        }
      },
    ),
  }
  return { lossService }
}

// Periods are half-open inside; the API shows their last millisecond (decision 36).
const toPeriod = ({ start, end }: DateRange): pb.LossPeriod => ({
  start: start?.toISOString(),
  end: end ? new Date(end.getTime() - 1).toISOString() : undefined,
})

const toTotals = ({ sessions, lost, estimate, forked, late }: LossSums): pb.LossTotals => ({
  sessionCount: String(sessions),
  lostCount: String(lost),
  estimatedUsdMicros: String(estimate),
  forkedCount: String(forked),
  lateCount: String(late),
})

const toApp = (app: AppLoss): pb.AppLoss => ({
  clientId: app.clientId ?? undefined,
  totals: toTotals(app),
})

const toSession = (session: SessionLoss): pb.SessionLoss => ({
  externalUserId: session.externalUserId ?? undefined,
  manifestId: session.manifestId,
  sessionId: session.sessionId,
  startedAt: session.startedAt.toISOString(),
  lastAt: session.lastAt.toISOString(),
  requestCount: String(session.tickets),
  lostCount: String(session.lost),
  forkedCount: String(session.forked),
  lateCount: String(session.late),
  estimatedUsdMicros: session.estimate === null ? undefined : String(session.estimate),
  missing: session.missing.map(({ first, last }) => ({ first: String(first), last: String(last) })),
  missingMore: session.missingMore,
})
