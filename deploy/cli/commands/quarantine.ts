import { userInfo } from 'node:os'
import type { QuarantinedEvent } from '../../../proto/gen/ts-proto/tollgate/metering/v1/quarantine.ts'
import {
  type Command,
  type Target,
  UsageError,
  changeCore,
  need,
  parse,
  withCore,
} from '../command.ts'
import { printJson, printLines, report, table } from '../output.ts'

export const quarantine: Command = {
  summary: 'shows and resolves events that could not become tickets',
  help: {
    usages: [
      {
        syntax:
          'tollgate quarantine list [--status open|redriven|discarded] [--reason R] [--auth-id ID] [--from T] [--to T] ' +
          '[--limit N] [--cursor TEXT] [--json]',
        text:
          'Lists events, the oldest first, and the number and money (wei) of the events that wait for a decision, by ' +
          'reason.',
      },
      {
        syntax: 'tollgate quarantine show ID [--json]',
        text: 'Shows all details of one event, with its original bytes.',
      },
      {
        syntax:
          'tollgate quarantine attribute ID [--app APP] --user EXTERNAL_USER_ID [--author NAME] [--json]',
        text: 'Assigns an event without a known user to a user, creates that user if necessary, and ingests the event.',
      },
      {
        syntax: 'tollgate quarantine redrive ID [--under-new-id] [--author NAME] [--json]',
        text:
          'Ingests the event again, as if it arrived now. Repeats make no second ticket. An event whose id already ' +
          'belongs to another event becomes a ticket only with --under-new-id.',
      },
      {
        syntax: 'tollgate quarantine redrive --reason R [--author NAME] [--json]',
        text: 'Ingests every open event with that reason again.',
      },
      {
        syntax: 'tollgate quarantine discard ID --reason TEXT [--author NAME] [--json]',
        text: 'Discards the event: it does not become a ticket. Its bytes, the reason and the author are kept.',
      },
    ],
    note: 'By default the author is the name of the user who runs the command.',
    examples: [
      './tollgate quarantine list --status open',
      './tollgate quarantine attribute 42 --app app_0123456789abcdef01234567 --user ada',
    ],
  },
  run: async (argv) => {
    const [verb, ...rest] = argv
    const work = verb !== undefined && Object.hasOwn(verbs, verb) ? verbs[verb] : undefined
    if (!work)
      throw new UsageError('quarantine takes "list", "show", "attribute", "redrive" or "discard"')
    return work(rest)
  },
}

const verbs: Readonly<Record<string, (argv: readonly string[]) => Promise<number>>> = {
  list,
  show,
  attribute,
  redrive,
  discard,
}
const author = { author: { type: 'string' } } as const

async function list(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, {
    status: { type: 'string' },
    reason: { type: 'string' },
    'auth-id': { type: 'string' },
    from: { type: 'string' },
    to: { type: 'string' },
    limit: { type: 'string' },
    cursor: { type: 'string' },
  })
  const { 'auth-id': authId, json: asJson, limit: limitText = '100', ...filter } = values
  const limit = Number(limitText)
  if (!Number.isInteger(limit) || limit < 1 || limit > 1_000)
    throw new UsageError('--limit must be from 1 to 1000')
  const page = await withCore(values, (core) => core.listQuarantined({ ...filter, authId, limit }))
  const waiting = page.waiting.map(({ reason, events, feeWei }) => [reason, events, feeWei])
  report({ json: asJson }, page, () => [
    ...table(eventColumns, page.events.map(cellsOf), 'No events.'),
    ...(page.nextCursor ? [`more: --cursor ${page.nextCursor}`] : []),
    '',
    ...table(['waits for a decision', 'events', 'wei'], waiting, 'Nothing waits for a decision.'),
  ])
  return 0
}

const eventColumns = ['id', 'received', 'status', 'reason', 'auth_id', 'wei', 'deliveries']

const cellsOf = (event: QuarantinedEvent): string[] => [
  event.id,
  event.receivedAt,
  event.status,
  event.reason,
  event.authId ?? '-',
  event.feeWei ?? '?',
  event.deliveries,
]

