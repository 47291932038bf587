import { readFile, stat } from 'node:fs/promises'
import { toMessage } from '../../../../core/lib/process.ts'
import type {
  RunOut,
  WhatIf,
  WhatIfRow,
} from '../../../../proto/gen/ts-proto/tollgate/billing/v1/whatif.ts'
import { type Command, UsageError, need, parseOptions, withCore } from '../../command.ts'
import { dollars } from '../../money.ts'
import { printJson, printLines, table } from '../../output.ts'

const fileMaxBytes = 1_048_576

export const whatif: Command = {
  summary: 'replays booked tickets against draft plans',
  help: {
    usages: [
      {
        syntax:
          'tollgate whatif [--app APP] --from TIME --to TIME --plans FILE.json [--json | --csv]',
        text:
          'Replays the tickets of an app that were signed at or after --from and before --to (ISO 8601, at most 366 ' +
          'days) with the plans of FILE, and compares the result with the booked figures: revenue, margin, users who ' +
          'would pay more or less, users who would have run out of money, unused included usage; by plan and in ' +
          'total. FILE is {"plans": [...], "assign": {"default": NAME, "plans": {PLAN: NAME}, "users": {USER: ' +
          'NAME}}}: draft plans in the form of POST …/plans, and the draft of each user: by user, by present plan, ' +
          'or for all others; without assign, all users get the only plan. It writes nothing (docs/whatif.md).',
      },
    ],
    examples: [
      './tollgate whatif --app app_0123456789abcdef01234567 --from 2026-10-01 --to 2026-11-01 --plans drafts.json',
    ],
  },
  run: async (argv) => {
    const values = parseOptions(argv, {
      app: { type: 'string' },
      from: { type: 'string' },
      to: { type: 'string' },
      plans: { type: 'string' },
      csv: { type: 'boolean' },
    })
    const { app, from, to, plans } = await need('whatif', values, ['app', 'from', 'to', 'plans'])
    if (values.json && values.csv) throw new UsageError('--json and --csv exclude each other')
    const requestJson = JSON.stringify({ ...(await readDrafts(plans)), from, to })
    const { whatIf } = await withCore(values, (core) =>
      core.tryAppPlans({ clientId: app, requestJson }),
    )
    if (!whatIf) throw new Error("core's answer lacks what_if")
    if (values.json) printJson(whatIf)
    else printLines(values.csv ? csvOf(whatIf) : textOf(whatIf))
    return 0
  },
}

async function readDrafts(file: string): Promise<object> {
  const { size } = await stat(file).catch((error: unknown) => {
    throw new Error(`${file} cannot be read: ${toMessage(error)}`, { cause: error })
  })
  if (size > fileMaxBytes) throw new Error(`${file} has more than ${fileMaxBytes} bytes`)
  const drafts = parsed(file, await readFile(file, 'utf8'))
  if (typeof drafts !== 'object' || drafts === null || Array.isArray(drafts))
    throw new Error(`${file} must contain a JSON object with plans and assign`)
  return drafts
}

function parsed(file: string, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new Error(`${file} is not valid JSON: ${toMessage(error)}`, { cause: error })
  }
}

const columns: Readonly<Record<string, (row: WhatIfRow) => string | number | undefined>> = {
  plan: ({ plan }) => plan,
  draft: ({ isDraft }) => (isDraft ? 'yes' : 'no'),
  users: ({ users }) => users,
  tickets: ({ tickets }) => tickets,
  unpriced: ({ unpricedTickets }) => unpricedTickets,
  network_cost: ({ networkCostUsdExact }) => networkCostUsdExact,
  platform_cut: ({ platformCutUsdExact }) => platformCutUsdExact,
  revenue_today: ({ today }) => today?.revenueUsdExact,
  revenue: ({ whatIf }) => whatIf?.revenueUsdExact,
  margin_today: ({ today }) => today?.marginUsdExact,
  margin: ({ whatIf }) => whatIf?.marginUsdExact,
  included_today: ({ today }) => today?.includedUsdExact,
  included: ({ whatIf }) => whatIf?.includedUsdExact,
  unused_today: ({ today }) => today?.includedUnusedUsdExact,
  unused: ({ whatIf }) => whatIf?.includedUnusedUsdExact,
  overage_today: ({ today }) => today?.overageUsdExact,
  overage: ({ whatIf }) => whatIf?.overageUsdExact,
  run_out_today: ({ today }) => today?.usersRunOut,
  run_out: ({ whatIf }) => whatIf?.usersRunOut,
  pay_more: ({ usersPayingMore }) => usersPayingMore,
  pay_less: ({ usersPayingLess }) => usersPayingLess,
  pay_same: ({ usersPayingSame }) => usersPayingSame,
}

