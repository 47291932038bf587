import { DomainError } from '../../proto/errors.ts'
import type * as pb from '../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { operator, orOperator, platformAdmin, serviceCaller, operatorWrite } from '../rpc/guards.ts'
import { formatDecimal18 } from '../lib/money.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'
import type { Metering } from './service.ts'
import type { StreamStatus } from './streams/store.ts'
import type { Rate } from './rates/store.ts'

const maxEnvelopes = 1_000
// Sidecars send up to 2 MiB at once, or a single envelope, which may also be that large.
const messageMaxBytes = 4 * 1024 * 1024

export function createMeteringRpc({ metering }: { metering: Metering }) {
  const meteringService: Handlers<pb.MeteringServiceServer> = {
    ingestEvents: rpc(
      serviceCaller('sidecar', 'collector'),
      async ({ envelopes }: pb.IngestEventsRequest) => {
        if (envelopes.length > maxEnvelopes) {
          throw new DomainError('REQUEST_INVALID', `send at most ${maxEnvelopes} envelopes at once`)
        }
        const counts = await metering.ingestEvents(envelopes)
        return {
          tickets: counts.ticket,
          duplicates: counts.duplicate,
          ignored: counts.ignored,
          quarantined: counts.quarantined,
        }
      },
      { messageMaxBytes },
    ),

    recordRate: rpc(operatorWrite(), async (request: pb.RecordRateRequest) => ({
      rate: toRate(await metering.recordRate(request)),
    })),

    getMeteringStatus: rpc(
      orOperator(platformAdmin(), operator()),
      async (_request: pb.GetMeteringStatusRequest) => {
        const { streams, unpriced, oldestUnpriced, quarantined, usableRate, newestTicket } =
          await metering.status()
        return {
          streams: streams.map(toStream),
          unpricedTickets: String(unpriced),
          quarantinedEvents: String(quarantined),
          usableRate: usableRate ? toRate(usableRate) : undefined,
          oldestUnpricedAt: oldestUnpriced?.toISOString(),
          newestTicket: newestTicket
            ? {
                signedAt: newestTicket.signedAt.toISOString(),
                receivedAt: newestTicket.receivedAt.toISOString(),
              }
            : undefined,
        }
      },
    ),
  }
  return { meteringService }
}

const toStream = ({ newestAt, bookedAt, end, lag, ...stream }: StreamStatus): pb.Stream => ({
  source: stream.source,
  partition: stream.partition,
  nextOffset: String(stream.nextOffset),
  tickets: String(stream.tickets),
  duplicates: String(stream.duplicates),
  ignored: String(stream.ignored),
  quarantined: String(stream.quarantined),
  newestAt: newestAt?.toISOString(),
  bookedAt: bookedAt?.toISOString(),
  eventsBehind: lag === null ? undefined : String(lag.events),
  secondsBehind: lag?.seconds ?? undefined,
  endReadAt: end?.readAt.toISOString(),
  stalled: lag?.isStalled ?? false,
})

const toRate = (rate: Rate): pb.Rate => ({
  usdPerEth: formatDecimal18(rate.usdAttosPerEth),
  source: rate.source,
  observedAt: rate.observedAt.toISOString(),
})
