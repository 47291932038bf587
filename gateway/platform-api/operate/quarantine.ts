import { Type } from 'typebox'
import { type CoreCalls, requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant, Wei, oneOf, pageQuery, required, text } from '../schemas.ts'
import { operateRules, operateUrl } from './rules.ts'

const url = `${operateUrl}/quarantine`
const eventUrl = `${url}/:quarantineId`
const statuses = ['open', 'redriven', 'discarded'] as const
/** Characters of an event that the console shows; the command line has all. */
const sampleMax = 16_384

const optional = (description: string) => Type.Optional(Type.String({ description }))
const eventFields = {
  id: Type.String(),
  status: oneOf(statuses, 'open until it is decided.'),
  reason: Type.String({ description: 'Why it did not become a ticket.' }),
  detail: Type.String({ description: 'The same in a sentence.' }),
  eventId: optional('Id that the event gives itself, if it can be read.'),
  authId: optional('The user that the event names, if it can be read.'),
  feeWei: Type.Optional(Wei("The ticket's cost, if it can be read.")),
  receivedAt: Instant('Time of its first arrival.'),
  source: Type.String({ description: 'The stream, or the way it was pushed.' }),
  partition: Type.Integer(),
  offset: optional('Place in the partition.'),
  deliveries: Type.String({ description: 'How often the same bytes arrived.' }),
  byteCount: Type.Integer({ description: 'Length of the event.' }),
  resolvedAt: Type.Optional(Instant('Time of the decision.')),
  resolvedBy: optional('Who decided.'),
  resolution: optional('The result of the decision, or why it was discarded.'),
  attributedTo: optional('The user that it was attributed to.'),
  ticketEventId: optional('The ticket that it became.'),
}
const QuarantinedEvent = named(Type.Object(eventFields), 'QuarantinedEvent')
const QuarantineList = named(
  Type.Object({
    events: Type.Array(ref(QuarantinedEvent), { description: 'The oldest first.' }),
    nextCursor: Type.Optional(text('For the next page.')),
    waiting: Type.Array(
      Type.Object({
        reason: Type.String(),
        events: Type.String({ description: 'Number of open events.' }),
        feeWei: Wei('Sum of their readable costs.'),
      }),
      { description: 'Totals of all open events by reason, without any filter.' },
    ),
  }),
  'QuarantineList',
)
const QuarantineSample = named(
  Type.Object({
    ...eventFields,
    sample: Type.String({ description: 'The beginning of the event as text.' }),
    isComplete: Type.Boolean({ description: 'Whether the sample is the whole event.' }),
  }),
  'QuarantineSample',
)
const QuarantineProgress = named(
  Type.Object({
    redriven: Type.Integer({ description: 'Number of events that became tickets.' }),
    left: Type.Array(Type.Object({ id: Type.String(), problem: Type.String() }), {
      description: 'Events that still cannot become tickets.',
    }),
    nextCursor: Type.Optional(text('Send it to continue; absent at the end.')),
  }),
  'QuarantineProgress',
)
const QuarantineParams = Type.Object({
  quarantineId: Type.String({ description: 'The id of the event in quarantine.' }),
})

/** Events that could not become tickets, and the decisions about them. */
export function quarantineRoutes(app: App): void {
  addSchemas(app, [QuarantinedEvent, QuarantineList, QuarantineSample, QuarantineProgress])
  listQuarantined(app)
  getQuarantined(app)
  redriveReason(app)
  redriveQuarantined(app)
  attributeQuarantined(app)
  discardQuarantined(app)
}

const listQuarantined = get({
  ...operateRules,
  url,
  operationId: 'listQuarantined',
  summary: 'List the events in quarantine',
  description:
    'Lists events that could not become tickets, with the totals of those that wait for a decision by reason.',
  querystring: Type.Object({
    ...pageQuery,
    status: Type.Optional(oneOf(statuses, 'Default is open.')),
    reason: Type.Optional(text('only this reason')),
  }),
  response: { 200: ref(QuarantineList) },
  handler: async ({ query: { limit, ...filter }, core }) => {
    const list = await core.quarantine.listQuarantined({ ...filter, limit: Number(limit ?? 0) })
    return { ...list, events: list.events.map(render) }
  },
})

