import { Type } from 'typebox'
import { Instant, Micros, named, nullable } from '../schemas.ts'

/** The public JSON of what was lost, forked and late. */

const lostCount = Type.Integer({ description: 'Tickets that the signer signed and never told.' })
const forkedCount = Type.Integer({
  description: 'Tickets whose sequence number had come before. They are billed.',
})
const lateCount = Type.Integer({
  description: 'Tickets that came more than 15 minutes after they were signed. They are billed.',
})
const sequenceNumber = (description: string) => Type.String({ pattern: '^[0-9]+$', description })

export const UsageLoss = named(
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
