import { uuidV7 } from '../../../lib/crypto.ts'
import { type Db, many, maybeOne, one, sql } from '../../../lib/sql.ts'
import type {
  EventSubject,
  LostPayment,
  Movement,
  Plane,
  ProcessorAccount,
  ProcessorEvent,
} from '../port.ts'
import type { TestCard } from './cards.ts'

/** Writes the tables of the simulated processor: objects, requests, movements and events. */

/** The content of an object, by its kind. Amounts are cents in decimal digits. */
export interface Contents {
  readonly account: {
    readonly reference: string
    readonly email: string | null
    readonly chargesEnabled: boolean
    readonly payoutsEnabled: boolean
    readonly detailsSubmitted: boolean
    /** Whether the owner ended the connection. */
    readonly isEnded: boolean
  }
  /** An address where the owner completes an account. */
  readonly link: {
    readonly account: string
    readonly returnUrl: string
    readonly refreshUrl: string
    readonly expiresAt: string
  }
  readonly customer: {
    readonly reference: string
    readonly description: string
    /** The default card. */
    readonly card: string | null
    /** Absent in customers of earlier releases. */
    readonly isDeleted?: boolean
  }
  readonly card: {
    readonly customer: string
    readonly card: TestCard
    readonly expiresMonth: number
    readonly expiresYear: number
  }
  readonly checkout: {
    readonly customer: string
    readonly mode: 'payment' | 'card'
    readonly amount: string | null
    readonly fee: string
    readonly description: string
    readonly successUrl: string
    readonly cancelUrl: string
    readonly reference: string
    readonly expiresAt: string
    readonly state: 'open' | 'paid' | 'expired'
    /** Whether a card waits for the user's confirmation. */
    readonly isConfirming: boolean
    readonly payment: string | null
  }
  readonly payment: {
    readonly reference: string
    readonly customer: string
    readonly card: string
    readonly amount: string
    readonly fee: string
    readonly description: string
    readonly state: 'succeeded' | 'action_required' | 'failed'
    readonly failure: string | null
    readonly refunded: string
  }
  readonly refund: {
    readonly payment: string
    readonly amount: string
    readonly reference: string
  }
}

export type Kind = keyof Contents

export interface SimulatedObject<K extends Kind> {
  readonly id: string
  readonly at: ProcessorAccount
  readonly data: Contents[K]
}

interface ObjectRow<K extends Kind> {
  id: string
  plane: Plane
  account: string
  data: Contents[K]
}

const platform = ''
const toColumn = (account: string | null): string => account ?? platform
const toAccount = (column: string): string | null => (column === platform ? null : column)

const toObject = <K extends Kind>({
  id,
  plane,
  account,
  data,
}: ObjectRow<K>): SimulatedObject<K> => ({
  id,
  at: { plane, account: toAccount(account) },
  data,
})

export async function insertObject<K extends Kind>(
  db: Db,
  kind: K,
  { id, at, data, createdAt }: SimulatedObject<K> & { readonly createdAt: Date },
): Promise<void> {
  await db.query(sql`
    insert into simulated_objects (id, kind, plane, account, data, created_at)
    values (${id}, ${kind}, ${at.plane}, ${toColumn(at.account)}, ${JSON.stringify(data)}, ${createdAt})`)
}

export async function findObject<K extends Kind>(
  db: Db,
  kind: K,
  id: string,
): Promise<SimulatedObject<K> | null> {
  const row = await maybeOne<ObjectRow<K>>(
    db,
    sql`
    select id, plane, account, data
    from simulated_objects
    where id = ${id} and kind = ${kind}`,
  )
  return row && toObject(row)
}

/** Like `findObject`, and locks the object until the transaction ends. */
export async function lockObject<K extends Kind>(
  db: Db,
  kind: K,
  id: string,
): Promise<SimulatedObject<K> | null> {
  const row = await maybeOne<ObjectRow<K>>(
    db,
    sql`
    select id, plane, account, data
    from simulated_objects
    where id = ${id} and kind = ${kind}
    for no key update`,
  )
  return row && toObject(row)
}