/** The rows of the answer, followed by the total. */
const rowsOf = ({ plans, total }: WhatIf): WhatIfRow[] =>
  total ? [...plans, { ...total, plan: '(all)' }] : plans

const cellsOf = (row: WhatIfRow): string[] =>
  Object.values(columns).map((cell) => String(cell(row) ?? ''))

const csvOf = (whatIf: WhatIf): string[] => [
  Object.keys(columns).join(','),
  ...rowsOf(whatIf).map((row) => cellsOf(row).map(csvCell).join(',')),
]

// A spreadsheet treats text with such a start as a formula. Negative amounts are safe.
const csvCell = (cell: string): string => {
  const text = /^[=+@\t\r-]/.test(cell) && !/^-[0-9.]+$/.test(cell) ? `'${cell}` : cell
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

const places = 6

/** Truncated to a micro, for display; --json and --csv have all digits. */
const toMicro = (amount: string | undefined): string => {
  const [whole = '', fraction = ''] = (amount ?? '').split('.')
  return dollars({ exact: `${whole}.${fraction.slice(0, places).padEnd(places, '0')}` })
}

const textOf = (whatIf: WhatIf): string[] => [
  `${whatIf.from} to ${whatIf.to}, in USD: booked -> with the drafts`,
  '',
  ...table(
    [
      'plan',
      'users',
      'tickets',
      'network',
      'cut',
      'revenue',
      'margin',
      'unused',
      'run out',
      'pay more/less/same',
    ],
    rowsOf(whatIf).map(lineOf),
  ),
  ...unpricedLine(whatIf),
  ...runOutLines(whatIf),
]

const lineOf = (row: WhatIfRow): string[] => {
  const { today, whatIf } = row
  return [
    row.isDraft ? `${row.plan} (draft)` : row.plan,
    String(row.users),
    row.tickets,
    toMicro(row.networkCostUsdExact),
    toMicro(row.platformCutUsdExact),
    `${toMicro(today?.revenueUsdExact)} -> ${toMicro(whatIf?.revenueUsdExact)}`,
    `${toMicro(today?.marginUsdExact)} -> ${toMicro(whatIf?.marginUsdExact)}`,
    `${toMicro(today?.includedUnusedUsdExact)} -> ${toMicro(whatIf?.includedUnusedUsdExact)}`,
    `${today?.usersRunOut} -> ${whatIf?.usersRunOut}`,
    `${row.usersPayingMore}/${row.usersPayingLess}/${row.usersPayingSame}`,
  ]
}

const unpricedLine = ({ total }: WhatIf): string[] =>
  total && total.unpricedTickets !== '0'
    ? ['', `${total.unpricedTickets} tickets wait for a price; no amount includes them`]
    : []

function runOutLines({ runOuts, moreRunOuts }: WhatIf): string[] {
  if (runOuts.length === 0) return []
  const lines = runOuts.map(({ externalUserId, plan, at, todayAt }: RunOut) => [
    externalUserId,
    plan,
    at,
    todayAt ?? '-',
  ])
  const more = moreRunOuts > 0 ? [`and ${moreRunOuts} more users`] : []
  return ['', ...table(['user', 'plan', 'would run out', 'ran out'], lines), ...more]
}
