import { Type } from 'typebox'
import type {
  CallTotals,
  ListLossResponse,
  LossTotals,
  SessionCalls,
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

const bounds = (of: string) => Micros(`${of}, by the most that they could cost; rounded up.`)

const callTotals = {
  authorisedCount: Type.Integer({ description: 'Calls that were allowed.' }),
  authorisedUsdMicros: bounds('Calls that were allowed'),
  ticketedCount: Type.Integer({ description: 'Allowed calls whose ticket came.' }),
  ticketedUsdMicros: Micros('What those tickets cost, rounded up.'),
  lostCount: Type.Integer({
    description: 'Allowed calls that were signed and whose ticket never came; charged to nobody.',
  }),
  lostUsdMicros: bounds('Those calls'),
  chargedCount: Type.Integer({
    description: 'The same, charged as an estimate until their ticket comes.',
  }),
  chargedUsdMicros: bounds('What is charged for them'),
  releasedCount: Type.Integer({
    description: 'Allowed calls without a ticket, of which nothing shows that they were signed.',
  }),
  releasedUsdMicros: bounds('Those calls'),
  lateCount: Type.Integer({
    description: 'Allowed calls whose ticket came after they had been lost, charged or released.',
  }),
  lateUsdMicros: bounds('Those calls'),
}

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
    calls: Type.Object(
      { currency: Type.String(), ...callTotals },
      { description: 'Calls of sessions that began in the period.' },
    ),
    callSessions: Type.Array(
      Type.Object({
        externalUserId: nullable({}),
        sessionId: Type.String(),
        type: Type.String({ description: 'live, lv2v, fixed, or empty.' }),
        startedAt: Instant('First call.'),
        lastAt: Instant('Last call.'),
        currency: Type.String(),
        ...callTotals,
      }),
      {
        description: 'At most 100 with lost, charged, released or late calls, newest first.',
      },
    ),
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

/** Tickets that the signer signed but never reported, for the app's backend. */
export function usageLossRoutes(app: App): void {
  addSchemas(app, [UsageLoss])
  app.get(
    '/api/v1/builder/apps/:clientId/usage/loss',
    route(
      { guard: { kind: 'm2m_basic' }, limit: 'failures', metered: true },
      {
        operationId: 'listUsageLoss',
        summary: 'Tickets that were lost, forked or late',
        description:
          'Signer sessions with tickets that were signed and never arrived, and calls that were authorised and not charged, with an estimate of their cost. Sessions come newest first, in pages.',
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
  calls: toCalls(requireField(loss.calls, 'calls')),
  callSessions: loss.callSessions.map(toSessionCalls),
})

const toCalls = (calls: CallTotals) => ({
  currency,
  authorisedCount: toCount(calls.authorisedCount),
  authorisedUsdMicros: calls.authorisedUsdMicros,
  ticketedCount: toCount(calls.ticketedCount),
  ticketedUsdMicros: calls.ticketedUsdMicros,
  lostCount: toCount(calls.lostCount),
  lostUsdMicros: calls.lostUsdMicros,
  chargedCount: toCount(calls.chargedCount),
  chargedUsdMicros: calls.chargedUsdMicros,
  releasedCount: toCount(calls.releasedCount),
  releasedUsdMicros: calls.releasedUsdMicros,
  lateCount: toCount(calls.lateCount),
  lateUsdMicros: calls.lateUsdMicros,
})

const toSessionCalls = (session: SessionCalls) => ({
  externalUserId: session.externalUserId ?? null,
  sessionId: session.sessionId,
  type: session.type,
  startedAt: session.startedAt,
  lastAt: session.lastAt,
  ...toCalls(requireField(session.calls, 'calls')),
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
