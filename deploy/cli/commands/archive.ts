import type { ArchiveMonthsResponse } from '../../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { type Command, UsageError, changeCore, parse } from '../command.ts'
import { printJson, printLines } from '../output.ts'

export const archive: Command = {
  summary: 'writes old months of tickets to files and drops them',
  help: {
    usages: [
      {
        syntax: 'tollgate archive [--dry-run] [--json]',
        text:
          'Does now what core does every hour when RETENTION_MONTHS is set. Each older month is written to ' +
          "ARCHIVE_DIR on core's machine, one file for each app, in the format of `tollgate export`. Each file is " +
          'read back, and only then are its tickets dropped. Hourly sums, sessions and the ledger stay. A month ' +
          'with tickets that have no rate yet, or are in no daily root yet, is left for later. `tollgate import ' +
          'FILE` puts a month back for 30 days. With --dry-run the command only lists the months that are due.',
      },
    ],
    examples: ['npx tollgate archive --dry-run'],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      'dry-run': { type: 'boolean' },
      json: { type: 'boolean' },
    })
    if (positionals.length > 0) throw new UsageError('archive takes no arguments, only options')
    const steps = await changeCore(values, async (core) => {
      const all: ArchiveMonthsResponse[] = []
      for await (const step of core.archiveMonths({ dryRun: values['dry-run'] ?? false })) {
        all.push(step)
        if (!values.json) printLines([lineOf(step)])
      }
      return all
    })
    if (values.json) printJson(steps)
    else if (steps.length === 0) printLines(['Nothing is due.'])
    return 0
  },
}

function lineOf({ kind, month, clientId, tickets, file, detail }: ArchiveMonthsResponse): string {
  const what = kind === 'archived' ? file : kind === 'waits' ? `waits: ${detail}` : 'is due'
  return `${month}  ${clientId}  ${tickets} tickets  ${what}`
}
