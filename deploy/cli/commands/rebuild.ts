import type { RebuildBooksResponse } from '../../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { type Command, UsageError, parse, printJson, withCore } from '../command.ts'
import { createProgressBar } from '../progress.ts'

export const rebuild: Command = {
  summary: 'repairs sums and balances from the tickets and the ledger',
  help: `tollgate rebuild [--app ID] [--dry-run] [--json]
  Makes derived rows what the log says, for one app (app_…) or for all: hourly sums and sessions from tickets, balances
  from ledger entries. Ingest goes on: rows are locked a few at a time. What is right is not touched, so that running it
  again changes nothing. Tickets, grants and ledger entries are never changed. --dry-run only counts what differs.
`,
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      'dry-run': { type: 'boolean' },
      json: { type: 'boolean' },
    })
    if (positionals.length > 0) throw new UsageError('rebuild takes no arguments, only options')
    const dryRun = values['dry-run'] ?? false
    const done = await withCore(async (core) => {
      const bar = createProgressBar()
      const apps: RebuildBooksResponse[] = []
      for await (const message of core.rebuildBooks({ clientId: values.app, dryRun })) {
        bar.update({ name: message.clientId, done: message.usersDone, total: message.usersTotal })
        if (message.kind !== 'done') continue
        apps.push(message)
        if (!values.json) bar.line(lineOf(message, dryRun))
      }
      bar.end()
      return apps
    })
    if (values.json) printJson({ dryRun, apps: done })
    return 0
  },
}

function lineOf(
  { clientId, usersTotal, usageHourly, ticketSessions, balances }: RebuildBooksResponse,
  dryRun: boolean,
): string {
  const rows = `${usageHourly} hours, ${ticketSessions} sessions, ${balances} balances`
  return `${clientId}  ${usersTotal} users: ${rows} ${dryRun ? 'differ' : 'repaired'}`
}
