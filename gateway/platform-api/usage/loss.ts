import { Type } from 'typebox'
import type {
  ListLossResponse,
  LossTotals,
  SessionLoss,
} from '../../../proto/gen/es/tollgate/metering/v1/loss_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { route } from '../../http/route.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, Micros, nextPage, nullable, pageQuery, text } from '../schemas.ts'
import { toCount } from './query.ts'

const lostCount = Type.Integer({ description: 'Tickets that the signer signed and never told.' })
const forkedCount = Type.Integer({
  description: 'Tickets whose sequence number had come before. They are billed.',
})
const lateCount = Type.Integer({
  description: 'Tickets that came more than 15 minutes after they were signed. They are billed.',
})
const sequenceNumber = (description: string) => Type.String({ pattern: '^[0-9]+$', description })

const UsageLoss = named(
  Type.Object({
    clientId: Type.String(),
    period: Type.Object({
      start: nullable({
        format: 'date-time',
        description: 'Sessions that began from here on; null: no bound.',
      }),
      end: nullable({ format: 'date-time', description: 'The last instant; null: no bound.' }),
    }),
    totals: Type.Object({
      sessionCount: Type.Integer({ description: 'Sessions that lost something.' }),
      lostCount,
      currency: Type.String(),
      estimatedUsdMicros: Micros(
        "What the lost tickets would have cost, each its session's mean, rounded up. It is charged to nobody.",
      ),
      forkedCount,
      lateCount,
    }),
    sessions: Type.Array(
      Type.Object({
        externalUserId: nullable({}),
        manifestId: Type.String(),
        sessionId: Type.String(),
        startedAt: Instant('First ticket.'),
        endedAt: Instant('Newest ticket; no event says that a session has ended.'),
        requestCount: Type.Integer({ description: 'Tickets that came.' }),
        lostCount,
        forkedCount,
        lateCount,
        currency: Type.String(),
        estimatedUsdMicros: nullable({
          description: 'Null as long as no ticket of the session has its price.',
        }),
        missing: Type.Array(
          Type.Object({
            first: sequenceNumber('The first lost sequence number.'),
            last: sequenceNumber('The last one, included.'),
          }),
          { description: 'At most the first 100 ranges.' },
        ),
        missingMore: Type.Boolean({ description: 'There are others than the listed ones.' }),
      }),
      { description: 'With lost or forked tickets, newest first.' },
    ),
    nextCursor: Type.Optional(Type.String()),
  }),
  'UsageLoss',
)

const LossQuery = Type.Object({
  startDate: Type.Optional(
    text('ISO 8601, inclusive: when a session began. The last 30 days without both dates.'),
  ),
  endDate: Type.Optional(text('ISO 8601; a date alone means the end of that UTC day')),
  ...pageQuery,
})

/** Tickets that the signer signed and never reported, for the app's backend. */
export function usageLossRoutes(app: App): void {
  addSchemas(app, [UsageLoss])
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
  totals: toTotals(requireField(loss.totals, 'totals')),
  sessions: loss.sessions.map(toSession),
  ...nextPage(loss.nextCursor),
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
