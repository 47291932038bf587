import type { ReconcileResponse } from '../../../proto/gen/ts-proto/tollgate/metering/v1/reconciliation.ts'
import { type Command, UsageError, parse, printJson, printLines, withCore } from '../command.ts'

const daysBack = 7

export const reconcile: Command = {
  summary: "holds our sums against the metering backend's",
  help: `tollgate reconcile [--app CLIENT_ID] [--from DAY] [--to DAY] [--all] [--json]
  Compares, for each app, user and UTC day, the priced tickets and what they cost with the sums of OpenMeter. Days are
  YYYY-MM-DD, both inclusive, at most 92; the last seven and today when not given. Of today only what is 15 minutes old
  counts. Shows the users whose sums differ; with --all the others, too.

  OpenMeter sums floats. Sums agree when they are within one micro-dollar and a billionth of the sum, and the counts of
  tickets are the same. Exits 1 when any user's day is beyond that. Events that still wait in the outbox are missing
  there and arrive by themselves.

  npx tollgate reconcile --from 2026-01-01 --to 2026-01-31
`,
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      from: { type: 'string' },
      to: { type: 'string' },
      all: { type: 'boolean' },
      json: { type: 'boolean' },
    })
    if (positionals.length > 0) throw new UsageError('reconcile takes only options')
    const days: ReconcileResponse[] = []
    const to = values.to ?? dayOf(Date.now())
    const from =
      values.from ??
      dayOf((values.to === undefined ? Date.now() : Date.parse(values.to)) - daysBack * 86_400_000)
    await withCore((core) =>
      core.reconcile({ clientId: values.app, from, to, all: values.all ?? false }, (day) =>
        days.push(day),
      ),
    )
    if (values.json) printJson({ from, to, days })
    else printLines(told(days))
    return days.some((day) => day.drifting > 0) ? 1 : 0
  },
}

const dayOf = (milliseconds: number): string =>
  Number.isNaN(milliseconds) ? '' : new Date(milliseconds).toISOString().slice(0, 10)

const columns = ['day', 'app', 'user', 'tickets', 'there', 'USD micros', 'there', '']

function told(days: readonly ReconcileResponse[]): string[] {
  if (days.length === 0) return ['No usage in these days.']
  const rows = days.flatMap((day) => [
    [
      day.day,
      day.clientId,
      '(all)',
      day.ownTickets,
      day.backendTickets,
      day.ownUsdMicros,
      day.backendUsdMicros,
      day.drifting > 0 ? `${day.drifting} differ` : 'same',
    ],
    ...day.users.map((user) => [
      '',
      '',
      user.externalUserId ?? user.subject,
      user.ownTickets,
      user.backendTickets,
      user.ownUsdMicros,
      user.backendUsdMicros,
      user.drifts ? 'differs' : '',
    ]),
  ])
  const waiting = days.at(-1)?.waitingEvents ?? '0'
  const drifting = days.reduce((sum, day) => sum + day.drifting, 0)
  return [
    ...table([columns, ...rows]),
    '',
    drifting === 0 ? 'Every user and day agrees.' : `Users' days that differ: ${drifting}`,
    ...(waiting === '0' ? [] : [`Events that wait to be sent: ${waiting}`]),
  ]
}

function table(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => printable(row[column]).length)),
  )
  return rows.map((row) =>
    row
      .map((cell, column) => printable(cell).padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  )
}

// Users choose their names; a terminal must not obey them.
const printable = (cell: string | undefined): string =>
  (cell ?? '').replace(/[\p{Cc}\p{Cf}]/gu, '?')
