import type { Overage } from '../../../../proto/gen/ts-proto/tollgate/billing/v1/overage.ts'
import { action, createCommand } from '../../command.ts'
import { usd } from '../../money.ts'
import { type Option, UsageError, app, argument } from '../../options.ts'
import { properties } from '../../output.ts'

/** USD micros; undefined, for the word default, restores the default. */
const ceiling: Option<string | undefined> = {
  ...argument('(USD_MICROS | default)'),
  convert: ([word = '']) => {
    if (word === 'default') return undefined
    if (/^[1-9][0-9]{0,12}$/.test(word)) return word
    throw new UsageError('overage set needs a whole number of USD micros, or default')
  },
}

const linesOf = (overage: Overage | undefined): string[] =>
  overage === undefined
    ? []
    : properties([
        ['app', overage.clientId],
        [
          'ceiling',
          `${usd({ micros: overage.ceilingUsdMicros })}${overage.isDefault ? ' (the default)' : ''}`,
        ],
        ['lowest ceiling', usd({ micros: overage.minimumCeilingUsdMicros })],
        ['smallest charge', usd({ micros: overage.minimumChargeUsdMicros })],
      ])

export const overage = createCommand('overage', {
  summary: "shows and sets the ceiling of users' unpaid usage",
  examples: [
    './tollgate overage show --app app_0123456789abcdef01234567',
    './tollgate overage set 5000000 --app app_0123456789abcdef01234567',
  ],
  actions: {
    show: action({
      text: 'Prints the unpaid usage that a user of a paid plan with a chargeable card may run up.',
      options: { clientId: app },
      read: async (core, request) => (await core.overage.getOverage(request)).overage,
      lines: linesOf,
    }),
    set: action({
      text: 'Sets the ceiling, which applies at once. It must not be below the lowest ceiling: 2 USD, or the highest charge threshold of a plan plus the smallest charge.',
      options: { clientId: app, ceilingUsdMicros: ceiling },
      change: async (core, request) => (await core.overage.updateOverage(request)).overage,
      lines: linesOf,
    }),
  },
})
