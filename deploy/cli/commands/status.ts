import { type Command, parse, printJson, printLines, withCore } from '../command.ts'
import { table } from '../table.ts'

export const status: Command = {
  summary: 'shows what became of the events, and the rate in use',
  help: `tollgate status [--json]
  For each stream: how far it was taken, and how many of its events became tickets, were duplicates, ignored by type,
  or quarantined. How many tickets wait for a rate, and which rate would price a ticket now.
`,
  run: async (argv) => {
    const { values } = parse(argv, { json: { type: 'boolean' } })
    const found = await withCore((core) => core.meteringStatus())
    if (values.json) return (printJson(found), 0)
    const columns = [
      'stream',
      'partition',
      'next',
      'tickets',
      'duplicates',
      'ignored',
      'quarantined',
    ]
    const rows = found.streams.map((stream) => [
      stream.source,
      String(stream.partition),
      stream.nextOffset,
      stream.tickets,
      stream.duplicates,
      stream.ignored,
      stream.quarantined,
    ])
    printLines([
      ...(rows.length === 0 ? ['No events yet.'] : table([columns, ...rows])),
      '',
      `Tickets that wait for a rate: ${found.unpricedTickets}`,
      `Events in quarantine: ${found.quarantinedEvents}`,
      found.usableRate
        ? `Rate: 1 ETH = ${found.usableRate.usdPerEth} USD, ${found.usableRate.source}, ${found.usableRate.observedAt}`
        : 'Rate: none is usable; tickets wait. Set one with: npx tollgate rate set USD_PER_ETH',
    ])
    return 0
  },
}
