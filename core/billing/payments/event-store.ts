import { type Db, many, one, sql } from '../../lib/sql.ts'
import type { EventSubject, Plane, ProcessorEvent } from '../processor/port.ts'
import { accountColumn } from './customer-store.ts'

/** Writes processor_events: events that the processor has sent. */

export interface StoredEvent extends ProcessorEvent {
  readonly attempts: number
}

interface EventRow {
  plane: Plane
  account_id: string
  event_id: string
  subject: EventSubject | null
  type: string
  object_id: string
  payment_id: string | null
  is_deauthorization: boolean
  attempts: number
}

/** Stores an event that is not stored yet. An ignored one (without a subject) is handled at once. */
export async function insertEvent(
  db: Db,
  event: ProcessorEvent,
  receivedAt: Date,
): Promise<boolean> {
  const { at } = event
  const isIgnored = event.subject === null
  const { rowCount } = await db.query(sql`
    insert into processor_events (plane, account_id, event_id, subject, type, object_id, payment_id, is_deauthorization,
                                  received_at, due_at, handled_at, outcome)
    values (${at.plane}, ${accountColumn(at)}, ${event.id}, ${event.subject}, ${event.type}, ${event.objectId}, ${event.payment},
            ${event.isDeauthorization}, ${receivedAt}, ${receivedAt}, ${isIgnored ? receivedAt : null},
            ${isIgnored ? 'ignored' : null})
    on conflict do nothing`)
  return rowCount === 1
}

/**
 * Claims events that are due, oldest first, until `until`. Skips those that another core handles.
 */
export async function claimEvents(
  db: Db,
  { at, until, limit }: { readonly at: Date; readonly until: Date; readonly limit: number },
): Promise<StoredEvent[]> {
  const rows = await many<EventRow>(
    db,
    sql`
    update processor_events
    set due_at = ${until}, attempts = attempts + 1
    where (plane, account_id, event_id) in (
      select plane, account_id, event_id
      from processor_events
      where handled_at is null and due_at <= ${at}
      order by due_at
      limit ${limit}
      for update skip locked)
    returning plane, account_id, event_id, subject, type, object_id, payment_id, is_deauthorization, attempts`,
  )
  return rows.map((row) => ({
    id: row.event_id,
    at: { plane: row.plane, account: row.account_id === '' ? null : row.account_id },
    subject: row.subject,
    type: row.type,
    objectId: row.object_id,
    payment: row.payment_id,
    isDeauthorization: row.is_deauthorization,
    attempts: row.attempts,
  }))
}

/** Records the outcome of an event. It is due again at `dueAt`, or handled if that is null. */
export async function saveOutcome(
  db: Db,
  { at, id }: ProcessorEvent,
  {
    outcome,
    dueAt,
    now,
  }: { readonly outcome: string; readonly dueAt: Date | null; readonly now: Date },
): Promise<void> {
  await db.query(sql`
    update processor_events
    set outcome = ${outcome.slice(0, 500)}, handled_at = ${dueAt === null ? now : null}, due_at = coalesce(${dueAt}, due_at)
    where plane = ${at.plane} and account_id = ${accountColumn(at)} and event_id = ${id}`)
}

/** Returns when the oldest unhandled event came; null without one. */
export async function waitingSince(db: Db): Promise<Date | null> {
  const { since } = await one<{ since: Date | null }>(
    db,
    sql`select min(received_at) as since from processor_events where handled_at is null`,
  )
  return since
}

/** Deletes handled events received before an instant, at most `limit`. Returns their number. */
export async function deleteOldEvents(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from processor_events
    where (plane, account_id, event_id) in (
      select plane, account_id, event_id
      from processor_events
      where received_at < ${before} and handled_at is not null
      limit ${limit})`)
  return rowCount ?? 0
}
