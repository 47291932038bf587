import type {
  GetLossReportResponse,
  LossTotals,
  SessionLoss,
} from '../../../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import { type Command, UsageError, parse, printJson, printLines, withCore } from '../command.ts'
import { table } from '../table.ts'

export const loss: Command = {
  summary: 'shows what was lost on the way from the signer',
  help: `tollgate loss [--app CLIENT_ID] [--from DATE] [--to DATE] [--json]
  Tickets that the signer signed and never told, by app: holes in the sequence numbers of its sessions that stayed open
  for LOSS_GRACE_SECONDS, with an estimate of their money (the mean of their session; nobody is charged for them). Also
  tickets whose sequence number had come before (forked) or that came 15 minutes late, and the spend in quarantine that
  belongs to nobody. Of sessions that began in the last 30 days, or between two ISO 8601 dates, both included.
  With --app also its newest sessions, and which sequence numbers are missing.
`,
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      from: { type: 'string' },
      to: { type: 'string' },
      json: { type: 'boolean' },
    })
    if (positionals.length > 0) throw new UsageError('loss takes options only')
    const report = await withCore((core) =>
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
}: GetLossReportResponse): string[] {
  const rows = apps.map((app) => [app.clientId ?? 'deleted', ...cells(app.totals)])
  return [
    `Sessions that began from ${period?.start ?? 'ever'} to ${period?.end ?? 'now'}`,
    ...table([columns, ...rows, ['all', ...cells(totals)]]),
    ...(sessions.length === 0
      ? []
      : ['', ...table([sessionColumns, ...sessions.map(sessionCells)])]),
    '',
    `Spend in quarantine that belongs to nobody: ${unattributedEvents} events, ${unattributedFeeWei} wei`,
  ]
}

const cells = (totals: LossTotals | undefined): string[] =>
  totals
    ? [
        totals.sessionCount,
        totals.lostCount,
        usd(totals.estimatedUsdMicros),
        totals.forkedCount,
        totals.lateCount,
      ]
    : []

const sessionCells = (session: SessionLoss): string[] => [
  session.sessionId,
  session.externalUserId ?? 'unknown',
  session.startedAt,
  session.requestCount,
  session.lostCount,
  session.estimatedUsdMicros === undefined ? 'unpriced' : usd(session.estimatedUsdMicros),
  session.forkedCount,
  missing(session),
]

const shownRanges = 5

function missing({ missing: ranges, missingMore }: SessionLoss): string {
  const shown = ranges
    .slice(0, shownRanges)
    .map(({ first, last }) => (first === last ? first : `${first}-${last}`))
  return [...shown, ...(missingMore || ranges.length > shownRanges ? ['…'] : [])].join(' ')
}

/** Micros as dollars. */
const usd = (micros: string): string =>
  `${micros.padStart(7, '0').slice(0, -6)}.${micros.padStart(7, '0').slice(-6)}`
