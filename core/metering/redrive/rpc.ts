import type * as pb from '../../../proto/gen/ts-proto/tollgate/metering/v1/quarantine.ts'
import { operator, operatorWrite } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Quarantine } from './quarantine.ts'
import type { QuarantineEntry } from '../quarantine/store.ts'

export function createQuarantineRpc({ quarantine }: { quarantine: Quarantine }) {
  const quarantineService: Handlers<pb.QuarantineServiceServer> = {
    listQuarantined: rpc(operator(), async (request: pb.ListQuarantinedRequest) => {
      const { events, nextCursor, waiting } = await quarantine.list(request)
      return {
        events: events.map(toEvent),
        nextCursor,
        waiting: waiting.map(({ reason, events: count, fee }) => ({
          reason,
          events: String(count),
          feeWei: String(fee),
        })),
      }
    }),
    getQuarantined: rpc(operator(), async ({ id }: pb.GetQuarantinedRequest) => {
      const event = await quarantine.get(id)
      return { event: toEvent(event), bytes: event.bytes }
    }),
    attributeQuarantined: rpc(operatorWrite(), async (request: pb.AttributeQuarantinedRequest) => ({
      event: toEvent(await quarantine.attribute(request)),
    })),
    redriveQuarantined: rpc(operatorWrite(), async (request: pb.RedriveQuarantinedRequest) => ({
      event: toEvent(await quarantine.redrive(request)),
    })),
    discardQuarantined: rpc(operatorWrite(), async (request: pb.DiscardQuarantinedRequest) => ({
      event: toEvent(await quarantine.discard(request)),
    })),
  }
  return { quarantineService }
}

const toEvent = (event: QuarantineEntry): pb.QuarantinedEvent => ({
  id: event.id,
  status: event.status,
  reason: event.reason,
  detail: event.detail,
  eventId: event.eventId ?? undefined,
  authId: event.authId ?? undefined,
  feeWei: event.fee === null ? undefined : String(event.fee),
  receivedAt: event.receivedAt.toISOString(),
  source: event.source,
  partition: event.partition,
  offset: event.offset === null ? undefined : String(event.offset),
  deliveries: String(event.deliveries),
  byteCount: event.byteCount,
  resolvedAt: event.resolvedAt?.toISOString(),
  resolvedBy: event.resolvedBy ?? undefined,
  resolution: event.resolution ?? undefined,
  attributedTo: event.attributedTo ?? undefined,
  ticketEventId: event.ticketEventId ?? undefined,
})
