import type {
  Decision,
  DecisionCredential,
  DecisionMoney,
  DecisionSession,
  GetDecisionResponse,
} from '../../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import { action, createCommand } from '../command.ts'
import { usd } from '../money.ts'
import { UsageError, appFilter, integer, optionalArgument, text } from '../options.ts'
import { table } from '../output.ts'

export const decision = createCommand('decision', {
  summary: 'explains why a sidecar allowed or refused a call',
  examples: ['./tollgate decision --code insufficient_balance --limit 5'],
  action: action({
    text:
      'Explains a decision of /authorize in sentences: its credential, rule and figures, with the source and age ' +
      'of each; then lists the figures. ID is the member "decision" of a refusal. A permission has one if the ' +
      'end user sent the header X-Tollgate-Explain: 1, or if DECISION_SAMPLE selected it. Records are kept for ' +
      'seven days. Without ID it lists the newest decisions, 20 or N (at most 100); filters by app, user and code.',
    options: {
      decisionId: optionalArgument('ID'),
      clientId: appFilter,
      externalUserId: text('USER', { flag: 'user' }),
      code: text('CODE'),
      limit: integer('N', { from: 1, to: 100, fallback: 20 }),
    },
    read: async (core, { decisionId, ...filter }) => {
      if (decisionId === undefined) return (await core.decisions.listDecisions(filter)).decisions
      const { clientId, externalUserId, code } = filter
      if (clientId ?? externalUserId ?? code)
        throw new UsageError('decision takes one id, or options that filter the list')
      return core.decisions.getDecision({ decisionId })
    },
    lines: (answer) => (Array.isArray(answer) ? listOf(answer) : linesOf(answer)),
  }),
})

const listOf = (decisions: readonly Decision[]): string[] =>
  table(
    decisions,
    [
      ['decision', 'id'],
      ['at', 'decidedAt'],
      'status',
      'rule',
      ['user', ({ credential }) => userOf(credential)],
      ['session', ({ session }) => session?.id],
      ['call', ({ session }) => session?.sequence],
    ],
    'No decisions are recorded.',
  )

const userOf = (credential: DecisionCredential | undefined): string =>
  credential?.externalUserId === undefined
    ? 'none'
    : `${credential.clientId}:${credential.externalUserId}`

/** A figure: its name and value, its source, and its age. */
type Row = readonly [name: string, value: string, origin?: string, ageMs?: number | undefined]

function linesOf({ decision: record, explanation }: GetDecisionResponse): string[] {
  const rows = record ? rowsOf(record) : []
  return [
    ...explanation,
    '',
    ...table(rows, [
      ['figure', ([name]) => name],
      ['value', ([, value]) => value],
      ['from', ([, , origin]) => origin],
      ['age', ([, , , ageMs]) => (ageMs === undefined ? '' : `${ageMs / 1000} s`)],
    ]),
  ]
}

const rowsOf = ({ id, occasion, rule, credential, session, money }: Decision): Row[] => [
  ['decision', id],
  ['recorded for', occasion],
  ['rule', rule],
  ...(credential ? credentialRows(credential) : []),
  ...(session ? sessionRows(session) : []),
  ...(money ? moneyRows(money) : []),
]

function credentialRows(credential: DecisionCredential): Row[] {
  const { kind, id, source = '', ageMs } = credential
  return [
    ['credential', id ?? kind],
    ['identity', userOf(credential), source, ageMs],
  ]
}

const sessionRows = ({ id, sequence, lastUpdate, priorCall }: DecisionSession): Row[] => [
  ['session', id],
  ['sequence', sequence ?? 'none'],
  ['LastUpdate', lastUpdate ?? 'none'],
  ...(priorCall ? [['prior call', priorCall.at ?? 'none', priorCall.source] satisfies Row] : []),
]

function moneyRows({ source, lease, ...money }: DecisionMoney): Row[] {
  const rows: readonly (Row | null)[] = [
    usdRow(['bound', money.boundUsdNanos, source]),
    usdRow(['remaining', money.remainingUsdNanos, 'core', money.remainingAgeMs]),
    money.accessAgeMs === undefined ? null : ['access', 'known', 'core', money.accessAgeMs],
    usdRow(['lease left', lease?.leftUsdNanos, lease?.id, lease?.ageMs]),
    money.usdPerEth === undefined
      ? null
      : [
          'rate',
          usd({ exact: money.usdPerEth }),
          money.rateRaised ? 'raised' : 'core',
          money.rateAgeMs,
        ],
    money.limit === undefined ? null : ['limit', money.limit, 'core'],
  ]
  return rows.filter((row) => row !== null)
}

type UsdFigure = readonly [
  name: string,
  nanos: string | undefined,
  origin?: string | undefined,
  ageMs?: number | undefined,
]

const usdRow = ([name, nanos, origin = '', ageMs]: UsdFigure): Row | null =>
  nanos === undefined ? null : [name, usd({ nanos }), origin, ageMs]
