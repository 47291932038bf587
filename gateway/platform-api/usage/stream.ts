import { once } from 'node:events'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyReply } from 'fastify'
import { Type } from 'typebox'
import { DomainError, type Reason } from '../../../proto/errors.ts'
import type {
  StreamOwnUsageResponse,
  StreamUsageResponse,
  UsageCharge,
} from '../../../proto/gen/es/tollgate/usage/v1/usage_pb.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named } from '../../http/schemas.ts'
import { AppParams, Instant, Micros, nullable } from '../schemas.ts'
import { refuseOtherUser, userQuery, withOneUser } from './query.ts'

type StreamMessage = StreamUsageResponse | StreamOwnUsageResponse

const firstMessageMs = 10_000
const retryMs = 2_000
const busySeconds = '10'
const busyReasons = new Set<Reason>(['RATE_LIMITED', 'UNAVAILABLE'])

const description = [
  'Server-sent events; the schema is that of one event, whose data is JSON.',
  'Send the last id as Last-Event-ID to continue from there: no event is missed, and a repeated event has the same chargeId',
  'and endUserId. An id without an event comes every ten seconds.',
].join(' ')

const word = <const T extends string>(value: T) => Type.Unsafe<T>({ type: 'string', enum: [value] })
const whereAbsent =
  'Null if some tickets are not available: signed more than a day before, or archived.'
const EventId = Type.String({ description: 'For Last-Event-ID.' })
const UsageCharge = named(
  Type.Object(
    {
      event: word('charge'),
      id: EventId,
      data: Type.Object(
        {
          chargeId: Type.String(),
          endUserId: Type.String(),
          externalUserId: Type.String(),
          costUsdMicros: Micros("The user's charge for the batch: retail, rounded up."),
          costUsdExact: Type.String({ description: 'The same in USD, every digit.' }),
          networkFeeUsdExact: nullable({
            description: `The network cost, in USD. ${whereAbsent}`,
          }),
          ownerChargeUsdExact: nullable({
            description: `Network fee and platform cut, in USD. ${whereAbsent}`,
          }),
          platformFeeUsdExact: nullable({
            description: `The platform cut, in USD. ${whereAbsent}`,
          }),
          balanceUsdMicros: Micros('The balance after the charge, rounded down.'),
          balanceUsdExact: Type.String({ description: 'The same in USD, every digit.' }),
          overageUsdExact: Type.String({
            description: 'The part that the balance did not cover (overage), in USD.',
          }),
          ticketCount: Type.Integer({ minimum: 0 }),
          time: Instant('When it was booked.'),
        },
        { additionalProperties: false },
      ),
    },
    { description: 'The charge of one batch of tickets to one user.' },
  ),
  'UsageCharge',
)
const ChargeData = { ...UsageCharge.properties.data }
const UsageReset = named(
  Type.Object(
    {
      event: word('reset'),
      id: EventId,
      data: Type.Object({}, { additionalProperties: false }),
    },
    { description: 'Last-Event-ID was older than a day: the events in between are missing.' },
  ),
  'UsageReset',
)
const UsageStreamEnd = named(
  Type.Object(
    {
      event: word('end'),
      data: Type.Object(
        { code: Type.String({ description: 'The code of the reason, as in problem documents.' }) },
        { additionalProperties: false },
      ),
    },
    { description: 'The stream has ended; with the reason.' },
  ),
  'UsageStreamEnd',
)
const UsageCursor = named(
  Type.Object(
    { id: EventId },
    { additionalProperties: false, description: 'Nothing happened: an id to continue from.' },
  ),
  'UsageCursor',
)
const eventSchemas = [UsageCharge, UsageReset, UsageStreamEnd, UsageCursor]

const example = `retry: 2000
id: djE6MTIzNDU2
event: charge
data: {"chargeId":"019da5c2-6f4e-7c51-9e1b-0d5c1f6a7b82","endUserId":"4f6c1a0e-8d3b-4c57-9a21-6e0f5b7d8c94",\
"externalUserId":"ada","costUsdMicros":"360","costUsdExact":"0.00036","networkFeeUsdExact":"0.00024",\
"ownerChargeUsdExact":"0.000264","platformFeeUsdExact":"0.000024","balanceUsdMicros":"4999640",\
"balanceUsdExact":"4.99964","overageUsdExact":"0","ticketCount":3,"time":"2026-04-02T10:00:01.250Z"}

`.replaceAll('\\\n', '')
const schema = { oneOf: eventSchemas.map(({ $id }) => ({ $ref: `${$id}#` })) }
const response = {
  200: { description, content: { 'text/event-stream': { schema, example } } },
}
const StreamHeaders = Type.Object({
  'last-event-id': Type.Optional(
    Type.String({ maxLength: 4_096, description: 'The last id that arrived.' }),
  ),
})
const AppQuery = Type.Object(userQuery)
const refuses = ['RATE_LIMITED', 'UNAVAILABLE'] as const

