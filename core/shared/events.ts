import type { EventType } from '../../proto/events.ts'
import { uuidV7 } from '../lib/crypto.ts'
import type { Db } from '../lib/sql.ts'
import { findTypeFilters } from './event-store.ts'
import type { AppId, UserId } from './ids.ts'
import { enqueue } from './outbox/store.ts'

/** Something that happened in an app, for the app's webhook endpoints (docs/webhooks.md). */
export interface AppEvent {
  readonly appId: AppId
  readonly type: EventType
  /** The user that it concerns. The delivered data names the user by `externalUserId`. */
  readonly userId?: UserId
  /** Must not hold a secret. */
  readonly data: Readonly<Record<string, string | number | boolean | null>>
  readonly at: Date
}

/** An event as stored in the outbox. */
export interface QueuedEvent extends Omit<AppEvent, 'at' | 'type'> {
  /** The same in every delivery. */
  readonly id: string
  readonly type: string
  /** ISO 8601. */
  readonly timestamp: string
}

export const eventKind = 'event'

export const newEventId = (at: Date): string => `evt_${uuidV7(at.getTime()).replaceAll('-', '')}`

/** Writes the event in the caller's transaction. See `emitAll`. */
export const emit = (db: Db, event: AppEvent): Promise<void> => emitAll(db, [event])

/**
 * Writes one outbox row per event in the caller's transaction, so that an event is delivered only
 * if its cause commits. Writes nothing for an event that no active endpoint of the app receives.
 */
export async function emitAll(db: Db, events: readonly AppEvent[]): Promise<void> {
  if (events.length === 0) return
  const apps = [...new Set(events.map(({ appId }) => appId))]
  const filters = await findTypeFilters(db, apps)
  const queued = events.filter(({ appId, type }) => filters.get(appId)?.(type))
  for (const [time, same] of Map.groupBy(queued, ({ at }) => at.getTime()))
    await enqueue(db, same.map(toEntry), new Date(time))
}

function toEntry({ at, ...event }: AppEvent) {
  const queued: QueuedEvent = { ...event, id: newEventId(at), timestamp: at.toISOString() }
  return { kind: eventKind, payload: Buffer.from(JSON.stringify(queued)), itemCount: 1 }
}

export type EmitAll = typeof emitAll
