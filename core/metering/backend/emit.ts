import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { AppId, UserId } from '../../shared/ids.ts'
import { LRUCache } from 'lru-cache'
import type { EthRate } from '../../lib/money.ts'
import type { Log } from '../../lib/log.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { enqueue } from '../../shared/outbox/outbox.ts'
import type { NewEntry } from '../../shared/outbox/types.ts'
import { type PricedTicket, type TicketFacts, toCloudEvent } from './cloud-event.ts'
import * as store from './store.ts'
import type { Subject } from '../batch/subjects.ts'

export const eventsKind = 'openmeter.events'
export const customerKind = 'openmeter.customer'
export const creditKind = 'openmeter.credit'
export const subscriptionKind = 'openmeter.subscription'

/** A ticket as written by ingest. One without a price is sent later, once it has one. */
export interface EmittedTicket {
  readonly ticket: TicketFacts
  readonly subject: Subject
  readonly price: PricedTicket['price'] | null
}

/**
 * Writes the priced tickets among `rows` to the outbox, in the transaction that priced them, so
 * that each is sent once. An outbox row holds up to a thousand tickets.
 */
export type EmitTickets = (db: Db, rows: readonly EmittedTicket[], at: Date) => Promise<void>

/** Like `EmitTickets`, for stored tickets that this transaction has priced, by their keys. */
export type EmitPriced = (db: Db, keys: readonly store.TicketKey[], at: Date) => Promise<void>

export interface NewCustomer {
  readonly appId: AppId
  readonly userId: UserId
  readonly externalUserId: string
}

/** Writes new users to the outbox in one statement, in the transaction that provisions them. */
export type EmitCustomers = (db: Db, users: readonly NewCustomer[], at: Date) => Promise<void>

export interface EmittedCredit extends NewCustomer {
  readonly id: string
  readonly amountMicros: bigint
  readonly source: string
  readonly featureKey: string | null
}

/** Writes credits to the outbox in one statement, in the transaction that gives them. */
export type EmitCredits = (db: Db, credits: readonly EmittedCredit[], at: Date) => Promise<void>

/**
 * Writes users with a new or changed subscription to the outbox, in the transaction that writes the
 * subscription.
 */
export type EmitSubscribers = (
  db: Db,
  users: readonly Pick<NewCustomer, 'appId' | 'userId'>[],
  at: Date,
) => Promise<void>

const eventsInRow = 1_000
// In UTF-16 units, so at most three times as many bytes.
const rowLength = 1024 * 1024
const ratesCached = 10_000
const clientsCached = 10_000
const compress = promisify(gzip)

/** Writes events and customers for the backend to the outbox. */
export function createEmitter() {
  const rates = new LRUCache<bigint, EthRate>({ max: ratesCached })
  const clients = new LRUCache<string, string>({ max: clientsCached })

  const emitTickets: EmitTickets = async (db, rows, at) => {
    const priced = rows.flatMap(({ ticket, subject, price }): PricedTicket[] =>
      price ? [{ ticket, subject, price }] : [],
    )
    if (priced.length === 0) return
    await loadRates(db, priced)
    const events = priced.map((row) => toCloudEvent(row, rateOf(row.price.rateId)))
    const entries = await Promise.all(chunksOf(events).map(packEvents))
    await enqueue(
      db,
      entries.map((rest) => ({ kind: eventsKind, ...rest })),
      at,
    )
  }

  const emitPriced: EmitPriced = async (db, keys, at) => {
    if (keys.length > 0) await emitTickets(db, await store.readTickets(db, keys), at)
  }

  const emitCustomers: EmitCustomers = async (db, users, at) => {
    const clientIds = await clientIdsOf(db, new Set(users.map(({ appId }) => appId)))
    const entries = users.map((user) => {
      const clientId = clientIds.get(user.appId)
      if (clientId === undefined) throw new Error(`app ${user.appId} has no public client`)
      return customerEntry({ ...user, clientId })
    })
    await enqueue(db, entries, at)
  }

  const emitCredits: EmitCredits = async (db, credits, at) => {
    const clientIds = await clientIdsOf(db, new Set(credits.map(({ appId }) => appId)))
    const entries = credits.map((credit) => creditEntry(credit, clientIds.get(credit.appId) ?? ''))
    await enqueue(db, entries, at)
  }

  const emitSubscribers: EmitSubscribers = (db, users, at) =>
    enqueue(db, users.map(subscriptionEntry), at)

  async function clientIdsOf(db: Db, apps: ReadonlySet<AppId>): Promise<Map<string, string>> {
    const known = new Map<string, string>()
    const missing: AppId[] = []
    for (const app of apps) {
      const clientId = clients.get(app)
      if (clientId === undefined) missing.push(app)
      else known.set(app, clientId)
    }
    if (missing.length === 0) return known
    for (const [app, clientId] of await store.findPublicClients(db, missing)) {
      known.set(app, clientId)
      clients.set(app, clientId)
    }
    return known
  }

  async function loadRates(db: Db, rows: readonly PricedTicket[]): Promise<void> {
    const missing = [...new Set(rows.map((row) => row.price.rateId))].filter((id) => !rates.has(id))
    if (missing.length === 0) return
    for (const [id, rate] of await store.readPrices(db, missing)) rates.set(id, rate)
  }

  function rateOf(id: bigint): EthRate {
    const rate = rates.get(id)
    if (rate === undefined)
      throw new Error(`a ticket was priced with the rate ${id}, which does not exist`)
    return rate
  }

  return { emitTickets, emitPriced, emitCustomers, emitCredits, emitSubscribers }
}