export async function updateObject<K extends Kind>(
  db: Db,
  { id, data }: Pick<SimulatedObject<K>, 'id' | 'data'>,
): Promise<void> {
  await db.query(sql`
    update simulated_objects set data = ${JSON.stringify(data)} where id = ${id}`)
}

/** Returns the newest payment of a customer with this reference. */
export async function findPaymentBy(
  db: Db,
  { plane, account }: ProcessorAccount,
  { customer, reference, since }: LostPayment,
): Promise<SimulatedObject<'payment'> | null> {
  const row = await maybeOne<ObjectRow<'payment'>>(
    db,
    sql`
    select id, plane, account, data
    from simulated_objects
    where kind = 'payment' and data ->> 'reference' = ${reference} and data ->> 'customer' = ${customer}
      and plane = ${plane} and account = ${toColumn(account)} and created_at >= ${since}
    order by created_at desc, id desc
    limit 1`,
  )
  return row && toObject(row)
}

/** Returns the refunds of a payment, newest first. */
export async function listRefunds(
  db: Db,
  payment: string,
  limit: number,
): Promise<SimulatedObject<'refund'>[]> {
  const rows = await many<ObjectRow<'refund'>>(
    db,
    sql`
    select id, plane, account, data
    from simulated_objects
    where kind = 'refund' and data ->> 'payment' = ${payment}
    order by created_at desc, id desc
    limit ${limit}`,
  )
  return rows.map(toObject)
}

export interface KeyedRequest {
  readonly at: ProcessorAccount
  readonly key: string
  readonly digest: string
}

/**
 * Claims the key for a new object in the caller's transaction. Returns the first request with that
 * key if there was one; waits for it while its transaction runs.
 */
export async function claimKey(
  db: Db,
  { at: { plane, account }, key, digest }: KeyedRequest,
  { objectId, createdAt }: { readonly objectId: string; readonly createdAt: Date },
): Promise<{ readonly digest: string; readonly objectId: string } | null> {
  const inserted = await maybeOne(
    db,
    sql`
    insert into simulated_requests (plane, account, key, digest, object_id, created_at)
    values (${plane}, ${toColumn(account)}, ${key}, ${digest}, ${objectId}, ${createdAt})
    on conflict (plane, account, key) do nothing
    returning 1`,
  )
  if (inserted !== null) return null
  return one<{ digest: string; objectId: string }>(
    db,
    sql`
    select digest, object_id as "objectId"
    from simulated_requests
    where plane = ${plane} and account = ${toColumn(account)} and key = ${key}`,
  )
}

export interface NewMovement {
  readonly at: ProcessorAccount
  readonly kind: 'payment' | 'refund' | 'fee'
  readonly amount: bigint
  /** Withheld from the amount for the platform. */
  readonly fee: bigint
  readonly source: string
  readonly createdAt: Date
}

export async function insertMovement(
  db: Db,
  { at, kind, amount, fee, source, createdAt }: NewMovement,
): Promise<void> {
  const id = `mv_${uuidV7(createdAt.getTime())}`
  await db.query(sql`
    insert into simulated_movements (id, plane, account, kind, amount, fee, source, created_at)
    values (${id}, ${at.plane}, ${toColumn(at.account)}, ${kind}, ${amount}, ${fee}, ${source}, ${createdAt})`)
}

export interface MovementRange {
  readonly from: Date
  readonly to: Date
  /** The id of the last movement of the previous page. */
  readonly after: string | null
  readonly limit: number
}

