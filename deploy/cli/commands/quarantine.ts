import { userInfo } from 'node:os'
import type { QuarantinedEvent } from '../../../proto/gen/ts-proto/tollgate/metering/v1/quarantine.ts'
import type { CoreClient } from '../client.ts'
import { type Command, UsageError, parse, printJson, printLines, withCore } from '../command.ts'

export const quarantine: Command = {
  summary: 'shows events that could not become tickets, and decides about them',
  help: `tollgate quarantine list [--status open|redriven|discarded] [--reason R] [--auth-id ID] [--from T] [--to T]
                         [--limit N] [--cursor TEXT] [--json]
  Events, oldest first, and what waits in all: how many and how much money (wei), by reason.

tollgate quarantine show ID [--json]
  Everything that is known of one, with its bytes as they came.

tollgate quarantine attribute ID --app APP --user EXTERNAL_USER_ID [--author NAME]
  Gives an event that names no user we know to one (made when new), and drives it through.

tollgate quarantine redrive ID [--under-new-id] [--author NAME]
tollgate quarantine redrive --reason R [--author NAME]
  Takes an event, or every open one with that reason, in again as if it came now: it becomes a ticket once, whoever
  asks and how often. An event whose id already stands for another becomes a ticket of its own only --under-new-id.

tollgate quarantine discard ID --reason TEXT [--author NAME]
  Decides that it is no ticket. Its bytes, the reason and the author stay.

The author is the name of who runs the command unless it is given.
`,
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
const json = { json: { type: 'boolean' } } as const
const author = { author: { type: 'string' } } as const

async function list(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, {
    ...json,
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
  const found = await withCore((core) => core.listQuarantined({ ...filter, authId, limit }))
  if (asJson) printJson(found)
  else {
    printLines([
      ...found.events.map(lineOf),
      ...(found.nextCursor ? [`more: --cursor ${found.nextCursor}`] : []),
      ...(found.waiting.length === 0
        ? ['Nothing waits for a decision.']
        : ['Waiting for a decision:']),
      ...found.waiting.map(
        ({ reason, events, feeWei }) => `  ${reason.padEnd(22)} ${events} events, ${feeWei} wei`,
      ),
    ])
  }
  return 0
}

const lineOf = ({
  id,
  receivedAt,
  status,
  reason,
  authId,
  feeWei,
  deliveries,
}: QuarantinedEvent): string =>
  `${id}  ${receivedAt}  ${status}  ${reason}  ${authId ?? '-'}  ${feeWei ?? '?'} wei  came ${deliveries} times`

async function show(argv: readonly string[]): Promise<number> {
  const { values, positionals } = parse(argv, json)
  const { event, bytes } = await withCore((core) => core.getQuarantined({ id: only(positionals) }))
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
    ...json,
    ...author,
    app: { type: 'string' },
    user: { type: 'string' },
  })
  const { app, user } = values
  if (app === undefined || user === undefined)
    throw new UsageError('quarantine attribute needs --app and --user')
  const { event } = await withCore((core) =>
    core.attributeQuarantined({
      id: only(positionals),
      clientId: app,
      externalUserId: user,
      author: authorOf(values),
    }),
  )
  return print(event, values)
}

async function redrive(argv: readonly string[]): Promise<number> {
  const { values, positionals } = parse(argv, {
    ...json,
    ...author,
    'under-new-id': { type: 'boolean' },
    reason: { type: 'string' },
  })
  const { reason } = values
  const request = { author: authorOf(values), underNewId: values['under-new-id'] ?? false }
  if (reason !== undefined && positionals.length > 0)
    throw new UsageError('quarantine redrive takes an id or --reason, not both')
  if (reason !== undefined) return withCore((core) => redriveAll(core, reason, request))
  const { event } = await withCore((core) =>
    core.redriveQuarantined({ id: only(positionals), ...request }),
  )
  return print(event, values)
}

/** Page by page; what stays open is passed by. Ends with 1 when anything did. */
async function redriveAll(
  core: CoreClient,
  reason: string,
  request: { author: string; underNewId: boolean },
): Promise<number> {
  let [driven, left] = [0, 0]
  for (let cursor: string | undefined; ;) {
    const page = await core.listQuarantined({ reason, limit: 200, cursor })
    for (const { id } of page.events) {
      const problem = await core.redriveQuarantined({ id, ...request }).then(
        () => null,
        (error: Error) => error.message,
      )
      if (problem === null) driven += 1
      else {
        left += 1
        printLines([`${id}  stays: ${problem}`])
      }
    }
    cursor = page.nextCursor
    if (cursor === undefined) break
  }
  printLines([`${driven} driven through, ${left} stay`])
  return left === 0 ? 0 : 1
}

async function discard(argv: readonly string[]): Promise<number> {
  const { values, positionals } = parse(argv, { ...json, ...author, reason: { type: 'string' } })
  const { reason } = values
  if (reason === undefined) throw new UsageError('quarantine discard needs --reason')
  const { event } = await withCore((core) =>
    core.discardQuarantined({ id: only(positionals), reason, author: authorOf(values) }),
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

export const authorOf = ({ author: given }: { author?: string | undefined }): string =>
  given ?? userInfo().username
