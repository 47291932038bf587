import type {
  ProcessorDifference,
  ReconcileProcessorRequest,
  ReconcileProcessorResponse,
} from '../../../proto/gen/ts-proto/tollgate/billing/v1/reconciliation.ts'
import type { ReconcileResponse } from '../../../proto/gen/ts-proto/tollgate/metering/v1/reconciliation.ts'
import type { CoreReader } from '../client.ts'
import { action, createCommand } from '../command.ts'
import { dollars } from '../money.ts'
import { UsageError, appFilter, text, toggle } from '../options.ts'
import { table } from '../output.ts'

const daysBack = 7

export const reconcile = createCommand('reconcile', {
  summary:
    "compares our sums with the metering backend's, and payments with the payment processor's",
  examples: [
    './tollgate reconcile --from 2026-01-01 --to 2026-01-31',
    './tollgate reconcile --processor',
    './tollgate reconcile --processor --recent',
    './tollgate reconcile --processor --open',
  ],
  action: action({
    text:
      'Compares, for each app, user and UTC day, the priced tickets and their cost with the sums of OpenMeter. ' +
      'Days are YYYY-MM-DD, both included, at most 92; by default the last seven days and today. Tickets of the ' +
      'last 15 minutes do not count. The command shows the users whose sums differ and, with --all, the others. ' +
      'OpenMeter sums floats: sums agree if they differ by at most one micro-dollar and a billionth of the sum, ' +
      'and the numbers of tickets are equal. Exits with 1 when any day of a user differs by more. Events that ' +
      'are still in the outbox are missing at OpenMeter and arrive later.\n\n' +
      'With --processor, compares payments, refunds, disputes and fees with those of the payment processor instead, ' +
      'account by account: from where the last comparison ended to an hour ago, or the days of --from and --to again; ' +
      'with --recent to this moment, though events of the last hour may still be on their way. ' +
      'Core does the same once a day. Exits with 1 when a difference is open or an account could not be read. ' +
      'With --open, only lists the open differences; `tollgate processor resolve` closes one.',
    options: {
      clientId: appFilter,
      from: text('DAY'),
      to: text('DAY'),
      all: toggle(),
      processor: toggle(),
      recent: toggle(),
      open: toggle(),
    },
    read: async (core, { clientId, all, processor, open, recent, ...range }) => {
      if (processor || open || recent) {
        requireMoneyOptions({ clientId, all, open, recent, ...range })
        return { money: await readMoney(core, open ? null : { ...range, recent }) }
      }
      const to = range.to ?? dayOf(Date.now())
      const lastMs = range.to === undefined ? Date.now() : Date.parse(range.to)
      const from = range.from ?? dayOf(lastMs - daysBack * 86_400_000)
      const days: ReconcileResponse[] = []
      for await (const day of core.reconciliation.reconcile({ clientId, from, to, all }))
        days.push(day)
      return { from, to, days }
    },
    lines: (result) => ('money' in result ? moneyLines(result.money) : linesOf(result.days)),
    isFailure: (result) =>
      'money' in result
        ? result.money.open.length > 0 || result.money.accounts.some(({ failure }) => failure)
        : result.days.some(({ drifting }) => drifting > 0),
  }),
})

interface MoneyOptions {
  readonly clientId: string | undefined
  readonly all: boolean
  readonly open: boolean
  readonly recent: boolean
  readonly from: string | undefined
  readonly to: string | undefined
}

/** Throws for options that a comparison with the payment processor does not have. */
function requireMoneyOptions({ clientId, all, open, recent, from, to }: MoneyOptions): void {
  if (all || clientId !== undefined)
    throw new UsageError('--processor compares all accounts: leave out --all and --app')
  if (open && (recent || from !== undefined || to !== undefined))
    throw new UsageError(
      '--open lists the open differences of all days: leave out --from, --to and --recent',
    )
}

interface Money {
  readonly accounts: readonly ReconcileProcessorResponse[]
  readonly open: readonly ProcessorDifference[]
}

