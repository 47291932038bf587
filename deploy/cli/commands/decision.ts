import type {
  Decision,
  DecisionCredential,
  DecisionMoney,
  DecisionSession,
  GetDecisionResponse,
} from '../../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import { type Command, UsageError, parse, withCore } from '../command.ts'
import { usd } from '../money.ts'
import { printJson, printLines, report, table } from '../output.ts'

export const decision: Command = {
  summary: 'explains why a sidecar allowed or refused a call',
  help: {
    usages: [
      {
        syntax: 'tollgate decision ID [--json]',
        text:
          'Explains a decision of /authorize in sentences: its credential, rule and figures, with the source and age ' +
          'of each; then lists the figures. ID is the member "decision" of a refusal. A permission has one if the ' +
          'end user sent the header X-Tollgate-Explain: 1, or if DECISION_SAMPLE selected it. Records are kept for ' +
          'seven days.',
      },
      {
        syntax:
          'tollgate decision [--app CLIENT_ID] [--user USER] [--code CODE] [--limit N] [--json]',
        text: 'Lists the newest decisions, 20 or N (at most 100); filters by app, user and code.',
      },
    ],
    examples: ['./tollgate decision --code insufficient_balance --limit 5'],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      user: { type: 'string' },
      code: { type: 'string' },
      limit: { type: 'string' },
    })
    const { json, target, ...filter } = values
    const [decisionId, ...others] = positionals
    if (others.length > 0 || (decisionId !== undefined && Object.keys(filter).length > 0))
      throw new UsageError('decision takes one id, or options that filter the list')
    return decisionId === undefined
      ? list(filter, { json, target })
      : show(decisionId, { json, target })
  },
}

interface Common {
  readonly json: boolean | undefined
  readonly target: string | undefined
}

async function show(decisionId: string, { json, target }: Common): Promise<number> {
  const answer = await withCore({ target }, (core) => core.getDecision({ decisionId }))
  if (json) printJson(answer)
  else printLines(linesOf(answer))
  return 0
}

interface ListOptions {
  readonly app?: string
  readonly user?: string
  readonly code?: string
  readonly limit?: string
}

async function list(
  { app: clientId, user: externalUserId, code, limit = '20' }: ListOptions,
  { json, target }: Common,
): Promise<number> {
  if (!/^([1-9][0-9]?|100)$/.test(limit))
    throw new UsageError('--limit takes a whole number from 1 to 100')
  const { decisions } = await withCore({ target }, (core) =>
    core.listDecisions({ clientId, externalUserId, code, limit: Number(limit) }),
  )
  report({ json }, decisions, () =>
    table(listColumns, decisions.map(listCells), 'No decisions are recorded.'),
  )
  return 0
}

const listColumns = ['decision', 'at', 'status', 'rule', 'user', 'session', 'call']

const listCells = ({ id, decidedAt, status, rule, credential, session }: Decision): string[] => [
  id,
  decidedAt,
  String(status),
  rule,
  userOf(credential),
  session?.id ?? '',
  session?.sequence ?? '',
]

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
    ...table(
      ['figure', 'value', 'from', 'age'],
      rows.map(([name, value, origin = '', ageMs]) => [name, value, origin, age(ageMs)]),
    ),
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

const age = (ms: number | undefined): string => (ms === undefined ? '' : `${ms / 1000} s`)
