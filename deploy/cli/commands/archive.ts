import type { ArchiveMonthsResponse } from '../../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { type Command, UsageError, changeCore, parse } from '../command.ts'
import { createProgressBar, report, table } from '../output.ts'

export const archive: Command = {
  summary: 'writes old months of tickets to files and drops them',
  help: {
    usages: [
      {
        syntax: 'tollgate archive [--dry-run] [--json]',
        text:
          'Archives old months now; core does the same every hour when RETENTION_MONTHS is set. Each older month is ' +
          "written to ARCHIVE_DIR on core's machine, one file for each app, in the format of `tollgate export`. The " +
          'tickets are dropped only after the file was read back. Hourly sums, sessions and the ledger stay. A month ' +
          'whose tickets lack a rate or a daily root is skipped until they have one. `tollgate import FILE` restores ' +
          'a month for 30 days. With --dry-run the command only lists the months that are due.',
      },
    ],
    examples: ['./tollgate archive --dry-run'],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      'dry-run': { type: 'boolean' },
    })
    if (positionals.length > 0) throw new UsageError('archive takes no arguments, only options')
    const bar = createProgressBar()
    const steps = await changeCore(values, async (core) => {
      const all: ArchiveMonthsResponse[] = []
      for await (const step of core.archiveMonths({ dryRun: values['dry-run'] ?? false })) {
        all.push(step)
        bar.update({ name: step.month, done: all.length, total: 0 })
      }
      return all
    }).finally(bar.end)
    report(values, steps, () =>
      table(['month', 'app', 'tickets', 'outcome'], steps.map(cellsOf), 'Nothing is due.'),
    )
    return 0
  },
}

function cellsOf(step: ArchiveMonthsResponse): string[] {
  const { kind, month, clientId, tickets, file, detail } = step
  const outcome = kind === 'archived' ? file : kind === 'waits' ? `waits: ${detail}` : 'is due'
  return [month, clientId, tickets, outcome]
}
