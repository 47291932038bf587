import { action, createCommand } from '../../command.ts'
import { argument, text } from '../../options.ts'

export const rate = createCommand('rate', {
  summary: 'records an ETH price by hand',
  examples: [
    './tollgate rate set 3012.50 --source "desk quote"',
    './tollgate rate set 2998.10 --at 2026-01-31T12:00:00Z --source "closing price"',
  ],
  actions: {
    set: action({
      text:
        'Records the price of one ETH in USD (up to 18 decimals) now, or at INSTANT (ISO 8601, at most 400 days ' +
        'ago). It prices tickets that are signed after that instant, for RATE_MANUAL_MAX_AGE_SECONDS or until a ' +
        'newer observation arrives. Tickets that wait for a rate are priced at once. Tickets that have a price ' +
        'keep it.',
      options: {
        usdPerEth: argument('USD_PER_ETH'),
        observedAt: text('INSTANT', { flag: 'at' }),
        source: text('TEXT', { fallback: 'operator' }),
      },
      change: async (core, request) => {
        const { rate: recorded } = await core.metering.recordRate(request)
        const { oldestUnpricedAt: oldest } = await core.metering.getMeteringStatus({})
        return { recorded, oldest }
      },
      json: ({ recorded }) => recorded,
      lines: ({ recorded, oldest }, { usdPerEth }) => [
        `1 ETH = ${recorded?.usdPerEth} USD from ${recorded?.observedAt} on (${recorded?.source})`,
        ...earlierLines(usdPerEth, recorded?.observedAt, oldest),
      ],
    }),
  },
})

/** Suggests the same price for tickets signed before it. */
const earlierLines = (usdPerEth: string, from: string | undefined, oldest: string | undefined) =>
  from === undefined || oldest === undefined || oldest >= from
    ? []
    : [
        `Tickets that were signed earlier still wait; the oldest was signed at ${oldest}. If this was the price then, too:`,
        `  ./tollgate rate set ${usdPerEth} --at ${oldest}`,
      ]
