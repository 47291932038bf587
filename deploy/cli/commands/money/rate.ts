import { type Command, UsageError, changeCore, parse } from '../../command.ts'
import { printJson, printLines } from '../../output.ts'

export const rate: Command = {
  summary: 'records an ETH price by hand',
  help: {
    usages: [
      {
        syntax: 'tollgate rate set USD_PER_ETH [--at INSTANT] [--source TEXT] [--json]',
        text:
          'Records the price of one ETH in USD (up to 18 decimals) now, or at INSTANT (ISO 8601, at most 400 days ' +
          'ago). It prices tickets that are signed after that instant, for RATE_MANUAL_MAX_AGE_SECONDS or until a ' +
          'newer observation arrives. Tickets that wait for a rate are priced at once. Tickets that have a price ' +
          'keep it.',
      },
    ],
    examples: [
      './tollgate rate set 3012.50 --source "desk quote"',
      './tollgate rate set 2998.10 --at 2026-01-31T12:00:00Z --source "closing price"',
    ],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      source: { type: 'string' },
      at: { type: 'string' },
      json: { type: 'boolean' },
    })
    const [verb, usdPerEth, ...rest] = positionals
    if (verb !== 'set' || usdPerEth === undefined || rest.length > 0)
      throw new UsageError('rate takes "set" and a price in USD')
    const { recorded, oldest } = await changeCore(values, async (core) => {
      const { rate: recorded } = await core.recordRate({
        usdPerEth,
        source: values.source ?? 'operator',
        observedAt: values.at,
      })
      const { oldestUnpricedAt: oldest } = await core.meteringStatus()
      return { recorded, oldest }
    })
    if (values.json) printJson(recorded)
    else
      printLines([
        `1 ETH = ${recorded?.usdPerEth} USD from ${recorded?.observedAt} on (${recorded?.source})`,
        ...earlierLines(usdPerEth, recorded?.observedAt, oldest),
      ])
    return 0
  },
}

/** Suggests the same price for tickets signed before it. */
const earlierLines = (usdPerEth: string, from: string | undefined, oldest: string | undefined) =>
  from === undefined || oldest === undefined || oldest >= from
    ? []
    : [
        `Tickets that were signed earlier still wait; the oldest was signed at ${oldest}. If this was the price then, too:`,
        `  ./tollgate rate set ${usdPerEth} --at ${oldest}`,
      ]