/** Live spend as server-sent events. Every stream ends when the listener closes. */
export function usageStreamRoutes(app: App): void {
  addSchemas(app, eventSchemas)
  const stopping = new AbortController()
  app.addHook('preClose', async () => stopping.abort())
  streamUsage(app, stopping.signal)
  streamOwnUsage(app, stopping.signal)
}

function streamUsage(app: App, stopping: AbortSignal): void {
  get({
    url: '/api/v1/builder/apps/:clientId/usage/stream',
    exposeHeadRoute: false,
    guard: { kind: 'm2m_basic' },
    members: 'read',
    limit: 'failures',
    metered: true,
    refuses,
    operationId: 'streamUsage',
    summary: 'Live spend of the app',
    description:
      "Sends server-sent events about the spend of the app's users when their tickets are booked. The answer's description lists the kinds of events and explains how to continue after a disconnection.",
    tags: ['usage'],
    params: AppParams,
    querystring: AppQuery,
    headers: StreamHeaders,
    response,
    handler: async ({ params, query, headers, core }, reply) => {
      const after = headers['last-event-id']
      return stream(reply, {
        stopping,
        open: (signal) =>
          core.usage.streamUsage({ ...params, ...withOneUser(query), after }, signal),
      })
    },
  })(app)
}

function streamOwnUsage(app: App, stopping: AbortSignal): void {
  get({
    url: '/api/v1/user/usage/stream',
    exposeHeadRoute: false,
    guard: { kind: 'user' },
    metered: true,
    refuses,
    operationId: 'streamOwnUsage',
    summary: 'Own live spend',
    description:
      "Sends server-sent events about the spend of the token's user when its tickets are booked. The stream ends when the token expires or is revoked.",
    tags: ['end user'],
    querystring: Type.Object({}),
    headers: StreamHeaders,
    response,
    handler: async ({ query, headers, core }, reply) => {
      refuseOtherUser(query)
      const after = headers['last-event-id']
      return stream(reply, {
        stopping,
        open: (signal) => core.usage.streamOwnUsage({ after }, signal),
      })
    },
  })(app)
}

interface StreamSource {
  readonly stopping: AbortSignal
  open(signal: AbortSignal): AsyncGenerator<StreamMessage>
}

/** Sends headers after core's first message, so that an earlier refusal is an ordinary answer. */
async function stream(
  reply: FastifyReply,
  { stopping, open }: StreamSource,
): Promise<FastifyReply> {
  const gone = new AbortController()
  reply.raw.once('close', () => gone.abort())
  const signal = AbortSignal.any([gone.signal, stopping])
  const messages = open(signal)
  try {
    const first = await within(firstMessageMs, messages.next())
    void reply.type('text/event-stream; charset=utf-8').header('x-accel-buffering', 'no')
    const serialize = reply.compileSerializationSchema(ChargeData)
    const source = events({ first, messages, signal, serialize })
    return reply.send(Readable.from(source, { objectMode: false }))
  } catch (error) {
    gone.abort()
    if (error instanceof DomainError && busyReasons.has(error.reason))
      void reply.header('retry-after', busySeconds)
    throw error
  }
}

async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  const timer = new AbortController()
  const late = sleep(ms, undefined, { signal: timer.signal }).then(() => {
    throw new DomainError('UNAVAILABLE', 'the service is unavailable now; try again')
  })
  late.catch(() => {})
  return Promise.race([work, late]).finally(() => timer.abort())
}

interface EventSource {
  readonly first: IteratorResult<StreamMessage>
  readonly messages: AsyncGenerator<StreamMessage>
  readonly signal: AbortSignal
  readonly serialize: SerializeCharge
}

type SerializeCharge = (charge: Readonly<Record<string, unknown>>) => string

async function* events({
  first,
  messages,
  signal,
  serialize,
}: EventSource): AsyncGenerator<string> {
  yield `retry: ${retryMs}\n`
  if (!first.done) yield eventOf(first.value, serialize)
  const over = once(signal, 'abort').then(() => null)
  try {
    for (;;) {
      const next = await Promise.race([messages.next(), over])
      if (next === null || next.done) return
      yield eventOf(next.value, serialize)
    }
  } catch (error) {
    if (!signal.aborted && error instanceof DomainError)
      yield `event: end\ndata: ${JSON.stringify({ code: error.reason.toLowerCase() })}\n\n`
  }
}

// Neither a base64url cursor nor JSON contains line breaks, so neither can end a line early.
function eventOf({ cursor, charge, reset }: StreamMessage, serialize: SerializeCharge): string {
  const id = `id: ${cursor}\n`
  if (reset) return `event: reset\n${id}data: {}\n\n`
  return charge === undefined
    ? `${id}\n`
    : `event: charge\n${id}data: ${serialize({ ...charge })}\n\n`
}
