import { Type } from 'typebox'
import { isUnknownCall } from '../../core/call-context.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { CorrelationId, addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant, Micros } from '../schemas.ts'
import { operateRules, operateUrl } from './rules.ts'

const count = (description: string) => Type.String({ pattern: '^[0-9]+$', description })

const IngestStatus = named(
  Type.Object({
    streams: Type.Array(
      Type.Object({
        source: Type.String(),
        partition: Type.Integer(),
        nextOffset: count('The next event that core reads.'),
        tickets: count('Events that became tickets.'),
        duplicates: count('Events that had arrived before.'),
        ignored: count('Events of types that are not billed.'),
        quarantined: count('Events that went to quarantine.'),
        newestAt: Type.Optional(Instant('When the stream received its newest booked event.')),
        bookedAt: Type.Optional(Instant('When core last booked one of its events.')),
        eventsBehind: Type.Optional(
          count(
            'Events that wait at the broker; absent if no collector read the end in the last minute.',
          ),
        ),
        secondsBehind: Type.Optional(
          Type.Integer({
            minimum: 0,
            description: 'Upper bound for the time that the oldest of them waits.',
          }),
        ),
        endReadAt: Type.Optional(Instant('When a collector last read the end of the stream.')),
        stalled: Type.Boolean({
          description: 'Whether events wait and none was booked for a minute.',
        }),
      }),
    ),
    sidecars: Type.Optional(
      Type.Array(
        Type.Object({
          id: Type.String(),
          seenAt: Instant('When it last reported.'),
          stopped: Type.Boolean(),
          lastAuthorisedAt: Type.Optional(
            Instant('When it allowed its latest call, or at most 10 s later.'),
          ),
          bookedThrough: Type.Optional(
            Instant('When it allowed the latest call whose event is booked.'),
          ),
          secondsBehind: Type.Integer({
            minimum: 0,
            description: 'For how long it has allowed calls whose events are not booked.',
          }),
          stalled: Type.Boolean({ description: 'Whether it is more than a minute behind.' }),
        }),
        {
          description:
            'Sidecars of the last 30 days, the furthest behind first; absent if core is of an older release.',
        },
      ),
    ),
    unpricedTickets: count('Tickets that wait for a price of ETH.'),
    oldestUnpricedAt: Type.Optional(Instant('Signing time of the oldest of them.')),
    newestTicket: Type.Optional(
      Type.Object(
        {
          signedAt: Instant("By the signer's clock."),
          receivedAt: Instant('When core booked its event.'),
        },
        { description: 'Of the last 16 minutes; absent without one.' },
      ),
    ),
    quarantinedEvents: count('Open events in quarantine.'),
    usableRate: Type.Optional(
      Type.Object({
        usdPerEth: Type.String(),
        source: Type.String(),
        observedAt: Instant('Time of the observation.'),
      }),
    ),
    reachedQuotas: Type.Array(
      Type.Object({
        email: Type.String(),
        maxUsdMicros: Micros('What the account can pay.'),
        unpaidUsdMicros: Micros('What its apps hold.'),
      }),
      { description: 'Owners whose accounts can pay for no more calls.' },
    ),
  }),
  'IngestStatus',
)
const Outbox = named(
  Type.Object({
    waiting: count('Rows that wait to be sent; at most 100,000 are counted.'),
    waitingSince: Type.Optional(Instant('Creation of the oldest of them.')),
    setAside: count('Rows that the other system refused eight times.'),
    rows: Type.Array(
      Type.Object({
        id: Type.String(),
        kind: Type.String(),
        items: Type.Integer({ description: 'Events or customers in the row.' }),
        error: Type.String({ description: "The other system's last answer." }),
        createdAt: Instant('When it was created.'),
        setAsideAt: Instant('When it was set aside.'),
      }),
      { description: 'The first hundred rows that were set aside.' },
    ),
  }),
  'Outbox',
)
const OutboxRetry = named(
  Type.Object({ rows: count('Rows that are sent again.'), correlation_id: CorrelationId }),
  'OutboxRetry',
)

/** The way of events into tickets, and of figures to other systems. */
export function ingestStatusRoutes(app: App): void {
  addSchemas(app, [IngestStatus, Outbox, OutboxRetry])
  getIngestStatus(app)
  getOutbox(app)
  retryOutbox(app)
}

const getIngestStatus = get({
  ...operateRules,
  url: `${operateUrl}/ingest`,
  operationId: 'getIngestStatus',
  summary: 'How far events were read, and what waits',
  description:
    'Returns the position of each stream and how far it is behind, the rate in use, and what needs attention.',
  response: { 200: ref(IngestStatus) },
  handler: async ({ core }) => {
    const [status, { quotas }, sidecars] = await Promise.all([
      core.metering.getMeteringStatus({}),
      core.networkQuotas.listReachedNetworkQuotas({}),
      core.holds.listSidecars({}).catch(ignoreUnknownCall),
    ])
    return { ...status, reachedQuotas: quotas, ...sidecars }
  },
})

/** A core of an older release lists no sidecars. */
function ignoreUnknownCall(error: unknown): undefined {
  if (!isUnknownCall(error)) throw error
}

const getOutbox = get({
  ...operateRules,
  url: `${operateUrl}/outbox`,
  operationId: 'getOutbox',
  summary: 'What waits to be sent to other systems',
  description: 'Returns how much waits since when, and the rows that were set aside.',
  response: { 200: ref(Outbox) },
  handler: async ({ core }) => core.outbox.getOutbox({}),
})

const retryOutbox = post({
  ...operateRules,
  url: `${operateUrl}/outbox/retry`,
  operationId: 'retryOutbox',
  summary: 'Send the rows that were set aside again',
  description: 'Puts every row that was set aside back into the queue.',
  response: { 200: ref(OutboxRetry) },
  handler: async ({ core, correlationId }) => {
    const { rows } = await core.outbox.retryOutbox({})
    return { rows, correlation_id: correlationId }
  },
})
