import type {
  AdvancedClock,
  TestClock,
} from '../../../../proto/gen/ts-proto/tollgate/billing/v1/clock.ts'
import {
  type Command,
  UsageError,
  changeCore,
  need,
  parseOptions,
  runAction,
  withCore,
} from '../../command.ts'
import { usd } from '../../money.ts'
import { printJson, printLines, properties } from '../../output.ts'

export const testClock: Command = {
  summary: 'shows and moves the clock of a test app',
  help: {
    usages: [
      {
        syntax: 'tollgate test-clock show [--app APP] [--json]',
        text: "Prints the time of a test app's clock, and the real time.",
      },
      {
        syntax: 'tollgate test-clock advance [--app APP] (--to INSTANT | --seconds N) [--json]',
        text:
          'Moves the clock ahead, and prints what became due: renewed periods, ended credits, changed subscriptions. ' +
          'At most 366 days at once, and two years in all.',
      },
    ],
    examples: [
      './tollgate test-clock show --app app_0123456789abcdef01234567',
      './tollgate test-clock advance --app app_0123456789abcdef01234567 --to 2027-03-01T00:00:00Z',
    ],
  },
  run: runAction('test-clock', { show, advance }),
}

async function show(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, { app: { type: 'string' } })
  const { app: clientId } = await need('test-clock show', values, ['app'])
  const { clock } = await withCore(values, (core) => core.readTestClock({ clientId }))
  if (values.json) printJson(clock)
  else if (clock) printLines(linesOf(clock))
}

async function advance(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, {
    app: { type: 'string' },
    to: { type: 'string' },
    seconds: { type: 'string' },
  })
  const { app: clientId } = await need('test-clock advance', values, ['app'])
  const { to, seconds } = values
  if ((to === undefined) === (seconds === undefined))
    throw new UsageError('test-clock advance needs either --to or --seconds')
  const move = { to, advanceSeconds: seconds === undefined ? undefined : parseSeconds(seconds) }
  const { advanced } = await changeCore(values, (core) => core.moveTestClock({ clientId, move }))
  if (values.json) printJson(advanced)
  else if (advanced) printLines(linesOfMove(advanced))
}

function parseSeconds(text: string): number {
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text)
  throw new UsageError('--seconds takes a whole number from 1')
}

const linesOf = ({ clientId, now, realNow, latest }: TestClock): string[] =>
  properties([
    ['app', clientId],
    ['clock', now],
    ['real time', realNow],
    ['at most', latest],
  ])

function linesOfMove({ clock, from, to, effects, pending }: AdvancedClock): string[] {
  const rows: [string, number | string][] = effects
    ? [
        ['periods renewed', effects.periodsRenewed],
        [
          'credits expired',
          `${effects.creditsExpired} with ${usd({ exact: effects.expiredUsdExact })} left`,
        ],
        ['subscriptions switched', effects.subscriptionsSwitched],
        ['plan adjustments', effects.planAdjustments],
        ['users over their threshold', `${effects.overThreshold} (nothing is charged)`],
      ]
    : []
  return [
    `${clock?.clientId ?? ''}: ${from} -> ${to}`,
    ...rows.map(([name, value]) => `  ${name.padEnd(28)}${value}`),
    ...(pending ? ['Not all due work is done; core finishes it.'] : []),
  ]
}
