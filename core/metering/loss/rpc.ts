import type * as pb from '../../../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import { usdMicros } from '../../lib/money.ts'
import type { DateRange } from '../../lib/time.ts'
import {
  type RequireMetering,
  m2mBasic,
  operator,
  orMember,
  orOperator,
  platformAdmin,
} from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { LossReport, LossReports, SessionLoss } from './report.ts'
import type { CallSums, LossSums, SessionCalls } from './store.ts'

export function createLossRpc({
  losses,
  requireMetering,
}: {
  losses: LossReports
  requireMetering: RequireMetering
}) {
  const lossService: Handlers<pb.LossServiceServer> = {
    listLoss: rpc(
      requireMetering(orMember(m2mBasic(), 'read')),
      async (request: pb.ListLossRequest, caller) => {
        const { startDate, endDate, cursor, limit } = request
        const report = await losses.ofApp(caller.appId, { startDate, endDate, cursor, limit })
        return {
          clientId: caller.clientId,
          period: toPeriod(report.period),
          totals: toTotals(report.totals),
          sessions: report.sessions.map(toSession),
          nextCursor: report.nextCursor,
          calls: toCalls(report.calls),
          callSessions: report.callSessions.map(toSessionCalls),
        }
      },
    ),

    getLossReport: rpc(
      orOperator(platformAdmin(), operator()),
      async ({ clientId, startDate, endDate }: pb.GetLossReportRequest) => {
        const report = await losses.report(clientId, { startDate, endDate })
        return {
          period: toPeriod(report.period),
          totals: toTotals(report.totals),
          apps: toApps(report),
          sessions: report.sessions.map(toSession),
          unattributedEvents: String(report.unattributed.events),
          unattributedFeeWei: String(report.unattributed.fee),
          calls: toCalls(report.calls),
          callSessions: report.callSessions.map(toSessionCalls),
        }
      },
    ),
  }
  return { lossService }
}

// Periods are half-open internally; the API shows their last millisecond (decision 36).
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

/** Lists apps with losses, then those with only allowed calls. */
function toApps({ apps, callsByClient }: LossReport): pb.AppLoss[] {
  const lossy = new Set(apps.map(({ clientId }) => clientId))
  const others = [...callsByClient.keys()].filter((clientId) => !lossy.has(clientId))
  return [...apps, ...others.map((clientId) => ({ ...nothing, clientId }))].map((app) => {
    const calls = callsByClient.get(app.clientId)
    return {
      clientId: app.clientId ?? undefined,
      totals: toTotals(app),
      calls: calls && toCalls(calls),
    }
  })
}

const nothing: LossSums = {
  sessions: 0n,
  lost: 0n,
  estimate: usdMicros(0n),
  forked: 0n,
  late: 0n,
}

const toCalls = ({ authorised, ticketed, lost, charged, released, late }: CallSums) => ({
  authorisedCount: String(authorised.count),
  authorisedUsdMicros: String(authorised.amount),
  ticketedCount: String(ticketed.count),
  ticketedUsdMicros: String(ticketed.amount),
  lostCount: String(lost.count),
  lostUsdMicros: String(lost.amount),
  chargedCount: String(charged.count),
  chargedUsdMicros: String(charged.amount),
  releasedCount: String(released.count),
  releasedUsdMicros: String(released.amount),
  lateCount: String(late.count),
  lateUsdMicros: String(late.amount),
})

const toSessionCalls = (session: SessionCalls): pb.SessionCalls => ({
  externalUserId: session.externalUserId ?? undefined,
  sessionId: session.sessionId,
  type: session.type,
  startedAt: session.startedAt.toISOString(),
  lastAt: session.lastAt.toISOString(),
  calls: toCalls(session.calls),
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
