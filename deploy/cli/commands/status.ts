import { isUnknownCall } from '../../../core/lib/grpc.ts'
import type { SidecarStream } from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import type { Stream } from '../../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { action, createCommand } from '../command.ts'
import { usd } from '../money.ts'
import { table } from '../output.ts'

export const status = createCommand('status', {
  summary: 'shows the counts of events and tickets, and the rate in use',
  examples: ['./tollgate status', './tollgate status --json --target core.example:50051'],
  action: action({
    text:
      'Shows the position of each stream, and how many of its events became tickets, were duplicates, were ' +
      'ignored by type, or were quarantined; when it received its newest booked event, and how many events wait at ' +
      'the broker for how many seconds at most, or since when no collector has read the end of the stream. Of each ' +
      'sidecar it shows for how long calls are allowed whose events are not booked; the time of its last call may be ' +
      'up to 10 s too late. It also shows the number of tickets that wait for a rate, the rate ' +
      'at which a ticket would be priced now, and the owners whose accounts can pay for no more calls.',
    read: async (core) => ({
      ...(await core.metering.getMeteringStatus({})),
      reachedNetworkQuotas: (await core.networkQuotas.listReachedNetworkQuotas({})).quotas,
      sidecars: (await core.holds.listSidecars({}).catch(ignoreUnknownCall))?.sidecars,
    }),
    lines: ({ streams, sidecars, usableRate: rate, reachedNetworkQuotas, ...counts }) => [
      ...streamLines(streams),
      '',
      ...sidecarLines(sidecars),
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

/** A core of an older release lists no sidecars. */
function ignoreUnknownCall(error: unknown): undefined {
  if (!isUnknownCall(error)) throw error
}

const streamLines = (streams: readonly Stream[]): string[] =>
  table(
    streams.map((stream) => ({ ...stream, state: streamState(stream) })),
    [
      ['stream', 'source'],
      'partition',
      ['next', 'nextOffset'],
      'tickets',
      'duplicates',
      'ignored',
      'quarantined',
      ['newest', 'newestAt'],
      ['waiting', 'eventsBehind'],
      ['seconds', 'secondsBehind'],
      'state',
    ],
    'No events yet.',
  )

const streamState = ({ stalled, eventsBehind, endReadAt }: Stream): string => {
  if (eventsBehind === undefined && endReadAt !== undefined)
    return `end not read since ${endReadAt}`
  return stalled ? 'STALLED' : ''
}

const sidecarLines = (sidecars: readonly SidecarStream[] | undefined): string[] =>
  sidecars === undefined
    ? ['Sidecars: unknown, because core is of an older release']
    : table(
        sidecars.map((sidecar) => ({ ...sidecar, state: sidecarState(sidecar) })),
        [
          ['sidecar', 'id'],
          ['last call', 'lastAuthorisedAt'],
          ['booked through', 'bookedThrough'],
          ['seconds behind', 'secondsBehind'],
          'state',
        ],
        'No sidecars yet.',
      )

const sidecarState = ({ stalled, stopped }: SidecarStream): string =>
  stalled ? 'STALLED' : stopped ? 'stopped' : ''

/** The command that prices the oldest waiting ticket, with the required instant. */
const oldestLines = (oldest: string | undefined): string[] =>
  oldest === undefined
    ? []
    : [
        `  the oldest was signed ${oldest}; to price it and later ones, record the price of that time:`,
        `  ./tollgate rate set USD_PER_ETH --at ${oldest}`,
      ]
