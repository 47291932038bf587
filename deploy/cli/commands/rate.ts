import { type Command, UsageError, parse, printJson, printLines, withCore } from '../command.ts'

export const rate: Command = {
  summary: 'records an ETH price by hand',
  help: `tollgate rate set USD_PER_ETH [--at INSTANT] [--source TEXT] [--json]
  Records that one ETH costs that many USD now (up to 18 decimals), or cost them at INSTANT (ISO 8601, at most 400 days
  back). Tickets signed from then on, for RATE_MAX_AGE_SECONDS, may be priced with it, until a newer observation comes.
  Those that wait for a rate are priced at once. Nothing that was priced changes.

  npx tollgate rate set 3012.50 --source "desk quote"
  npx tollgate rate set 2998.10 --at 2026-01-31T12:00:00Z --source "closing price, for tickets that wait"
`,
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      source: { type: 'string' },
      at: { type: 'string' },
      json: { type: 'boolean' },
    })
    const [verb, usdPerEth, ...rest] = positionals
    if (verb !== 'set' || usdPerEth === undefined || rest.length > 0)
      throw new UsageError('rate takes "set" and a price in USD')
    const { rate: recorded } = await withCore((core) =>
      core.recordRate({
        usdPerEth,
        source: values.source ?? 'operator',
        observedAt: values.at,
      }),
    )
    if (values.json) printJson(recorded)
    else
      printLines([
        `1 ETH = ${recorded?.usdPerEth} USD from ${recorded?.observedAt} on (${recorded?.source})`,
      ])
    return 0
  },
}