const getQuarantined = get({
  ...operateRules,
  url: eventUrl,
  operationId: 'getQuarantined',
  summary: 'Read an event in quarantine, with its beginning as text',
  description:
    'Returns the event and at most 16,384 characters of it. ./tollgate quarantine show prints all.',
  params: QuarantineParams,
  response: { 200: ref(QuarantineSample) },
  handler: async ({ params, core }) => {
    const answer = await core.quarantine.getQuarantined({ id: params.quarantineId })
    const whole = Buffer.from(answer.bytes).toString('utf8')
    const event = render(answer.event)
    const isComplete = whole.length <= sampleMax && answer.bytes.length === event.byteCount
    return { ...event, sample: whole.slice(0, sampleMax), isComplete }
  },
})

const redriveReason = post({
  ...operateRules,
  url: `${url}/redrive`,
  operationId: 'redriveReason',
  summary: 'Ingest all open events with a reason again',
  description:
    'Ingests events, the oldest first, for a few seconds. Send the answered nextCursor until there is none. Repeats make no second ticket.',
  body: Type.Object(
    {
      reason: required('Of the events.'),
      cursor: Type.Optional(text('nextCursor of the answer before')),
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(QuarantineProgress) },
  handler: async ({ body, core }) => core.quarantine.redriveReason(body),
})

const redriveQuarantined = post({
  ...operateRules,
  url: `${eventUrl}/redrive`,
  refuses: ['CONFLICT'],
  operationId: 'redriveQuarantined',
  summary: 'Ingest an event again',
  description: 'Ingests the event as if it arrived now. Repeats make no second ticket.',
  params: QuarantineParams,
  body: Type.Object(
    {
      underNewId: Type.Optional(
        Type.Boolean({
          description: 'For an event with the id of another one: makes it a ticket of its own.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(QuarantinedEvent) },
  handler: async ({ params, body, core }) => {
    const request = { ...body, id: params.quarantineId }
    return render((await core.quarantine.redriveQuarantined(request)).event)
  },
})

const attributeQuarantined = post({
  ...operateRules,
  url: `${eventUrl}/attribute`,
  refuses: ['CONFLICT'],
  operationId: 'attributeQuarantined',
  summary: 'Assign an event to a user',
  description:
    'Assigns an event without a known user to a user, who is created if new, and ingests it.',
  params: QuarantineParams,
  body: Type.Object(
    { clientId: required("The user's app."), externalUserId: required('The user.') },
    { additionalProperties: false },
  ),
  response: { 200: ref(QuarantinedEvent) },
  handler: async ({ params, body, core }) => {
    const request = { ...body, id: params.quarantineId }
    return render((await core.quarantine.attributeQuarantined(request)).event)
  },
})

const discardQuarantined = post({
  ...operateRules,
  url: `${eventUrl}/discard`,
  refuses: ['CONFLICT'],
  operationId: 'discardQuarantined',
  summary: 'Discard an event',
  description:
    'Decides that the event never becomes a ticket. Its bytes, the reason and the name stay.',
  params: QuarantineParams,
  body: Type.Object(
    {
      reason: Type.String({
        minLength: 1,
        maxLength: 500,
        pattern: '\\S',
        description: 'Why it is no ticket.',
      }),
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(QuarantinedEvent) },
  handler: async ({ params, body, core }) => {
    const request = { ...body, id: params.quarantineId }
    return render((await core.quarantine.discardQuarantined(request)).event)
  },
})

type Event = NonNullable<
  Awaited<ReturnType<CoreCalls['quarantine']['redriveQuarantined']>>['event']
>

/** An event of core, whose status is one of ours. */
function render(received: Event | undefined) {
  const event = requireField(received, 'event')
  const status = statuses.find((known) => known === event.status)
  return { ...event, status: requireField(status, 'status') }
}
