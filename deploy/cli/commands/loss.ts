import type {
  CallTotals,
  GetLossReportResponse,
  LossTotals,
  SessionLoss,
} from '../../../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import { action, createCommand } from '../command.ts'
import { dollars } from '../money.ts'
import { appFilter, text } from '../options.ts'
import { type Column, table } from '../output.ts'

export const loss = createCommand('loss', {
  summary: 'shows which tickets were lost on the way from the signer',
  examples: ['./tollgate loss --from 2026-01-01 --to 2026-01-31'],
  action: action({
    text:
      'Counts, by app, the tickets that the signer signed but that never arrived: gaps in the sequence numbers ' +
      'of its sessions that stayed open for LOSS_GRACE_SECONDS, with an estimate of their cost (the mean of ' +
      'their session; it is not charged). It also counts tickets that repeat a sequence number (forked), tickets ' +
      'that arrived 15 minutes late, and the spend in quarantine that has no user. The report covers sessions ' +
      'that began in the last 30 days, or between two ISO 8601 dates, both included. With --app it lists the ' +
      "app's newest sessions and their missing sequence numbers, too. A second table shows the outcome of the " +
      'calls that sidecars allowed, in USD by their highest possible cost: ticketed (by actual cost), lost ' +
      '(signed, without a ticket, and written off: LOST_TICKETS=charge would have charged it), charged (the ' +
      'same, charged as an estimate), released (perhaps never signed), and late (their ticket arrived after ' +
      'that).',
    options: {
      clientId: appFilter,
      startDate: text('DATE', { flag: 'from' }),
      endDate: text('DATE', { flag: 'to' }),
    },
    read: (core, request) => core.losses.getLossReport(request),
    lines: linesOf,
  }),
})

function linesOf({ period, totals, calls, ...report }: GetLossReportResponse): string[] {
  const apps = report.apps.map(({ clientId, ...app }) => ({ app: clientId ?? 'deleted', ...app }))
  return [
    `Sessions that began from ${period?.start ?? 'ever'} to ${period?.end ?? 'now'}`,
    ...table([...apps, { app: 'all', totals }], ['app', ...totalColumns]),
    ...(report.sessions.length === 0 ? [] : ['', ...table(report.sessions, sessionColumns)]),
    '',
    'Allowed calls',
    ...table([...apps.filter((app) => app.calls), { app: 'all', calls }], ['app', ...callColumns]),
    ...(report.callSessions.length === 0
      ? []
      : ['', ...table(report.callSessions, [...startColumns, ...callColumns])]),
    '',
    `Spend in quarantine without a user: ${report.unattributedEvents} events, ${report.unattributedFeeWei} wei`,
  ]
}

interface OfSession {
  readonly sessionId: string
  readonly externalUserId?: string | undefined
  readonly startedAt: string
}

const startColumns: Column<OfSession>[] = [
  ['session', 'sessionId'],
  ['user', ({ externalUserId }) => externalUserId ?? 'unknown'],
  ['began', 'startedAt'],
]

const totalColumns: Column<{ readonly totals?: LossTotals | undefined }>[] = [
  ['sessions', ({ totals }) => totals?.sessionCount],
  ['lost', ({ totals }) => totals?.lostCount],
  ['estimated USD', ({ totals }) => dollars({ micros: totals?.estimatedUsdMicros })],
  ['forked', ({ totals }) => totals?.forkedCount],
  ['late', ({ totals }) => totals?.lateCount],
]

const outcomes = ['authorised', 'ticketed', 'lost', 'charged', 'released', 'late'] as const

/** The number of calls of each outcome, and their money. */
const callColumns = outcomes.flatMap(
  (name): Column<{ readonly calls?: CallTotals | undefined }>[] => [
    [name, ({ calls }) => calls?.[`${name}Count`]],
    ['USD', ({ calls }) => dollars({ micros: calls?.[`${name}UsdMicros`] })],
  ],
)

const sessionColumns: Column<SessionLoss>[] = [
  ...startColumns,
  ['tickets', 'requestCount'],
  ['lost', 'lostCount'],
  [
    'estimated USD',
    ({ estimatedUsdMicros: micros }) => (micros === undefined ? 'unpriced' : dollars({ micros })),
  ],
  ['forked', 'forkedCount'],
  ['missing', missing],
]

const rangesMax = 5

function missing({ missing: ranges, missingMore }: SessionLoss): string {
  const texts = ranges
    .slice(0, rangesMax)
    .map(({ first, last }) => (first === last ? first : `${first}-${last}`))
  return [...texts, ...(missingMore || ranges.length > rangesMax ? ['…'] : [])].join(' ')
}
