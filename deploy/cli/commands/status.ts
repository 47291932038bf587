import { action, createCommand } from '../command.ts'
import { usd } from '../money.ts'
import { table } from '../output.ts'

export const status = createCommand('status', {
  summary: 'shows the counts of events and tickets, and the rate in use',
  examples: ['./tollgate status', './tollgate status --json --target core.example:50051'],
  action: action({
    text:
      'Shows the position of each stream, and how many of its events became tickets, were duplicates, were ' +
      'ignored by type, or were quarantined. It also shows the number of tickets that wait for a rate, the rate ' +
      'at which a ticket would be priced now, and the owners whose accounts can pay for no more calls.',
    read: async (core) => ({
      ...(await core.metering.getMeteringStatus({})),
      reachedNetworkQuotas: (await core.networkQuotas.listReachedNetworkQuotas({})).quotas,
    }),
    lines: ({ streams, usableRate: rate, reachedNetworkQuotas, ...counts }) => [
      ...table(
        streams,
        [
          ['stream', 'source'],
          'partition',
          ['next', 'nextOffset'],
          'tickets',
          'duplicates',
          'ignored',
          'quarantined',
        ],
        'No events yet.',
      ),
      '',
      `Tickets that wait for a rate: ${counts.unpricedTickets}`,
      ...oldestLines(counts.oldestUnpricedAt),
      `Events in quarantine: ${counts.quarantinedEvents}`,
      rate
        ? `Rate: 1 ETH = ${rate.usdPerEth} USD, ${rate.source}, ${rate.observedAt}`
        : 'Rate: NONE usable now: calls are refused and tickets wait. Set one: ./tollgate rate set USD_PER_ETH',
      ...reachedNetworkQuotas.map(
        ({ email, unpaidUsdMicros, maxUsdMicros }) =>
          `Calls are refused for apps of ${email}: they hold ${usd({ micros: unpaidUsdMicros })} of the ${usd({ micros: maxUsdMicros })} that the owner's account can pay (tollgate account show)`,
      ),
    ],
  }),
})

/** The command that prices the oldest waiting ticket, with the required instant. */
const oldestLines = (oldest: string | undefined): string[] =>
  oldest === undefined
    ? []
    : [
        `  the oldest was signed ${oldest}; to price it and later ones, record the price of that time:`,
        `  ./tollgate rate set USD_PER_ETH --at ${oldest}`,
      ]
