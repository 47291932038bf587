import { Type } from 'typebox'
import type { ListLossResponse } from '../../../proto/gen/es/tollgate/metering/v1/loss_pb.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, Micros, nullable, pageQuery, text } from '../schemas.ts'
import { withCurrency } from './query.ts'

const lostCount = Type.Integer({
  description: 'Tickets that the signer signed but never reported.',
})
const forkedCount = Type.Integer({
  description: 'Tickets that repeat a sequence number of their session. They are billed.',
})
const lateCount = Type.Integer({
  description: 'Tickets that arrived more than 15 minutes after they were signed. They are billed.',
})
const sequenceNumber = (description: string) => Type.String({ pattern: '^[0-9]+$', description })

const bounds = (subject: string) =>
  Micros(`${subject}, by their highest possible cost; rounded up.`)

const callTotals = {
  authorisedCount: Type.Integer({ description: 'Allowed calls.' }),
  authorisedUsdMicros: bounds('Allowed calls'),
  ticketedCount: Type.Integer({ description: 'Allowed calls whose ticket arrived.' }),
  ticketedUsdMicros: Micros('The cost of those tickets, rounded up.'),
  lostCount: Type.Integer({
    description: 'Allowed and signed calls whose ticket never arrived; not charged.',
  }),
  lostUsdMicros: bounds('Those calls'),
  chargedCount: Type.Integer({
    description: 'The same, but charged as an estimate until their ticket arrives.',
  }),
  chargedUsdMicros: bounds('The charge for those calls'),
  releasedCount: Type.Integer({
    description: 'Allowed calls without a ticket and without evidence that they were signed.',
  }),
  releasedUsdMicros: bounds('Those calls'),
  lateCount: Type.Integer({
    description: 'Allowed calls whose ticket arrived after they were lost, charged or released.',
  }),
  lateUsdMicros: bounds('Those calls'),
}

const UsageLoss = named(
  Type.Object({
    clientId: Type.String(),
    period: Type.Object({
      start: nullable({
        format: 'date-time',
        description: 'Earliest start of the sessions; null: no bound.',
      }),
      end: nullable({
        format: 'date-time',
        description: 'Latest start of the sessions; null: no bound.',
      }),
    }),
    totals: Type.Object({
      sessionCount: Type.Integer({ description: 'Sessions with lost tickets.' }),
      lostCount,
      currency: Type.String(),
      estimatedUsdMicros: Micros(
        'Estimated cost of the lost tickets by the mean of each session, rounded up. It is not charged.',
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
        endedAt: Instant('Time of the newest ticket; sessions have no event for their end.'),
        requestCount: Type.Integer({ description: 'Tickets that arrived.' }),
        lostCount,
        forkedCount,
        lateCount,
        currency: Type.String(),
        estimatedUsdMicros: nullable({
          description: 'Null while no ticket of the session has a price.',
        }),
        missing: Type.Array(
          Type.Object({
            first: sequenceNumber('The first lost sequence number.'),
            last: sequenceNumber('The last one, included.'),
          }),
          { description: 'At most the first 100 ranges.' },
        ),
        missingMore: Type.Boolean({
          description: 'Whether the session has more ranges than the listed ones.',
        }),
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
  get({
    url: '/api/v1/builder/apps/:clientId/usage/loss',
    guard: { kind: 'm2m_basic' },
    members: 'read',
    limit: 'failures',
    metered: true,
    operationId: 'listUsageLoss',
    summary: 'Tickets that were lost, forked or late',
    description:
      'Lists signer sessions with tickets that were signed but never arrived, and calls that were allowed but not charged, with an estimate of their cost; the newest sessions first, in pages.',
    tags: ['usage'],
    params: AppParams,
    querystring: LossQuery,
    response: { 200: ref(UsageLoss) },
    handler: async ({ params, query: { limit, ...query }, core }) =>
      toLoss(await core.losses.listLoss({ ...params, ...query, limit: Number(limit ?? 0) })),
  })(app)
}

const toLoss = (loss: ListLossResponse) => ({
  ...loss,
  period: loss.period ?? {},
  totals: withCurrency(requireField(loss.totals, 'totals')),
  sessions: loss.sessions.map((session) => ({ ...withCurrency(session), endedAt: session.lastAt })),
  calls: withCurrency(requireField(loss.calls, 'calls')),
  callSessions: loss.callSessions.map((session) => ({
    ...session,
    ...withCurrency(requireField(session.calls, 'calls')),
  })),
})
