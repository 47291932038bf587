import { uuidV7 } from '../lib/crypto.ts'
import { isObject, parseJson } from '../lib/json.ts'
import { type Db, type Pool, tx } from '../lib/sql.ts'
import { type QueuedEvent, eventKind } from '../shared/events.ts'
import type { Delivery, Destination, Entry } from '../shared/outbox/types.ts'
import type { Now } from '../lib/time.ts'
import { type NewDelivery, findUserNames, insertDeliveries } from './delivery-store.ts'
import { type Endpoint, lockActiveEndpoints, makeDue } from './endpoint-store.ts'
import { failuresMax } from './schedule.ts'

export interface FanOutDeps {
  readonly pool: Pool
  readonly now: Now
  /** Called after deliveries were written. */
  readonly onDeliveries: () => void
}

const entriesAtOnce = 200
const retryMs = 1_000

/**
 * Turns each event of the outbox into one delivery per endpoint that receives its type, in one
 * transaction for a batch of events. A repetition writes nothing, so a process may die at any point.
 */
export function createFanOut({ pool, now, onDeliveries }: FanOutDeps): Destination {
  async function deliver(entries: readonly Entry[], signal: AbortSignal): Promise<Delivery[]> {
    const events = entries.map(readEvent)
    try {
      await write(events.filter((event) => event !== null))
      return events.map((event) => (event ? { kind: 'delivered' } : unreadable))
    } catch (error) {
      const why = error instanceof Error ? error.message : 'failed'
      const [entry, ...others] = entries
      if (!entry || signal.aborted) return entries.map(() => ({ kind: 'later', why }))
      if (others.length === 0) return [{ kind: 'failed', why }]
      // One of them may be at fault, so write each by itself.
      const deliveries: Delivery[] = []
      for (const each of entries) deliveries.push(...(await deliver([each], signal)))
      const isNoneWritten = deliveries.every(({ kind }) => kind === 'failed')
      return isNoneWritten
        ? entries.map(() => ({ kind: 'later', why, retryAfterMs: retryMs }))
        : deliveries
    }
  }

  async function write(events: readonly QueuedEvent[]): Promise<void> {
    if (events.length === 0) return
    const written = await tx(pool, (db) => insert(db, events))
    if (written > 0) onDeliveries()
  }

  async function insert(db: Db, events: readonly QueuedEvent[]): Promise<number> {
    const apps = [...new Set(events.map(({ appId }) => appId))]
    const endpoints = Map.groupBy(await lockActiveEndpoints(db, apps), ({ appId }) => appId)
    if (endpoints.size === 0) return 0
    const users = events.flatMap(({ appId, userId }) => (userId ? [{ appId, userId }] : []))
    const names = await findUserNames(db, users)
    const at = now()
    const rows: NewDelivery[] = []
    const receivers = new Set<Endpoint>()
    for (const event of events) {
      const body = renderBody(event, names)
      for (const endpoint of endpoints.get(event.appId) ?? []) {
        if (!receives(endpoint, event.type)) continue
        receivers.add(endpoint)
        rows.push(createDelivery(event, { endpoint, body, at }))
      }
    }
    await insertDeliveries(db, rows)
    await makeDue(db, [...receivers], { at, failuresMax })
    return rows.length
  }

  return {
    kind: eventKind,
    itemsAtOnce: entriesAtOnce,
    bytesAtOnce: 1024 * 1024,
    ready: () => true,
    deliver,
  }
}

const unreadable: Delivery = { kind: 'refused', why: 'the row cannot be read' }

const receives = ({ eventTypes }: Endpoint, type: string): boolean =>
  eventTypes.length === 0 || eventTypes.includes(type)

/** Builds the delivery of an event to an endpoint. */
export const createDelivery = (
  event: Pick<QueuedEvent, 'id' | 'type'>,
  { endpoint, body, at }: { endpoint: Pick<Endpoint, 'appId' | 'id'>; body: string; at: Date },
): NewDelivery => ({
  appId: endpoint.appId,
  endpointId: endpoint.id,
  id: uuidV7(at.getTime()),
  eventId: event.id,
  eventType: event.type,
  body,
  at,
})

/** The body of each delivery of an event: `{ type, timestamp, data }`. */
export function renderBody(
  { type, timestamp, userId, data }: Pick<QueuedEvent, 'type' | 'timestamp' | 'userId' | 'data'>,
  names: ReadonlyMap<string, string>,
): string {
  const externalUserId = userId && names.get(userId)
  const user = externalUserId === undefined ? {} : { externalUserId }
  return JSON.stringify({ type, timestamp, data: { ...user, ...data } })
}

function readEvent({ payload }: Entry): QueuedEvent | null {
  const value = parseJson(payload.toString('utf8'))
  return isEvent(value) ? value : null
}

const isEvent = (value: unknown): value is QueuedEvent =>
  isObject(value) &&
  ['id', 'appId', 'type', 'timestamp'].every((name) => typeof value[name] === 'string') &&
  isObject(value['data'])
