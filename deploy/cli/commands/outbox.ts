import { type Command, UsageError, parse, withCore } from '../command.ts'
import { printJson, printLines } from '../output.ts'

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
  },
  run: async (argv) => {
    const [verb, ...rest] = argv
    const { values, positionals } = parse(rest, { json: { type: 'boolean' } })
    if ((verb !== 'list' && verb !== 'retry') || positionals.length > 0)
      throw new UsageError('outbox takes "list" or "retry"')
    return verb === 'list' ? list(values.json ?? false) : retry(values.json ?? false)
  },
}

async function list(json: boolean): Promise<number> {
  const outboxState = await withCore((core) => core.getOutbox())
  if (json) return (printJson(outboxState), 0)
  printLines([
    `Rows that wait: ${outboxState.waiting}${outboxState.waitingSince ? `, the oldest since ${outboxState.waitingSince}` : ''}`,
    `Rows set aside: ${outboxState.setAside}`,
    ...outboxState.rows.map(
      (row) =>
        `  ${row.id}  ${row.kind}, ${row.items} in it, of ${row.createdAt}: ${row.error.replace(/\p{Cc}/gu, ' ')}`,
    ),
  ])
  return 0
}

async function retry(json: boolean): Promise<number> {
  const retried = await withCore((core) => core.retryOutbox())
  if (json) printJson(retried)
  else printLines([`Rows to be tried again: ${retried.rows}`])
  return 0
}
