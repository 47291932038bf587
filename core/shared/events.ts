import type { EventType } from '../../proto/events.ts'
import { uuidV7 } from '../lib/crypto.ts'
import type { Db } from '../lib/sql.ts'
import { findPlatformApp, findTypeFilters } from './event-store.ts'
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

/** An event for mails to owners (docs/mail.md), as stored in the outbox. */
export type QueuedNotice = QueuedEvent

export const noticeKind = 'notice'

/** Events about users of the platform app, who are owners of apps, that are mailed to them. */
const noticeTypes: ReadonlySet<EventType> = new Set([
  'balance.low',
  'balance.depleted',
  'access.lost',
  'payment.failed',
])

export const newEventId = (at: Date): string => `evt_${uuidV7(at.getTime()).replaceAll('-', '')}`

/** Writes the event in the caller's transaction. See `emitAll`. */
export const emit = (db: Db, event: AppEvent): Promise<void> => emitAll(db, [event])

/**
 * Writes one outbox row per event in the caller's transaction, so that an event is delivered only
 * if its cause commits. Writes nothing for an event that no active endpoint of the app receives and
 * that no owner gets a mail about.
 */
export async function emitAll(db: Db, events: readonly AppEvent[]): Promise<void> {
  if (events.length === 0) return
  const apps = [...new Set(events.map(({ appId }) => appId))]
  const filters = await findTypeFilters(db, apps)
  const queued = events.filter(({ appId, type }) => filters.get(appId)?.(type))
  for (const [time, same] of Map.groupBy(queued, ({ at }) => at.getTime()))
    await enqueue(db, same.map(toEntry), new Date(time))
  const notices = await selectNotices(db, events)
  for (const notice of notices) await enqueueNotice(db, notice)
}

/** Returns the events that their user, an owner of apps, gets a mail about. */
async function selectNotices(db: Db, events: readonly AppEvent[]): Promise<AppEvent[]> {
  const noticed = events.filter(({ userId, type }) => userId && noticeTypes.has(type))
  if (noticed.length === 0) return []
  const platformApp = await findPlatformApp(db)
  const own = noticed.filter(({ appId }) => appId === platformApp)
  const lost = new Set(own.filter(({ type }) => type === 'access.lost').map(({ userId }) => userId))
  // One mail for one moment.
  return own.filter(({ type, userId }) => type !== 'balance.depleted' || !lost.has(userId))
}

/** Writes a mail to owners of an app in the caller's transaction. */
export async function enqueueNotice(
  db: Db,
  { at, ...event }: Omit<AppEvent, 'type'> & { readonly type: string },
): Promise<void> {
  const notice: QueuedNotice = { ...event, id: newEventId(at), timestamp: at.toISOString() }
  const entry = { kind: noticeKind, payload: Buffer.from(JSON.stringify(notice)), itemCount: 1 }
  await enqueue(db, [entry], at)
}

function toEntry({ at, ...event }: AppEvent) {
  const queued: QueuedEvent = { ...event, id: newEventId(at), timestamp: at.toISOString() }
  return { kind: eventKind, payload: Buffer.from(JSON.stringify(queued)), itemCount: 1 }
}

export type EmitAll = typeof emitAll
