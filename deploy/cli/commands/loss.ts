import type {
  CallTotals,
  GetLossReportResponse,
  LossTotals,
  SessionCalls,
  SessionLoss,
} from '../../../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import { type Command, UsageError, parse, withCore } from '../command.ts'
import { dollars } from '../money.ts'
import { printJson, printLines, table } from '../output.ts'

export const loss: Command = {
  summary: 'shows which tickets were lost on the way from the signer',
  help: {
    usages: [
      {
        syntax: 'tollgate loss [--app CLIENT_ID] [--from DATE] [--to DATE] [--json]',
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
      },
    ],
    examples: ['./tollgate loss --from 2026-01-01 --to 2026-01-31'],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      from: { type: 'string' },
      to: { type: 'string' },
    })
    if (positionals.length > 0) throw new UsageError('loss takes options only')
    const report = await withCore(values, (core) =>
      core.lossReport({ clientId: values.app, startDate: values.from, endDate: values.to }),
    )
    if (values.json) printJson(report)
    else printLines(linesOf(report))
    return 0
  },
}

const columns = ['app', 'sessions', 'lost', 'estimated USD', 'forked', 'late']
const sessionColumns = [
  'session',
  'user',
  'began',
  'tickets',
  'lost',
  'estimated USD',
  'forked',
  'missing',
]

function linesOf({
  period,
  totals,
  apps,
  sessions,
  unattributedEvents,
  unattributedFeeWei,
  calls,
  callSessions,
}: GetLossReportResponse): string[] {
  const rows = apps.map((app) => [app.clientId ?? 'deleted', ...cells(app.totals)])
  return [
    `Sessions that began from ${period?.start ?? 'ever'} to ${period?.end ?? 'now'}`,
    ...table(columns, [...rows, ['all', ...cells(totals)]]),
    ...(sessions.length === 0 ? [] : ['', ...table(sessionColumns, sessions.map(sessionCells))]),
    '',
    'Allowed calls',
    ...table(
      ['app', ...callColumns],
      [
        ...apps.flatMap((app) =>
          app.calls ? [[app.clientId ?? 'deleted', ...callCells(app.calls)]] : [],
        ),
        ['all', ...callCells(calls)],
      ],
    ),
    ...(callSessions.length === 0
      ? []
      : [
          '',
          ...table(
            ['session', 'user', 'began', ...callColumns],
            callSessions.map(callSessionCells),
          ),
        ]),
    '',
    `Spend in quarantine without a user: ${unattributedEvents} events, ${unattributedFeeWei} wei`,
  ]
}

const cells = (totals: LossTotals | undefined): string[] =>
  totals
    ? [
        totals.sessionCount,
        totals.lostCount,
        dollars({ micros: totals.estimatedUsdMicros }),
        totals.forkedCount,
        totals.lateCount,
      ]
    : []

const callColumns = ['authorised', 'ticketed', 'lost', 'charged', 'released', 'late'].flatMap(
  (column) => [column, 'USD'],
)

const callCells = (calls: CallTotals | undefined): string[] =>
  calls
    ? [
        calls.authorisedCount,
        dollars({ micros: calls.authorisedUsdMicros }),
        calls.ticketedCount,
        dollars({ micros: calls.ticketedUsdMicros }),
        calls.lostCount,
        dollars({ micros: calls.lostUsdMicros }),
        calls.chargedCount,
        dollars({ micros: calls.chargedUsdMicros }),
        calls.releasedCount,
        dollars({ micros: calls.releasedUsdMicros }),
        calls.lateCount,
        dollars({ micros: calls.lateUsdMicros }),
      ]
    : []

const callSessionCells = (session: SessionCalls): string[] => [
  session.sessionId,
  session.externalUserId ?? 'unknown',
  session.startedAt,
  ...callCells(session.calls),
]

const sessionCells = (session: SessionLoss): string[] => [
  session.sessionId,
  session.externalUserId ?? 'unknown',
  session.startedAt,
  session.requestCount,
  session.lostCount,
  session.estimatedUsdMicros === undefined
    ? 'unpriced'
    : dollars({ micros: session.estimatedUsdMicros }),
  session.forkedCount,
  missing(session),
]

const rangesMax = 5

function missing({ missing: ranges, missingMore }: SessionLoss): string {
  const texts = ranges
    .slice(0, rangesMax)
    .map(({ first, last }) => (first === last ? first : `${first}-${last}`))
  return [...texts, ...(missingMore || ranges.length > rangesMax ? ['…'] : [])].join(' ')
}
