import type { ReconcileResponse } from '../../../proto/gen/ts-proto/tollgate/metering/v1/reconciliation.ts'
import { type Command, UsageError, parse, withCore } from '../command.ts'
import { dollars } from '../money.ts'
import { printJson, printLines, table } from '../output.ts'

const daysBack = 7

export const reconcile: Command = {
  summary: "compares our sums with the metering backend's",
  help: {
    usages: [
      {
        syntax: 'tollgate reconcile [--app CLIENT_ID] [--from DAY] [--to DAY] [--all] [--json]',
        text:
          'Compares, for each app, user and UTC day, the priced tickets and their cost with the sums of OpenMeter. ' +
          'Days are YYYY-MM-DD, both included, at most 92; by default the last seven days and today. Tickets of the ' +
          'last 15 minutes do not count. The command shows the users whose sums differ and, with --all, the others. ' +
          'OpenMeter sums floats: sums agree if they differ by at most one micro-dollar and a billionth of the sum, ' +
          'and the numbers of tickets are equal. Exits with 1 when any day of a user differs by more. Events that ' +
          'are still in the outbox are missing at OpenMeter and arrive later.',
      },
    ],
    examples: ['./tollgate reconcile --from 2026-01-01 --to 2026-01-31'],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      from: { type: 'string' },
      to: { type: 'string' },
      all: { type: 'boolean' },
    })
    if (positionals.length > 0) throw new UsageError('reconcile takes only options')
    const to = values.to ?? dayOf(Date.now())
    const from =
      values.from ??
      dayOf((values.to === undefined ? Date.now() : Date.parse(values.to)) - daysBack * 86_400_000)
    const request = { clientId: values.app, from, to, all: values.all ?? false }
    const days = await withCore(values, async (core) => {
      const received: ReconcileResponse[] = []
      for await (const day of core.reconcile(request)) received.push(day)
      return received
    })
    if (values.json) printJson({ from, to, days })
    else printLines(linesOf(days))
    return days.some((day) => day.drifting > 0) ? 1 : 0
  },
}

const dayOf = (milliseconds: number): string =>
  Number.isNaN(milliseconds) ? '' : new Date(milliseconds).toISOString().slice(0, 10)

const columns = ['day', 'app', 'user', 'tickets', 'there', 'USD', 'there', 'result']

function linesOf(days: readonly ReconcileResponse[]): string[] {
  if (days.length === 0) return ['No usage in these days.']
  const rows = days.flatMap((day) => [
    [
      day.day,
      day.clientId,
      '(all)',
      day.ownTickets,
      day.backendTickets,
      dollars({ micros: day.ownUsdMicros }),
      dollars({ micros: day.backendUsdMicros }),
      day.drifting > 0 ? `${day.drifting} differ` : 'same',
    ],
    ...day.users.map((user) => [
      '',
      '',
      user.externalUserId ?? user.subject,
      user.ownTickets,
      user.backendTickets,
      dollars({ micros: user.ownUsdMicros }),
      dollars({ micros: user.backendUsdMicros }),
      user.drifts ? 'differs' : '',
    ]),
  ])
  const waiting = days.at(-1)?.waitingEvents ?? '0'
  const drifting = days.reduce((sum, day) => sum + day.drifting, 0)
  return [
    ...table(columns, rows),
    '',
    drifting === 0 ? 'Every user and day agrees.' : `Users' days that differ: ${drifting}`,
    ...(waiting === '0' ? [] : [`Events waiting in the outbox: ${waiting}`]),
  ]
}
