import { type Db, many, maybeOne, one, sql } from '../lib/sql.ts'
import { type AppId, type UserId } from '../shared/ids.ts'
import type { EndpointKey } from './endpoint-store.ts'

/** Reads and writes webhook_deliveries. */

export const deliveryStates = ['pending', 'delivered', 'failed'] as const
export type DeliveryState = (typeof deliveryStates)[number]

/** An event for one endpoint. */
export interface NewDelivery {
  readonly appId: AppId
  readonly endpointId: string
  readonly id: string
  readonly eventId: string
  readonly eventType: string
  readonly body: string
  readonly at: Date
}

export interface Delivery {
  readonly id: string
  readonly eventId: string
  readonly eventType: string
  readonly body: string
  readonly status: DeliveryState
  readonly attempts: number
  readonly dueAt: Date | null
  readonly createdAt: Date
  readonly lastAttemptAt: Date | null
  readonly lastStatus: number | null
  readonly lastDurationMs: number | null
  readonly lastError: string | null
  readonly lastResponse: string | null
}

const columns = `id, event_id as "eventId", event_type as "eventType", body, status, attempts, due_at as "dueAt",
  created_at as "createdAt", last_attempt_at as "lastAttemptAt", last_status as "lastStatus",
  last_duration_ms as "lastDurationMs", last_error as "lastError", last_response as "lastResponse"`

/** Inserts deliveries; leaves out those of an event that the endpoint already has. */
export async function insertDeliveries(db: Db, rows: readonly NewDelivery[]): Promise<void> {
  if (rows.length === 0) return
  const column = <T>(value: (row: NewDelivery) => T): T[] => rows.map(value)
  await db.query(sql`
    insert into webhook_deliveries (app_id, endpoint_id, id, event_id, event_type, body, status, due_at, created_at,
                                    started_at)
    select app_id, endpoint_id, id, event_id, event_type, body, 'pending', at, at, at
    from unnest(${column((r) => r.appId)}::uuid[], ${column((r) => r.endpointId)}::uuid[], ${column((r) => r.id)}::uuid[],
                ${column((r) => r.eventId)}::text[], ${column((r) => r.eventType)}::text[],
                ${column((r) => r.body)}::text[], ${column((r) => r.at.toISOString())}::timestamptz[])
      as d (app_id, endpoint_id, id, event_id, event_type, body, at)
    on conflict (app_id, endpoint_id, event_id) do nothing`)
}

/** Returns the external ids of users. */
export async function findUserNames(
  db: Db,
  users: readonly { readonly appId: AppId; readonly userId: UserId }[],
): Promise<ReadonlyMap<string, string>> {
  const rows = await many<{ id: string; external_user_id: string }>(
    db,
    sql`
    select u.id, u.external_user_id
    from unnest(${users.map((user) => user.appId)}::uuid[], ${users.map((user) => user.userId)}::uuid[])
      as w (app_id, id)
    join end_users u on u.app_id = w.app_id and u.id = w.id`,
  )
  return new Map(rows.map((row) => [row.id, row.external_user_id]))
}

export interface ClaimedDelivery {
  readonly id: string
  readonly eventId: string
  readonly eventType: string
  readonly body: string
  /** With the claimed attempt. */
  readonly attempts: number
  readonly startedAt: Date
}

/**
 * Claims the deliveries of an endpoint that have been due longest, and counts the attempt. If this
 * process dies, they are due again at `until`.
 */
export const claimDeliveries = (
  db: Db,
  { appId: app, id: endpoint }: EndpointKey,
  { at, until, limit }: { readonly at: Date; readonly until: Date; readonly limit: number },
): Promise<ClaimedDelivery[]> =>
  many<ClaimedDelivery>(
    db,
    sql`
    with due as materialized (
      select id
      from webhook_deliveries
      where app_id = ${app} and endpoint_id = ${endpoint} and status = 'pending' and due_at <= ${at}
      order by due_at, id
      limit ${limit}
      for no key update skip locked
    )
    update webhook_deliveries d
    set due_at = ${until}, attempts = d.attempts + 1, last_attempt_at = ${at}
    from due
    where d.app_id = ${app} and d.id = due.id
    returning d.id, d.event_id as "eventId", d.event_type as "eventType", d.body, d.attempts,
              d.started_at as "startedAt"`,
  )

/** The result of one attempt. */
export interface AttemptRecord {
  readonly id: string
  readonly attempts: number
  readonly status: DeliveryState
  readonly dueAt: Date | null
  readonly httpStatus: number | null
  readonly durationMs: number
  readonly error: string | null
  readonly response: string | null
}

/** Records an attempt, unless the delivery was claimed or replayed since. */
export async function recordAttempt(db: Db, app: AppId, attempt: AttemptRecord): Promise<void> {
  await db.query(sql`
    update webhook_deliveries
    set status = ${attempt.status}, due_at = ${attempt.dueAt}, last_status = ${attempt.httpStatus},
        last_duration_ms = ${attempt.durationMs}, last_error = ${attempt.error}, last_response = ${attempt.response}
    where app_id = ${app} and id = ${attempt.id} and status = 'pending' and attempts = ${attempt.attempts}`)
}