/** Compares payments, unless `range` is null, and lists the open differences. */
async function readMoney(
  core: CoreReader,
  range: ReconcileProcessorRequest | null,
): Promise<Money> {
  const accounts: ReconcileProcessorResponse[] = []
  if (range !== null)
    for await (const account of core.processorReconciliation.reconcileProcessor(range))
      accounts.push(account)
  const { differences } = await core.processorReconciliation.listProcessorDifferences({
    open: true,
    limit: 0,
    cursor: undefined,
  })
  return { accounts, open: differences }
}

function moneyLines({ accounts, open }: Money): string[] {
  const rows = accounts.flatMap(({ plane, account, clientId, through, sums, failure }) => {
    const place = { plane, account: account ?? '(platform)', clientId: clientId ?? '', through }
    const known = sums.map((sum) => ({ ...place, ...sum, result: '' }))
    if (failure !== undefined)
      return [{ ...place, kind: '', count: 0, amount: '', currency: '', result: failure }]
    return known.length > 0
      ? known
      : [{ ...place, kind: '', count: 0, amount: '', currency: '', result: 'nothing new' }]
  })
  return [
    ...(accounts.length === 0
      ? []
      : [
          ...table(rows, [
            'plane',
            'account',
            ['app', 'clientId'],
            ['through', ({ through }) => through.slice(0, 16)],
            'kind',
            ['lines', ({ count }) => (count === 0 ? '' : String(count))],
            ['sum', ({ amount, currency }) => units(amount, currency)],
            'result',
          ]),
          '',
        ]),
    ...(open.length === 0
      ? ['No open differences.']
      : table(open, [
          ['found', ({ foundAt }) => foundAt.slice(0, 16)],
          'plane',
          ['account', ({ account }) => account ?? '(platform)'],
          'subject',
          'problem',
          ['ours', ({ ours, currency }) => units(ours, currency)],
          ['theirs', ({ theirs, currency }) => units(theirs, currency)],
          ['payment', 'processorPaymentId'],
          'id',
        ])),
  ]
}

/** The smallest units of a currency; dollars with two decimals. */
function units(amount: string | undefined, currency: string): string {
  if (amount === undefined || amount === '') return ''
  if (currency !== 'usd') return `${amount} ${currency}`
  const [sign, digits] = amount.startsWith('-') ? ['-', amount.slice(1)] : ['', amount]
  const padded = digits.padStart(3, '0')
  return `${sign}${padded.slice(0, -2)}.${padded.slice(-2)}`
}

const dayOf = (milliseconds: number): string =>
  Number.isNaN(milliseconds) ? '' : new Date(milliseconds).toISOString().slice(0, 10)

function linesOf(days: readonly ReconcileResponse[]): string[] {
  if (days.length === 0) return ['No usage in these days.']
  const rows = days.flatMap((day) => [
    { ...day, user: '(all)', result: day.drifting > 0 ? `${day.drifting} differ` : 'same' },
    ...day.users.map((user) => ({
      ...user,
      day: '',
      clientId: '',
      user: user.externalUserId ?? user.subject,
      result: user.drifts ? 'differs' : '',
    })),
  ])
  const waiting = days.at(-1)?.waitingEvents ?? '0'
  const drifting = days.reduce((sum, day) => sum + day.drifting, 0)
  return [
    ...table(rows, [
      'day',
      ['app', 'clientId'],
      'user',
      ['tickets', 'ownTickets'],
      ['there', 'backendTickets'],
      ['USD', ({ ownUsdMicros: micros }) => dollars({ micros })],
      ['there', ({ backendUsdMicros: micros }) => dollars({ micros })],
      'result',
    ]),
    '',
    drifting === 0 ? 'Every user and day agrees.' : `Users' days that differ: ${drifting}`,
    ...(waiting === '0' ? [] : [`Events waiting in the outbox: ${waiting}`]),
  ]
}
