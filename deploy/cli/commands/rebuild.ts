import type { RebuildBooksResponse } from '../../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { action, createCommand } from '../command.ts'
import { text, toggle } from '../options.ts'
import { createProgressBar } from '../output.ts'

export const rebuild = createCommand('rebuild', {
  summary: 'repairs sums and balances, from the tickets and the ledger',
  examples: ['./tollgate rebuild --dry-run'],
  action: action({
    text:
      'Recomputes the derived rows of one app (app_…) or of all apps from tickets and ledger: hourly sums, ' +
      'sessions, balances, sums of periods, remaining credits. Ingest continues: rows are locked a few at a ' +
      'time. Correct rows stay untouched, so a second run changes nothing. Tickets and ledger entries are never ' +
      'changed. Users with damaged tickets or entries are skipped, because rows derived from damage would hide ' +
      'it. The command names them and exits with 1. With --dry-run it only counts the rows that differ.',
    options: { clientId: text('ID', { flag: 'app' }), dryRun: toggle() },
    change: async (core, { json, ...request }) => {
      const { dryRun } = request
      const bar = createProgressBar()
      const apps: RebuildBooksResponse[] = []
      for await (const message of core.books.rebuildBooks(request)) {
        bar.update({ name: message.clientId, done: message.usersDone, total: message.usersTotal })
        if (message.kind !== 'done') continue
        apps.push(message)
        if (!json) bar.line(lineOf(message, dryRun))
      }
      bar.end()
      return { dryRun, apps }
    },
    // Each app has its line when it is done.
    lines: () => [],
  }),
})

function lineOf(
  { clientId, usersTotal, usageHourly, ticketSessions, balances }: RebuildBooksResponse,
  dryRun: boolean,
): string {
  const rows = `${usageHourly} hours, ${ticketSessions} sessions, ${balances} balances`
  return `${clientId}  ${usersTotal} users: ${rows} ${dryRun ? 'differ' : 'repaired'}`
}
