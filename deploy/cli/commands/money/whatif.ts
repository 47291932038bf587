import type {
  WhatIf,
  WhatIfRow,
} from '../../../../proto/gen/ts-proto/tollgate/billing/v1/whatif.ts'
import { action, createCommand } from '../../command.ts'
import { readJsonFile } from '../../read-file.ts'
import { dollars } from '../../money.ts'
import { app, required, toggle } from '../../options.ts'
import { type Column, formatCells, table } from '../../output.ts'

export const whatif = createCommand('whatif', {
  summary: 'replays booked tickets against draft plans',
  examples: [
    './tollgate whatif --app app_0123456789abcdef01234567 --from 2026-10-01 --to 2026-11-01 --plans drafts.json',
  ],
  action: action({
    text:
      'Replays the tickets of an app that were signed at or after --from and before --to (ISO 8601, at most 366 ' +
      'days) with the plans of FILE, and compares the result with the booked figures: revenue, margin, users who ' +
      'would pay more or less, users who would have run out of money, unused included usage; by plan and in ' +
      'total. FILE is {"plans": [...], "assign": {"default": NAME, "plans": {PLAN: NAME}, "users": {USER: ' +
      'NAME}}}: draft plans in the form of POST …/plans, and the draft of each user: by user, by present plan, ' +
      'or for all others; without assign, all users get the only plan. It writes nothing (docs/whatif.md).',
    options: {
      clientId: app,
      from: required('TIME'),
      to: required('TIME'),
      plans: required('FILE.json'),
      json: toggle(),
      csv: toggle(),
    },
    atMostOne: [['json', 'csv']],
    read: async (core, { clientId, from, to, plans }) => {
      const requestJson = JSON.stringify({ ...(await readJsonFile(plans)), from, to })
      const { whatIf } = await core.whatIf.simulatePlans({ clientId, requestJson })
      if (!whatIf) throw new Error("core's answer lacks what_if")
      return whatIf
    },
    lines: (whatIf, { csv }) => (csv ? csvOf(whatIf) : textOf(whatIf)),
  }),
})

const csvColumns: Column<WhatIfRow>[] = [
  'plan',
  ['draft', 'isDraft'],
  'users',
  'tickets',
  ['unpriced', 'unpricedTickets'],
  ['network_cost', 'networkCostUsdExact'],
  ['platform_cut', 'platformCutUsdExact'],
  ['revenue_today', ({ today }) => today?.revenueUsdExact],
  ['revenue', ({ whatIf }) => whatIf?.revenueUsdExact],
  ['margin_today', ({ today }) => today?.marginUsdExact],
  ['margin', ({ whatIf }) => whatIf?.marginUsdExact],
  ['included_today', ({ today }) => today?.includedUsdExact],
  ['included', ({ whatIf }) => whatIf?.includedUsdExact],
  ['unused_today', ({ today }) => today?.includedUnusedUsdExact],
  ['unused', ({ whatIf }) => whatIf?.includedUnusedUsdExact],
  ['overage_today', ({ today }) => today?.overageUsdExact],
  ['overage', ({ whatIf }) => whatIf?.overageUsdExact],
  ['run_out_today', ({ today }) => today?.usersRunOut],
  ['run_out', ({ whatIf }) => whatIf?.usersRunOut],
  ['pay_more', 'usersPayingMore'],
  ['pay_less', 'usersPayingLess'],
  ['pay_same', 'usersPayingSame'],
]

/** The rows of the answer, followed by the total. */
const rowsOf = ({ plans, total }: WhatIf): WhatIfRow[] =>
  total ? [...plans, { ...total, plan: '(all)' }] : plans

const csvOf = (whatIf: WhatIf): string[] =>
  formatCells(rowsOf(whatIf), csvColumns).map((cells) => cells.map(csvCell).join(','))

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
  ...table(rowsOf(whatIf), [
    ['plan', ({ plan, isDraft }) => (isDraft ? `${plan} (draft)` : plan)],
    'users',
    'tickets',
    ['network', (row) => toMicro(row.networkCostUsdExact)],
    ['cut', (row) => toMicro(row.platformCutUsdExact)],
    ['revenue', moved('revenueUsdExact')],
    ['margin', moved('marginUsdExact')],
    ['unused', moved('includedUnusedUsdExact')],
    ['run out', ({ today, whatIf }) => `${today?.usersRunOut} -> ${whatIf?.usersRunOut}`],
    [
      'pay more/less/same',
      (row) => `${row.usersPayingMore}/${row.usersPayingLess}/${row.usersPayingSame}`,
    ],
  ]),
  ...unpricedLine(whatIf),
  ...runOutLines(whatIf),
]

/** Formats an amount today and with the drafts. */
const moved =
  (name: 'revenueUsdExact' | 'marginUsdExact' | 'includedUnusedUsdExact') =>
  ({ today, whatIf }: WhatIfRow): string =>
    `${toMicro(today?.[name])} -> ${toMicro(whatIf?.[name])}`

const unpricedLine = ({ total }: WhatIf): string[] =>
  total && total.unpricedTickets !== '0'
    ? ['', `${total.unpricedTickets} tickets wait for a price; no amount includes them`]
    : []

function runOutLines({ runOuts, moreRunOuts }: WhatIf): string[] {
  if (runOuts.length === 0) return []
  const more = moreRunOuts > 0 ? [`and ${moreRunOuts} more users`] : []
  const rows = table(runOuts, [
    ['user', 'externalUserId'],
    'plan',
    ['would run out', 'at'],
    ['ran out', ({ todayAt }) => todayAt ?? '-'],
  ])
  return ['', ...rows, ...more]
}