/** The due time of the endpoint's next delivery; null if none waits. */
export async function nextDue(db: Db, { appId: app, id }: EndpointKey): Promise<Date | null> {
  const row = await one<{ due: Date | null }>(
    db,
    sql`
    select min(due_at) as due
    from webhook_deliveries
    where app_id = ${app} and endpoint_id = ${id} and status = 'pending'`,
  )
  return row.due
}

export interface DeliveryFilter {
  readonly status: DeliveryState | null
  readonly eventType: string | null
  readonly eventId: string | null
  readonly since: Date | null
  readonly until: Date | null
}

/** Returns deliveries of an endpoint, newest first, one more than `limit` if there are more. */
export const listDeliveries = (
  db: Db,
  { appId: app, id: endpoint }: EndpointKey,
  page: DeliveryFilter & {
    readonly after: { readonly createdAt: Date; readonly id: string } | null
    readonly limit: number
  },
): Promise<Delivery[]> =>
  many<Delivery>(db, {
    text: `
      select ${columns}
      from webhook_deliveries
      where app_id = $1 and endpoint_id = $2
        and ($3::timestamptz is null or (created_at, id) < ($3, $4::uuid))
        and ($5::text is null or status = $5)
        and ($6::text is null or event_type = $6)
        and ($7::text is null or event_id = $7)
        and ($8::timestamptz is null or created_at >= $8)
        and ($9::timestamptz is null or created_at < $9)
      order by created_at desc, id desc
      limit $10`,
    values: [
      app,
      endpoint,
      page.after?.createdAt ?? null,
      page.after?.id ?? null,
      page.status,
      page.eventType,
      page.eventId,
      page.since,
      page.until,
      page.limit + 1,
    ],
  })

export const findDelivery = (
  db: Db,
  { appId: app, id: endpoint }: EndpointKey,
  id: string,
): Promise<Delivery | null> =>
  maybeOne<Delivery>(db, {
    text: `select ${columns} from webhook_deliveries where app_id = $1 and endpoint_id = $2 and id = $3`,
    values: [app, endpoint, id],
  })

/** Starts a delivery again, whatever its status. Returns false if the endpoint has no such row. */
export async function restartDelivery(
  db: Db,
  { appId: app, id: endpoint }: EndpointKey,
  { id, at }: { readonly id: string; readonly at: Date },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update webhook_deliveries
    set status = 'pending', attempts = 0, due_at = ${at}, started_at = ${at}
    where app_id = ${app} and endpoint_id = ${endpoint} and id = ${id}`)
  return rowCount === 1
}

/** Starts failed deliveries again, oldest first, at most `limit`. Returns their number. */
export async function restartFailed(
  db: Db,
  { appId: app, id: endpoint }: EndpointKey,
  { since, at, limit }: { readonly since: Date; readonly at: Date; readonly limit: number },
): Promise<number> {
  const { rowCount } = await db.query(sql`
    update webhook_deliveries
    set status = 'pending', attempts = 0, due_at = ${at}, started_at = ${at}
    where app_id = ${app} and id in (
      select id
      from webhook_deliveries
      where app_id = ${app} and endpoint_id = ${endpoint} and status = 'failed' and created_at >= ${since}
      order by created_at, id
      limit ${limit}
      for no key update)`)
  return rowCount ?? 0
}

/** Fails pending deliveries that started before an instant and are due. Returns their number. */
export async function failOverdue(
  db: Db,
  { startedBefore, limit }: { readonly startedBefore: Date; readonly limit: number },
): Promise<number> {
  const { rowCount } = await db.query(sql`
    update webhook_deliveries d
    set status = 'failed', due_at = null, last_error = coalesce(d.last_error, 'the endpoint was disabled')
    from (
      select app_id, id
      from webhook_deliveries
      where status = 'pending' and started_at < ${startedBefore}
      order by started_at
      limit ${limit}
      for no key update skip locked) o
    where d.app_id = o.app_id and d.id = o.id`)
  return rowCount ?? 0
}

/** Deletes at most `limit` deliveries of events before an instant. Returns their number. */
export async function deleteOldDeliveries(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from webhook_deliveries d
    using (
      select app_id, id
      from webhook_deliveries
      where created_at < ${before} and status <> 'pending'
      order by created_at
      limit ${limit}
      for update skip locked) o
    where d.app_id = o.app_id and d.id = o.id`)
  return rowCount ?? 0
}

const countBound = 100_000

/** The number of waiting deliveries to active endpoints, counted up to a hundred thousand. */
export async function countWaiting(db: Db): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`
    select count(*)::integer as count
    from (
      select
      from webhook_endpoints e
      join webhook_deliveries d on d.app_id = e.app_id and d.endpoint_id = e.id and d.status = 'pending'
      where e.status = 'active' and e.due_at is not null
      limit ${countBound}) w`,
  )
  return count
}
