import type { RebuildBooksResponse } from '../../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { type Command, UsageError, changeCore, parse } from '../command.ts'
import { createProgressBar, printJson } from '../output.ts'

export const rebuild: Command = {
  summary: 'repairs sums and balances, from the tickets and the ledger',
  help: {
    usages: [
      {
        syntax: 'tollgate rebuild [--app ID] [--dry-run] [--json]',
        text:
          'Recomputes the derived rows of one app (app_…) or of all apps from tickets and ledger: hourly sums, ' +
          'sessions, balances, sums of periods, remaining credits. Ingest continues: rows are locked a few at a ' +
          'time. Correct rows stay untouched, so a second run changes nothing. Tickets and ledger entries are never ' +
          'changed. Users with damaged tickets or entries are skipped, because rows derived from damage would hide ' +
          'it. The command names them and exits with 1. With --dry-run it only counts the rows that differ.',
      },
    ],
    examples: ['./tollgate rebuild --dry-run'],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      'dry-run': { type: 'boolean' },
    })
    if (positionals.length > 0) throw new UsageError('rebuild takes no arguments, only options')
    const dryRun = values['dry-run'] ?? false
    const done = await changeCore(values, async (core) => {
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
