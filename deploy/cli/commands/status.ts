import { type Command, parse, withCore } from '../command.ts'
import { printJson, printLines, table } from '../output.ts'

export const status: Command = {
  summary: 'shows what became of the events, and the rate in use',
  help: {
    usages: [
      {
        syntax: 'tollgate status [--json]',
        text:
          'Shows for each stream how far it was read, and how many of its events became tickets, were duplicates, ' +
          'were ignored by type, or were quarantined. It also shows how many tickets wait for a rate, and the rate ' +
          'at which a ticket would be priced now.',
      },
    ],
    examples: ['npx tollgate status', 'npx tollgate status --json --target core.example:50051'],
  },
  run: async (argv) => {
    const { values } = parse(argv, { json: { type: 'boolean' } })
    const metering = await withCore(values, (core) => core.meteringStatus())
    if (values.json) return (printJson(metering), 0)
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
        : 'Rate: NONE is usable: calls are refused and tickets wait. Set one: npx tollgate rate set USD_PER_ETH',
    ])
    return 0
  },
}

/** The command that prices the oldest waiting ticket, with the instant that it needs. */
const oldestLines = (oldest: string | undefined): string[] =>
  oldest === undefined
    ? []
    : [
        `  the oldest was signed ${oldest}; price it, and those after it, at the price of then:`,
        `  npx tollgate rate set USD_PER_ETH --at ${oldest}`,
      ]
