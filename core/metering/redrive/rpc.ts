import type * as pb from '../../../proto/gen/ts-proto/tollgate/metering/v1/quarantine.ts'
import { operator, operatorWrite, orOperator, platformAdmin } from '../../rpc/guards.ts'
import type { Log } from '../../lib/log.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { parseAuthor } from './author.ts'
import { redriveReason } from './by-reason.ts'
import type { Quarantine } from './quarantine.ts'
import type { QuarantineEntry } from '../quarantine/store.ts'

const reading = orOperator(platformAdmin(), operator())
const deciding = orOperator(platformAdmin(), operatorWrite())

export function createQuarantineRpc({ quarantine, log }: { quarantine: Quarantine; log: Log }) {
  const quarantineService: Handlers<pb.QuarantineServiceServer> = {
    listQuarantined: rpc(reading, async (request: pb.ListQuarantinedRequest) => {
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
    getQuarantined: rpc(reading, async ({ id }: pb.GetQuarantinedRequest) => {
      const event = await quarantine.get(id)
      return { event: toEvent(event), bytes: event.bytes }
    }),
    attributeQuarantined: rpc(
      deciding,
      async ({ author, ...request }: pb.AttributeQuarantinedRequest, caller) => ({
        event: toEvent(await quarantine.attribute(request, parseAuthor(caller, author))),
      }),
    ),
    redriveQuarantined: rpc(
      deciding,
      async ({ author, ...request }: pb.RedriveQuarantinedRequest, caller) => ({
        event: toEvent(await quarantine.redrive(request, parseAuthor(caller, author))),
      }),
    ),
    redriveReason: rpc(
      deciding,
      async ({ author, ...request }: pb.RedriveReasonRequest, caller, { signal }) => {
        const by = parseAuthor(caller, author)
        const done = await redriveReason(quarantine, { ...request, author: by, signal, log })
        return { ...done, left: [...done.left] }
      },
    ),
    discardQuarantined: rpc(
      deciding,
      async ({ author, ...request }: pb.DiscardQuarantinedRequest, caller) => ({
        event: toEvent(await quarantine.discard(request, parseAuthor(caller, author))),
      }),
    ),
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
