import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { AppId, UserId } from '../../platform/ids.ts'
import { LRUCache } from 'lru-cache'
import type { EthRate } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import { enqueue } from '../../platform/outbox/outbox.ts'
import type { NewEntry } from '../../platform/outbox/types.ts'
import { type PricedTicket, type TicketFacts, cloudEventOf } from './cloud-event.ts'
import * as store from './emit-store.ts'
import type { Subject } from '../types.ts'

export const eventsKind = 'openmeter.events'
export const customerKind = 'openmeter.customer'

/** A ticket as ingest writes it; one that waits for its price is not sent yet. */
export interface EmittedTicket {
  readonly ticket: TicketFacts
  readonly subject: Subject
  readonly price: PricedTicket['price'] | null
}

/**
 * Puts the priced ones of `rows` on their way to the backend, inside the transaction that wrote them: once for each
 * ticket, when it has got its price. One row of the outbox for a thousand tickets.
 */
export type EmitTickets = (db: Db, rows: readonly EmittedTicket[], at: Date) => Promise<void>

/** The same for tickets that are in the database and got their price in this transaction, by their keys. */
export type EmitPriced = (db: Db, keys: readonly store.TicketKey[], at: Date) => Promise<void>

export interface NewCustomer {
  readonly appId: AppId
  readonly userId: UserId
  readonly externalUserId: string
}

/** Puts a new user on its way to the backend, inside the transaction that provisions it. */
export type EmitCustomer = (db: Db, user: NewCustomer, at: Date) => Promise<void>

const eventsInRow = 1_000
// In UTF-16 units, so at most three times that in bytes.
const rowLength = 1024 * 1024
const ratesKept = 10_000
const clientsKept = 10_000
const compress = promisify(gzip)

/** Writes to the outbox what the backend is to know. */
export function createEmitter() {
  const rates = new LRUCache<bigint, EthRate>({ max: ratesKept })
  const clients = new LRUCache<string, string>({ max: clientsKept })

  const emitTickets: EmitTickets = async (db, rows, at) => {
    const priced = rows.flatMap(({ ticket, subject, price }): PricedTicket[] =>
      price ? [{ ticket, subject, price }] : [],
    )
    if (priced.length === 0) return
    await learnRates(db, priced)
    const events = priced.map((row) => cloudEventOf(row, rateOf(row.price.rateId)))
    const entries = await Promise.all(chunksOf(events).map(packed))
    await enqueue(
      db,
      entries.map((rest) => ({ kind: eventsKind, ...rest })),
      at,
    )
  }

  const emitPriced: EmitPriced = async (db, keys, at) => {
    if (keys.length > 0) await emitTickets(db, await store.readTickets(db, keys), at)
  }

  const emitCustomer: EmitCustomer = async (db, user, at) => {
    const clientId = clients.get(user.appId) ?? (await store.publicClientOf(db, user.appId))
    clients.set(user.appId, clientId)
    await enqueue(db, [customerEntry({ ...user, clientId })], at)
  }

  async function learnRates(db: Db, rows: readonly PricedTicket[]): Promise<void> {
    const missing = [...new Set(rows.map((row) => row.price.rateId))].filter((id) => !rates.has(id))
    if (missing.length === 0) return
    for (const [id, rate] of await store.pricesOf(db, missing)) rates.set(id, rate)
  }

  function rateOf(id: bigint): EthRate {
    const rate = rates.get(id)
    if (rate === undefined)
      throw new Error(`a ticket was priced with the rate ${id}, which there is none of`)
    return rate
  }

  return { emitTickets, emitPriced, emitCustomer }
}

export type Emitter = ReturnType<typeof createEmitter>

/** The entry that makes sure of a user's customer. */
export const customerEntry = (user: {
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

/** Events as an outbox keeps them: a line each, compressed. Events hold no line breaks: JSON escapes them. */
export async function packed(
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