export async function listMovements(
  db: Db,
  { plane, account }: ProcessorAccount,
  { from, to, after, limit }: MovementRange,
): Promise<Movement[]> {
  const rows = await many<MovementRow>(
    db,
    sql`
    select id, kind, amount, fee, source, created_at as "createdAt",
           (select data ->> 'payment' from simulated_objects where id = m.source and kind = 'refund') as "refundOf",
           (select data ->> 'reference' from simulated_objects where id = m.source and m.kind = 'payment') as reference
    from simulated_movements m
    where plane = ${plane} and account = ${toColumn(account)}
      and created_at >= ${from} and created_at < ${to}
      and (${after}::text is null
           or (created_at, id) < (select created_at, id from simulated_movements where id = ${after}))
    order by created_at desc, id desc
    limit ${limit}`,
  )
  return rows.map(({ refundOf, fee, source, ...row }) => ({
    ...row,
    currency: 'usd',
    feeCurrency: 'usd',
    platformFee: row.kind === 'payment' ? fee : 0n,
    payment: row.kind === 'payment' ? source : refundOf,
    feeReference: row.kind === 'fee' || fee > 0n ? source : null,
  }))
}

interface MovementRow extends Pick<Movement, 'id' | 'kind' | 'amount' | 'reference' | 'createdAt'> {
  readonly fee: bigint
  readonly source: string
  /** Of a refund: its payment. */
  readonly refundOf: string | null
}

interface EventRow {
  id: string
  plane: Plane
  account: string
  subject: EventSubject
  type: string
  object_id: string
  payment: string | null
  is_deauthorization: boolean
  attempts: number
}

/** Inserts an event, which is due at `nextAt` unless it was delivered before. */
export async function insertEvent(
  db: Db,
  event: ProcessorEvent,
  { createdAt, nextAt }: { readonly createdAt: Date; readonly nextAt: Date },
): Promise<void> {
  const { plane, account } = event.at
  await db.query(sql`
    insert into simulated_events (id, plane, account, subject, type, object_id, payment, is_deauthorization,
                                  created_at, next_at)
    values (${event.id}, ${plane}, ${toColumn(account)}, ${event.subject}, ${event.type}, ${event.objectId},
            ${event.payment}, ${event.isDeauthorization}, ${createdAt}, ${nextAt})`)
}

export async function markDelivered(db: Db, id: string, at: Date): Promise<void> {
  await db.query(sql`
    update simulated_events set delivered_at = ${at} where id = ${id} and delivered_at is null`)
}

/**
 * Claims events that are due, oldest first, and postpones each by its number of attempts in
 * minutes, at most an hour.
 */
export async function claimEvents(db: Db, at: Date, limit: number): Promise<ProcessorEvent[]> {
  const rows = await many<EventRow>(
    db,
    sql`
    update simulated_events
    set attempts = attempts + 1,
        next_at = ${at}::timestamptz + least(attempts + 1, 60) * interval '1 minute'
    where id in (
      select id from simulated_events
      where delivered_at is null and next_at <= ${at}
      order by next_at, id
      limit ${limit}
      for update skip locked)
    returning id, plane, account, subject, type, object_id, payment, is_deauthorization, attempts`,
  )
  return rows.map((row) => ({
    id: row.id,
    at: { plane: row.plane, account: toAccount(row.account) },
    subject: row.subject,
    type: row.type,
    objectId: row.object_id,
    payment: row.payment,
    isDeauthorization: row.is_deauthorization,
  }))
}

/** Deletes delivered events, keys and links from before an instant, at most `limit` of each. */
export async function deleteOld(db: Db, before: Date, limit: number): Promise<void> {
  await db.query(sql`
    delete from simulated_events
    where id in (select id from simulated_events where delivered_at < ${before} limit ${limit})`)
  await db.query(sql`
    delete from simulated_requests
    where ctid in (select ctid from simulated_requests where created_at < ${before} limit ${limit})`)
  await db.query(sql`
    delete from simulated_objects
    where id in (
      select id from simulated_objects where kind = 'link' and created_at < ${before} limit ${limit})`)
}
