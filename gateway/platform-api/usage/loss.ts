import { Type } from 'typebox'
import type {
  ListLossResponse,
  LossTotals,
  SessionLoss,
} from '../../../proto/gen/es/tollgate/metering/v1/loss_pb.ts'
import { DomainError } from '../../../proto/errors.ts'
import { present } from '../../core/client.ts'
import type { App } from '../../http/listener.ts'
import { UsageLoss } from './loss-schemas.ts'
import { AppParams, pageQuery, text } from '../request-schemas.ts'
import { route } from '../../http/route.ts'
import { ref } from '../schemas.ts'

const LossQuery = Type.Object({
  startDate: Type.Optional(
    text('ISO 8601, inclusive: when a session began. The last 30 days without both dates.'),
  ),
  endDate: Type.Optional(text('ISO 8601; a date alone means the end of that UTC day')),
  ...pageQuery,
})

/** What was lost of an app's usage, for its backend. */
export function usageLossRoutes(app: App): void {
  app.get(
    '/api/v1/builder/apps/:clientId/usage/loss',
    route(
      { guard: { kind: 'm2m_basic' }, metered: true },
      {
        summary: 'Tickets that were lost, forked or late',
        tags: ['usage'],
        params: AppParams,
        querystring: LossQuery,
        response: { 200: ref(UsageLoss) },
      },
    ),
    async ({ params, query: { limit, ...query }, core }) =>
      toLoss(await core.losses.list({ ...params, ...query, limit: Number(limit ?? 0) })),
  )
}

const currency = 'USD'

const toLoss = (loss: ListLossResponse) => ({
  clientId: loss.clientId,
  period: { start: loss.period?.start ?? null, end: loss.period?.end ?? null },
  totals: toTotals(present(loss.totals, 'totals')),
  sessions: loss.sessions.map(toSession),
  ...(loss.nextCursor === undefined ? {} : { nextCursor: loss.nextCursor }),
})

const toTotals = (totals: LossTotals) => ({
  sessionCount: toCount(totals.sessionCount),
  lostCount: toCount(totals.lostCount),
  currency,
  estimatedUsdMicros: totals.estimatedUsdMicros,
  forkedCount: toCount(totals.forkedCount),
  lateCount: toCount(totals.lateCount),
})

const toSession = (session: SessionLoss) => ({
  externalUserId: session.externalUserId ?? null,
  manifestId: session.manifestId,
  sessionId: session.sessionId,
  startedAt: session.startedAt,
  endedAt: session.lastAt,
  requestCount: toCount(session.requestCount),
  lostCount: toCount(session.lostCount),
  forkedCount: toCount(session.forkedCount),
  lateCount: toCount(session.lateCount),
  currency,
  estimatedUsdMicros: session.estimatedUsdMicros ?? null,
  missing: session.missing.map(({ first, last }) => ({ first, last })),
  missingMore: session.missingMore,
})

/** A number of tickets as a JSON integer. */
function toCount(text: string): number {
  const count = Number(text)
  if (/^\d+$/.test(text) && Number.isSafeInteger(count)) return count
  throw new DomainError('INTERNAL', "core's answer holds a count that is none")
}
