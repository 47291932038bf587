import type { ArchiveMonthsResponse } from '../../../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { action, createCommand } from '../../command.ts'
import { toggle } from '../../options.ts'
import { createProgressBar, table } from '../../output.ts'

export const archive = createCommand('archive', {
  summary: 'writes old months of tickets to files and drops them',
  examples: ['./tollgate archive --dry-run'],
  action: action({
    text:
      'Archives old months now; core does the same every hour when RETENTION_MONTHS is set. Each older month is ' +
      "written to ARCHIVE_DIR on core's machine, one file for each app, in the format of `tollgate export`. The " +
      'tickets are dropped only after the file was read back. Hourly sums, sessions and the ledger stay. A month ' +
      'whose tickets lack a rate or a daily root is skipped until they have one. `tollgate import FILE` restores ' +
      'a month for 30 days. With --dry-run the command only lists the months that are due.',
    options: { dryRun: toggle() },
    change: async (core, request) => {
      const bar = createProgressBar()
      const steps: ArchiveMonthsResponse[] = []
      try {
        for await (const step of core.books.archiveMonths(request)) {
          steps.push(step)
          bar.update({ name: step.month, done: steps.length, total: 0 })
        }
      } finally {
        bar.end()
      }
      return steps
    },
    lines: (steps) =>
      table(
        steps,
        ['month', ['app', 'clientId'], 'tickets', ['outcome', outcomeOf]],
        'Nothing is due.',
      ),
  }),
})

const outcomeOf = ({ kind, file, detail }: ArchiveMonthsResponse): string =>
  kind === 'archived' ? file : kind === 'waits' ? `waits: ${detail}` : 'is due'
