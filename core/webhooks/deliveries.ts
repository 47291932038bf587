import { DomainError } from '../../proto/errors.ts'
import { pingType } from '../../proto/events.ts'
import { type Db, tx } from '../lib/sql.ts'
import { newEventId } from '../shared/events.ts'
import { type Cursor, page } from '../shared/cursor.ts'
import { type AppId, isUuid } from '../shared/ids.ts'
import { type AuditEntry, auditSuccess } from '../shared/audit.ts'
import type { Shared } from '../shared/shared.ts'
import { deleteInBatches } from '../shared/upkeep.ts'
import * as deliveryStore from './delivery-store.ts'
import { disable } from './deliverer.ts'
import * as store from './endpoint-store.ts'
import { type EndpointEditor, noSuchEndpoint } from './endpoints.ts'
import { renderBody, createDelivery } from './fan-out.ts'
import type { WebhookMetrics } from './metrics.ts'
import { backlogMax, deliveryMs, failuresMax, keptMs } from './schedule.ts'

export type DeliveriesDeps = Pick<Shared, 'pool' | 'now' | 'log'> & {
  readonly meters: WebhookMetrics
  /** Called after a delivery may have become due. */
  readonly onDue: () => void
}

export type DeliveryQuery = deliveryStore.DeliveryFilter & {
  readonly after: Cursor | null
  readonly limit: number
}

const replayBatch = 1_000
const replayBatchesMax = 50
/** The deliverer makes a last attempt first. */
const overdueGraceMs = 3_600_000
const backlogsAtOnce = 100

/** The log of deliveries: lists them, repeats them, and ends them after their time. */
export function createDeliveries({ pool, now, log, meters, onDue }: DeliveriesDeps) {
  /** Throws NOT_FOUND when the app has no such endpoint. */
  async function list(app: AppId, id: string, query: DeliveryQuery) {
    const key = { appId: app, id }
    const endpoint = isUuid(id) ? await store.findEndpoint(pool, key) : null
    if (!endpoint) throw noSuchEndpoint()
    return page(await deliveryStore.listDeliveries(pool, endpoint, query), query.limit)
  }

  /** Queues a test event for one endpoint, whatever types it receives. Returns its delivery. */
  async function ping(editor: EndpointEditor, id: string): Promise<deliveryStore.Delivery> {
    const delivery = await tx(pool, async (db) => {
      const endpoint = await lockActive(db, editor.appId, id)
      const at = now()
      const event = { id: newEventId(at), type: pingType, timestamp: at.toISOString() }
      const body = renderBody({ ...event, data: { endpointId: id } }, new Map())
      const row = createDelivery(event, { endpoint, body, at })
      await deliveryStore.insertDeliveries(db, [row])
      await store.rush(db, endpoint, at)
      await note(db, editor, {
        action: 'webhook_endpoint_pinged',
        id,
        details: { eventId: event.id },
      })
      return deliveryStore.findDelivery(db, endpoint, row.id)
    })
    if (!delivery) throw new Error('the delivery of a ping is missing')
    onDue()
    return delivery
  }

  /** Sends one delivery again, whatever its status. Throws NOT_FOUND for an unknown one. */
  async function replay(editor: EndpointEditor, id: string, deliveryId: string): Promise<number> {
    await tx(pool, async (db) => {
      const endpoint = await lockActive(db, editor.appId, id)
      const at = now()
      const again = { id: deliveryId, at }
      if (!isUuid(deliveryId) || !(await deliveryStore.restartDelivery(db, endpoint, again)))
        throw new DomainError('NOT_FOUND', 'the endpoint has no such delivery')
      await store.rush(db, endpoint, at)
      await note(db, editor, { action: 'webhook_deliveries_replayed', id, details: { deliveryId } })
    })
    onDue()
    return 1
  }

  /** Sends all failed deliveries of events since a time again, at most 50,000. */
  async function replayFailed(editor: EndpointEditor, id: string, since: Date): Promise<number> {
    let replayed = 0
    for (let batch = 0; batch < replayBatchesMax; batch++) {
      const count = await tx(pool, async (db) => {
        const endpoint = await lockActive(db, editor.appId, id)
        const at = now()
        const failed = { since, at, limit: replayBatch }
        const restarted = await deliveryStore.restartFailed(db, endpoint, failed)
        if (restarted > 0) await store.rush(db, endpoint, at)
        const details = { since: since.toISOString(), replayed: restarted }
        if (restarted > 0 || batch === 0)
          await note(db, editor, { action: 'webhook_deliveries_replayed', id, details })
        return restarted
      })
      replayed += count
      if (count < replayBatch) break
    }
    onDue()
    return replayed
  }

  async function note(
    db: Db,
    { appId, actor }: EndpointEditor,
    { action, id, details }: { action: string; id: string; details: AuditEntry['details'] },
  ): Promise<void> {
    await auditSuccess(db, {
      appId,
      actor,
      action,
      details: { endpointId: id, ...details },
      at: now(),
    })
  }

  const before = (ms: number): Date => new Date(now().getTime() - ms)

  /** Fails deliveries that are still waiting after three days, such as those of a disabled endpoint. */
  const failOverdue = (): Promise<void> =>
    deleteInBatches((limit) =>
      deliveryStore.failOverdue(pool, {
        startedBefore: before(deliveryMs + overdueGraceMs),
        limit,
      }),
    )

  const deleteOld = (): Promise<void> =>
    deleteInBatches((limit) => deliveryStore.deleteOldDeliveries(pool, before(keptMs), limit))

  /** Disables failing endpoints with too many waiting deliveries. */
  async function endBacklogs(): Promise<void> {
    const bounds = { failures: failuresMax, waiting: backlogMax, limit: backlogsAtOnce }
    for (const endpoint of await store.findBacklogs(pool, bounds))
      await disable({ pool, log, now, meters }, endpoint, 'backlog')
  }

  return { list, ping, replay, replayFailed, failOverdue, deleteOld, endBacklogs }
}

export type Deliveries = ReturnType<typeof createDeliveries>

/** Throws NOT_FOUND for an unknown endpoint, CONFLICT for a disabled one. */
async function lockActive(db: Db, app: AppId, id: string): Promise<store.Endpoint> {
  const endpoint = isUuid(id) ? await store.lockEndpoint(db, { appId: app, id }) : null
  if (!endpoint) throw noSuchEndpoint()
  if (endpoint.status === 'active') return endpoint
  throw new DomainError('CONFLICT', 'the webhook endpoint is disabled; activate it first')
}
