import type { AdvancedClock } from '../../../../proto/gen/ts-proto/tollgate/billing/v1/clock.ts'
import { action, createCommand } from '../../command.ts'
import { usd } from '../../money.ts'
import { app, integer, text } from '../../options.ts'
import { properties, table } from '../../output.ts'

const show = action({
  text: "Prints the time of a test app's clock, and the real time.",
  options: { clientId: app },
  read: async (core, request) => (await core.testClocks.getTestClock(request)).clock,
  lines: (clock) =>
    properties([
      ['app', clock?.clientId],
      ['clock', clock?.now],
      ['real time', clock?.realNow],
      ['at most', clock?.latest],
    ]),
})

const advance = action({
  text:
    'Moves the clock ahead, and prints what became due: renewed periods, ended credits, changed subscriptions. ' +
    'At most 366 days at once, and two years in all.',
  options: {
    clientId: app,
    to: text('INSTANT'),
    advanceSeconds: integer('N', { flag: 'seconds', from: 1 }),
  },
  oneOf: [['to', 'advanceSeconds']],
  change: async (core, { clientId, ...move }) =>
    (await core.testClocks.advanceTestClock({ clientId, move })).advanced,
  lines: (advanced) => (advanced ? linesOf(advanced) : []),
})

const list = action({
  text: 'Lists the test apps whose clocks are ahead of real time, the furthest first.',
  options: {},
  read: async (core) => (await core.testClocks.listTestClocks({})).clocks,
  lines: (clocks) =>
    table(
      clocks,
      [['app', 'clientId'], 'name', ['clock', 'now'], ['moved', 'movedAt'], 'moves'],
      'No clock was moved.',
    ),
})

function linesOf({ clock, from, to, effects, pending }: AdvancedClock): string[] {
  const rows: [string, number | string][] = effects
    ? [
        ['periods renewed', effects.periodsRenewed],
        [
          'credits expired',
          `${effects.creditsExpired} with ${usd({ exact: effects.expiredUsdExact })} left`,
        ],
        ['subscriptions switched', effects.subscriptionsSwitched],
        ['plan adjustments', effects.planAdjustments],
        ['users over their threshold', effects.overThreshold],
        ['invoices issued', effects.invoicesIssued],
        ['payments', `${effects.paymentsSucceeded}, and ${effects.paymentsFailed} failed`],
      ]
    : []
  return [
    `${clock?.clientId ?? ''}: ${from} -> ${to}`,
    ...rows.map(([name, value]) => `  ${name.padEnd(28)}${value}`),
    ...(pending ? ['Not all due work is done; core finishes it.'] : []),
  ]
}

export const testClock = createCommand('test-clock', {
  summary: 'shows and moves the clock of a test app',
  examples: [
    './tollgate test-clock list',
    './tollgate test-clock show --app app_0123456789abcdef01234567',
    './tollgate test-clock advance --app app_0123456789abcdef01234567 --to 2027-03-01T00:00:00Z',
  ],
  actions: { list, show, advance },
})
