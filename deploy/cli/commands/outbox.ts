import type { GetOutboxResponse } from '../../../proto/gen/ts-proto/tollgate/metering/v1/outbox.ts'
import { type Command, type Target, UsageError, changeCore, parse, withCore } from '../command.ts'
import { printJson, printLines, table } from '../output.ts'

type Values = Target & { readonly json?: boolean | undefined }

export const outbox: Command = {
  summary: 'shows the queue of events for other systems, and retries refused ones',
  help: {
    usages: [
      {
        syntax: 'tollgate outbox list [--json]',
        text:
          'Shows the number and age of the rows that wait to be sent, and the rows that were set aside after eight ' +
          'refusals of the other system, with its answer.',
      },
      {
        syntax: 'tollgate outbox retry [--json]',
        text: 'Sends the rows that were set aside again. Use it after the reason is fixed.',
      },
    ],
    examples: ['./tollgate outbox list'],
  },
  run: async (argv) => {
    const [verb, ...rest] = argv
    const { values, positionals } = parse(rest, {})
    if ((verb !== 'list' && verb !== 'retry') || positionals.length > 0)
      throw new UsageError('outbox takes "list" or "retry"')
    return verb === 'list' ? list(values) : retry(values)
  },
}

async function list(values: Values): Promise<number> {
  const outboxState = await withCore(values, (core) => core.getOutbox())
  if (values.json) return (printJson(outboxState), 0)
  printLines([
    `Waiting rows: ${outboxState.waiting}${outboxState.waitingSince ? `, the oldest since ${outboxState.waitingSince}` : ''}`,
    `Rows set aside: ${outboxState.setAside}`,
    ...(outboxState.rows.length === 0
      ? []
      : ['', ...table(columns, outboxState.rows.map(cellsOf))]),
  ])
  return 0
}

const columns = ['id', 'kind', 'items', 'created', 'error']

const cellsOf = (row: GetOutboxResponse['rows'][number]): string[] => [
  row.id,
  row.kind,
  String(row.items),
  row.createdAt,
  row.error.replace(/\p{Cc}/gu, ' '),
]

async function retry(values: Values): Promise<number> {
  const retried = await changeCore(values, (core) => core.retryOutbox())
  if (values.json) printJson(retried)
  else printLines([`Rows to retry: ${retried.rows}`])
  return 0
}
