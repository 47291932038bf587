import { type Command, parse, withCore } from '../command.ts'
import { usd } from '../money.ts'
import { printJson, printLines, table } from '../output.ts'

export const status: Command = {
  summary: 'shows the counts of events and tickets, and the rate in use',
  help: {
    usages: [
      {
        syntax: 'tollgate status [--json]',
        text:
          'Shows the position of each stream, and how many of its events became tickets, were duplicates, were ' +
          'ignored by type, or were quarantined. It also shows the number of tickets that wait for a rate, the rate ' +
          'at which a ticket would be priced now, and the owners whose unpaid network cost has reached its bound.',
      },
    ],
    examples: ['./tollgate status', './tollgate status --json --target core.example:50051'],
  },
  run: async (argv) => {
    const { values } = parse(argv, { json: { type: 'boolean' } })
    const { metering, reached } = await withCore(values, async (core) => ({
      metering: await core.meteringStatus(),
      reached: (await core.listReachedNetworkQuotas()).quotas,
    }))
    if (values.json) return (printJson({ ...metering, reachedNetworkQuotas: reached }), 0)
    const columns = [
      'stream',
      'partition',
      'next',
      'tickets',
      'duplicates',
      'ignored',
      'quarantined',
    ]
    const rows = metering.streams.map((stream) => [
      stream.source,
      String(stream.partition),
      stream.nextOffset,
      stream.tickets,
      stream.duplicates,
      stream.ignored,
      stream.quarantined,
    ])
    printLines([
      ...table(columns, rows, 'No events yet.'),
      '',
      `Tickets that wait for a rate: ${metering.unpricedTickets}`,
      ...oldestLines(metering.oldestUnpricedAt),
      `Events in quarantine: ${metering.quarantinedEvents}`,
      metering.usableRate
        ? `Rate: 1 ETH = ${metering.usableRate.usdPerEth} USD, ${metering.usableRate.source}, ${metering.usableRate.observedAt}`
        : 'Rate: NONE usable now: calls are refused and tickets wait. Set one: ./tollgate rate set USD_PER_ETH',
      ...reached.map(
        ({ email, clientId, unpaidUsdMicros, maxUsdMicros }) =>
          `Calls are refused for ${email || clientId}: ${usd({ micros: unpaidUsdMicros })} of ${usd({ micros: maxUsdMicros })} of network cost are not paid (tollgate quota)`,
      ),
    ])
    return 0
  },
}

/** The command that prices the oldest waiting ticket, with the required instant. */
const oldestLines = (oldest: string | undefined): string[] =>
  oldest === undefined
    ? []
    : [
        `  the oldest was signed ${oldest}; to price it and later ones, record the price of that time:`,
        `  ./tollgate rate set USD_PER_ETH --at ${oldest}`,
      ]
