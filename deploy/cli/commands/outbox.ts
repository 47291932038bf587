import { type Command, UsageError, parse, printJson, printLines, withCore } from '../command.ts'

export const outbox: Command = {
  summary: 'shows what is on its way to other systems, and retries what was refused',
  help: `tollgate outbox list [--json]
  How much waits to be sent and since when; and what was set aside after the other system had refused it eight times,
  with its answer.

tollgate outbox retry [--json]
  Lets everything that was set aside be tried again: when the reason is gone.
`,
  run: async (argv) => {
    const [verb, ...rest] = argv
    const { values, positionals } = parse(rest, { json: { type: 'boolean' } })
    if ((verb !== 'list' && verb !== 'retry') || positionals.length > 0)
      throw new UsageError('outbox takes "list" or "retry"')
    return verb === 'list' ? list(values.json ?? false) : retry(values.json ?? false)
  },
}

async function list(json: boolean): Promise<number> {
  const found = await withCore((core) => core.getOutbox())
  if (json) return (printJson(found), 0)
  printLines([
    `Rows that wait: ${found.waiting}${found.waitingSince ? `, the oldest since ${found.waitingSince}` : ''}`,
    `Rows set aside: ${found.setAside}`,
    ...found.rows.map(
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