async function show(argv: readonly string[]): Promise<number> {
  const { values, positionals } = parse(argv, {})
  const { event, bytes } = await withCore(values, (core) =>
    core.getQuarantined({ id: only(positionals) }),
  )
  if (values.json) printJson({ ...event, bytesBase64: bytes.toString('base64') })
  else {
    printLines([
      ...Object.entries(event ?? {})
        .filter(([, value]) => value !== undefined)
        .map(([name, value]) => `${name.padEnd(14)} ${value}`),
      '',
      bytes.toString('utf8'),
    ])
  }
  return 0
}

async function attribute(argv: readonly string[]): Promise<number> {
  const { values, positionals } = parse(argv, {
    ...author,
    app: { type: 'string' },
    user: { type: 'string' },
  })
  const { app, user } = await need('quarantine attribute', values, ['app', 'user'])
  const { event } = await changeCore(values, (core) =>
    core.attributeQuarantined({
      id: only(positionals),
      clientId: app,
      externalUserId: user,
      author: readAuthor(values),
    }),
  )
  return print(event, values)
}

async function redrive(argv: readonly string[]): Promise<number> {
  const { values, positionals } = parse(argv, {
    ...author,
    'under-new-id': { type: 'boolean' },
    reason: { type: 'string' },
  })
  const { reason } = values
  const request = { author: readAuthor(values), underNewId: values['under-new-id'] ?? false }
  if (reason !== undefined && positionals.length > 0)
    throw new UsageError('quarantine redrive takes an id or --reason, not both')
  if (reason !== undefined) return redriveAll(values, reason, request)
  const { event } = await changeCore(values, (core) =>
    core.redriveQuarantined({ id: only(positionals), ...request }),
  )
  return print(event, values)
}

/**
 * Redrives page by page and skips events that cannot become tickets. Exits with 1 if it skipped
 * any.
 */
async function redriveAll(
  values: Target & { readonly json?: boolean | undefined },
  reason: string,
  request: { author: string; underNewId: boolean },
): Promise<number> {
  let driven = 0
  const left: { id: string; problem: string }[] = []
  await changeCore(values, async (core) => {
    for (let cursor: string | undefined; ;) {
      const page = await core.listQuarantined({ reason, limit: 200, cursor })
      for (const { id } of page.events) {
        const problem = await core.redriveQuarantined({ id, ...request }).then(
          () => null,
          (error: Error) => error.message,
        )
        if (problem === null) driven += 1
        else left.push({ id, problem })
      }
      cursor = page.nextCursor
      if (cursor === undefined) break
    }
  })
  report(values, { driven, left }, () => [
    ...left.map(({ id, problem }) => `${id}  stays in quarantine: ${problem}`),
    `${driven} ingested, ${left.length} stay in quarantine`,
  ])
  return left.length === 0 ? 0 : 1
}

async function discard(argv: readonly string[]): Promise<number> {
  const { values, positionals } = parse(argv, { ...author, reason: { type: 'string' } })
  const { reason } = values
  if (reason === undefined) throw new UsageError('quarantine discard needs --reason')
  const { event } = await changeCore(values, (core) =>
    core.discardQuarantined({ id: only(positionals), reason, author: readAuthor(values) }),
  )
  return print(event, values)
}

function print(
  event: QuarantinedEvent | undefined,
  { json: asJson }: { json?: boolean | undefined },
): number {
  if (asJson) printJson(event)
  else if (event) {
    const ticket = event.ticketEventId === undefined ? '' : `, ticket ${event.ticketEventId}`
    printLines([`${event.id}  ${event.status}: ${event.resolution ?? ''}${ticket}`])
  }
  return 0
}

function only(positionals: readonly string[]): string {
  const [id, ...rest] = positionals
  if (id === undefined || rest.length > 0) throw new UsageError('name one event by its id')
  return id
}

export const readAuthor = ({ author: name }: { author?: string | undefined }): string =>
  name ?? userInfo().username
