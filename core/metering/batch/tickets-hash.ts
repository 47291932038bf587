import { hash } from 'node:crypto'
import { getOrInsert } from '../../lib/maps.ts'
import type { Wei } from '../../lib/money.ts'
import type { UserId } from '../../platform/ids.ts'
import { type ParsedBatch, feeOf, keyAt, microsOf, sessionOf } from './parsed-batch.ts'
import type { PricingRate, TicketPrice } from './ticket-row.ts'

/**
 * Hashes what the tickets of a charge cost: the ledger's chain has the hash, so that tickets cannot be exchanged for
 * others of the same sum (docs/money.md, "Chain").
 *
 * Of each ticket 80 bytes, in the order of their keys: the 16 of its key in `envelopes`, the 16 of its event's digest, and
 * as doubles (little-endian): when it was signed in microseconds, its fee by 2^53 and the rest of that, its rate by 2^53
 * and the rest of that, when the rate was observed in milliseconds. Gains: nothing but these is touched of a ticket, so
 * that the `ingest by COPY` row of `npm run bench` does not show it. Plain version: `hashTickets`, which
 * test/core/metering/batch/tickets-hash.unit.test.ts holds the columns against, and which verifies the books.
 */

export interface HashedTicket {
  /** 16 bytes each. */
  readonly key: Buffer
  readonly digest: Buffer
  readonly signedAtMicros: number
  readonly fee: Wei
  readonly rate: PricingRate
}

const words = 10
const bytesOfTicket = words * 8
const half = 2n ** 53n

/** The hash of tickets, in hexadecimal. */
export function hashTickets(tickets: readonly HashedTicket[]): string {
  const bytes = Buffer.alloc(tickets.length * bytesOfTicket)
  const inOrder = tickets.toSorted((a, b) => a.key.compare(b.key))
  inOrder.forEach(({ key, digest, signedAtMicros, fee, rate }, i) => {
    const at = i * bytesOfTicket
    key.copy(bytes, at)
    digest.copy(bytes, at + 16)
    const numbers = [signedAtMicros, ...halves(fee), ...numbersOf(rate)]
    numbers.forEach((number, n) => bytes.writeDoubleLE(number, at + 32 + n * 8))
  })
  return hash('sha256', bytes, 'hex')
}

const halves = (value: bigint): [number, number] => [Number(value / half), Number(value % half)]

const numbersOf = ({ usdAttosPerEth, observedAt }: PricingRate): number[] => [
  ...halves(usdAttosPerEth),
  observedAt.getTime(),
]

export interface PricedTickets {
  readonly batch: ParsedBatch
  readonly places: Uint32Array
  readonly prices: readonly (TicketPrice | null)[]
  /** The same tickets in the order of their keys. */
  readonly keyOrder: Uint32Array
}

/** The hash of each user's tickets that have a price. */
export function hashByUser(tickets: PricedTickets): Map<UserId, string> {
  const { batch, keyOrder } = tickets
  const priceOf = pricesByPlace(tickets)
  const hashed = keyOrder.filter((place) => priceOf[place])
  const counts = new Map<UserId, number>()
  for (const place of hashed) {
    const user = userAt(batch, place)
    counts.set(user, (counts.get(user) ?? 0) + 1)
  }
  const bytes = new ArrayBuffer(hashed.length * bytesOfTicket)
  const ends = new Map<UserId, number>()
  let start = 0
  for (const [user, count] of counts) {
    ends.set(user, start)
    start += count
  }
  const write = ticketWriter(batch, bytes)
  for (const place of hashed) {
    const user = userAt(batch, place)
    const at = ends.get(user) ?? 0
    const price = priceOf[place]
    if (price) write(at, place, price)
    ends.set(user, at + 1)
  }
  return new Map(
    [...counts].map(([user, count]) => {
      const end = ends.get(user) ?? 0
      const part = Buffer.from(bytes, (end - count) * bytesOfTicket, count * bytesOfTicket)
      return [user, hash('sha256', part, 'hex')]
    }),
  )
}

function userAt({ tickets, sessions }: ParsedBatch, place: number): UserId {
  const subject = sessions[sessionOf(tickets, place)]?.payer.subject
  if (!subject) throw new Error('only tickets of known users are hashed')
  return subject.userId
}

function pricesByPlace({ batch, places, prices }: PricedTickets): (TicketPrice | null)[] {
  const byPlace = Array.from({ length: batch.tickets.count }, (): TicketPrice | null => null)
  for (let i = 0; i < places.length; i++) byPlace[places[i] ?? 0] = prices[i] ?? null
  return byPlace
}

function ticketWriter({ tickets }: ParsedBatch, bytes: ArrayBuffer) {
  const ids = new Uint32Array(tickets.ids.buffer, tickets.ids.byteOffset, tickets.ids.length / 4)
  const [target, numbers] = [new Uint32Array(bytes), new Float64Array(bytes)]
  const rates = new Map<bigint, number[]>()

  return (at: number, place: number, { rateId, rate }: TicketPrice): void => {
    const from = keyAt(place) / 4
    const to = at * words * 2
    for (let i = 0; i < 8; i++) target[to + i] = ids[from + i] ?? 0
    const number = at * words + 4
    numbers[number] = microsOf(tickets, place)
    const fee = feeOf(tickets, place)
    numbers[number + 1] = fee < half ? 0 : Number(fee / half)
    numbers[number + 2] = fee < half ? Number(fee) : Number(fee % half)
    const [high = 0, low = 0, observed = 0] = getOrInsert(rates, rateId, () => numbersOf(rate))
    numbers[number + 3] = high
    numbers[number + 4] = low
    numbers[number + 5] = observed
  }
}
