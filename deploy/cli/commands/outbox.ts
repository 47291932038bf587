import type { GetOutboxResponse } from '../../../proto/gen/ts-proto/tollgate/metering/v1/outbox.ts'
import { type Command, type Target, UsageError, changeCore, parse, withCore } from '../command.ts'
import { printJson, printLines, table } from '../output.ts'

type Values = Target & { readonly json?: boolean | undefined }

export const outbox: Command = {
  summary: 'shows what is on its way to other systems, and retries what they refused',
  help: {
    usages: [
      {
        syntax: 'tollgate outbox list [--json]',
        text:
          'Shows how many rows are still to be sent and since when, and the rows that were set aside after the other ' +
          'system had refused them eight times, with its answer.',
      },
      {
        syntax: 'tollgate outbox retry [--json]',
        text: 'Sends the rows that were set aside again. Use it when the reason is gone.',
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
    `Rows that wait: ${outboxState.waiting}${outboxState.waitingSince ? `, the oldest since ${outboxState.waitingSince}` : ''}`,
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
  else printLines([`Rows to be tried again: ${retried.rows}`])
  return 0
}
