import type { QuarantinedEvent } from '../../../proto/gen/ts-proto/tollgate/metering/v1/quarantine.ts'
import type { CoreClient } from '../client.ts'
import { action, createCommand } from '../command.ts'
import {
  appUser,
  argument,
  author,
  optionalArgument,
  page,
  required,
  text,
  toggle,
} from '../options.ts'
import { table } from '../output.ts'

const list = action({
  text:
    'Lists events, the oldest first, and the number and money (wei) of the events that wait for a decision, by ' +
    'reason.',
  options: {
    status: text('open|redriven|discarded'),
    reason: text('R'),
    authId: text('ID'),
    from: text('T'),
    to: text('T'),
    ...page,
  },
  read: (core, request) => core.quarantine.listQuarantined(request),
  lines: ({ events, waiting }) => [
    ...table(
      events,
      [
        'id',
        ['received', 'receivedAt'],
        'status',
        'reason',
        ['auth_id', ({ authId }) => authId ?? '-'],
        ['wei', ({ feeWei }) => feeWei ?? '?'],
        'deliveries',
      ],
      'No events.',
    ),
    '',
    ...table(
      waiting,
      [['waits for a decision', 'reason'], 'events', ['wei', 'feeWei']],
      'Nothing waits for a decision.',
    ),
  ],
})

const show = action({
  text: 'Shows all details of one event, with its original bytes.',
  options: { id: argument('ID') },
  read: (core, request) => core.quarantine.getQuarantined(request),
  json: ({ event, bytes }) => ({ ...event, bytesBase64: bytes.toString('base64') }),
  lines: ({ event, bytes }) => [
    ...Object.entries(event ?? {})
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => `${name.padEnd(14)} ${value}`),
    '',
    ...bytes.toString('utf8').split('\n'),
  ],
})

const attribute = action({
  text: 'Assigns an event without a known user to a user, creates that user if necessary, and ingests the event.',
  options: { id: argument('ID'), ...appUser, author },
  change: async (core, request) => (await core.quarantine.attributeQuarantined(request)).event,
  lines: linesOf,
})

const redrive = action({
  text:
    'Ingests the event again, as if it arrived now, or every open event with the reason R. Repeats make no second ' +
    'ticket. An event whose id already belongs to another event becomes a ticket only with --under-new-id.',
  options: {
    id: optionalArgument('ID'),
    reason: text('R'),
    underNewId: toggle(),
    author,
  },
  oneOf: [['id', 'reason']],
  change: async (core, { id, reason = '', ...how }) =>
    id === undefined
      ? redriveAll(core, reason, how)
      : (await core.quarantine.redriveQuarantined({ id, ...how })).event,
  lines: (answer) =>
    answer && 'left' in answer
      ? [
          ...answer.left.map(({ id, problem }) => `${id}  stays in quarantine: ${problem}`),
          `${answer.driven} ingested, ${answer.left.length} stay in quarantine`,
        ]
      : linesOf(answer),
  isFailure: (answer) => answer !== undefined && 'left' in answer && answer.left.length > 0,
})

/** Redrives until core has seen every event, and skips those that cannot become tickets. */
async function redriveAll(
  core: CoreClient,
  reason: string,
  how: { author: string; underNewId: boolean },
) {
  let driven = 0
  const left: { id: string; problem: string }[] = []
  for (let cursor: string | undefined; ;) {
    const done = await core.quarantine.redriveReason({ reason, ...how, cursor })
    driven += done.redriven
    left.push(...done.left)
    cursor = done.nextCursor
    if (cursor === undefined) return { driven, left }
  }
}

const discard = action({
  text: 'Discards the event: it does not become a ticket. Its bytes, the reason and the author are kept.',
  options: { id: argument('ID'), reason: required('TEXT'), author },
  change: async (core, request) => (await core.quarantine.discardQuarantined(request)).event,
  lines: linesOf,
})

function linesOf(event: QuarantinedEvent | undefined): string[] {
  if (!event) return []
  const ticket = event.ticketEventId === undefined ? '' : `, ticket ${event.ticketEventId}`
  return [`${event.id}  ${event.status}: ${event.resolution ?? ''}${ticket}`]
}

export const quarantine = createCommand('quarantine', {
  summary: 'shows and resolves events that could not become tickets',
  examples: [
    './tollgate quarantine list --status open',
    './tollgate quarantine attribute 42 --app app_0123456789abcdef01234567 --user ada',
  ],
  actions: { list, show, attribute, redrive, discard },
})