export type Emitter = ReturnType<typeof createEmitter>

/** Builds the outbox entry of a user's customer. */
const customerEntry = (user: {
  userId: string
  externalUserId: string
  clientId: string
}): NewEntry => ({
  kind: customerKind,
  itemCount: 1,
  payload: Buffer.from(
    JSON.stringify({ userId: user.userId, name: user.externalUserId, clientId: user.clientId }),
  ),
})

/**
 * Builds the outbox entry of a credit. It includes the customer, because entries of the two kinds
 * may be delivered in any order.
 */
const creditEntry = (credit: EmittedCredit, clientId: string): NewEntry => ({
  kind: creditKind,
  itemCount: 1,
  payload: Buffer.from(
    JSON.stringify({
      userId: credit.userId,
      name: credit.externalUserId,
      clientId,
      id: credit.id,
      amountMicros: String(credit.amountMicros),
      source: credit.source,
      featureKey: credit.featureKey,
    }),
  ),
})

/**
 * Builds the outbox entry of a user's subscription. Delivery reads the current state, so a late
 * entry is harmless.
 */
const subscriptionEntry = ({ appId, userId }: { appId: string; userId: string }): NewEntry => ({
  kind: subscriptionKind,
  itemCount: 1,
  payload: Buffer.from(JSON.stringify({ appId, userId })),
})

/**
 * Packs events into the payload of an outbox entry: one per line, compressed. JSON escapes line
 * breaks, so an event contains none.
 */
export async function packEvents(
  events: readonly string[],
): Promise<{ payload: Buffer; itemCount: number }> {
  return { payload: await compress(events.join('\n'), { level: 1 }), itemCount: events.length }
}

function chunksOf(events: readonly string[]): string[][] {
  const chunks: string[][] = []
  let length = Infinity
  for (const event of events) {
    if (length + event.length > rowLength || (chunks.at(-1)?.length ?? 0) >= eventsInRow) {
      chunks.push([])
      length = 0
    }
    chunks.at(-1)?.push(event)
    length += event.length
  }
  return chunks
}

// Not the earlier name: earlier releases sent their users without subscriptions.
const subscribersBackfill = 'subscribers'
const pageSize = 2_000
// Core clocks differ, and a transaction that began earlier may commit later.
const overlapSeconds = 600

/**
 * Sends users created or subscribed while there was no backend: at the start, all that are newer
 * than the last run. Existing customers and subscriptions do not change, so a repeat is harmless.
 */
export function createBackfill({ pool, log, now }: { pool: Pool; log: Log; now: Now }) {
  async function run(signal: AbortSignal): Promise<number> {
    const startedAt = now()
    const since = await store.readReached(pool, subscribersBackfill)
    let after: store.UserPage['after'] = null
    let count = 0
    do {
      const page: store.UserPage = await store.usersSince(pool, since, { after, limit: pageSize })
      await enqueue(
        pool,
        page.users.flatMap((user) => [customerEntry(user), subscriptionEntry(user)]),
        now(),
      )
      count += page.users.length
      after = page.after
    } while (after !== null && !signal.aborted)
    if (after === null)
      await store.saveReached(pool, subscribersBackfill, addSeconds(startedAt, -overlapSeconds))
    if (count > 0)
      log.info({ users: count }, 'users that the metering backend may lack are queued for it')
    return count
  }

  return { run }
}
