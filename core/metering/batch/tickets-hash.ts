import { hash } from 'node:crypto'
import { getOrInsert } from '../../lib/maps.ts'
import type { UsdAttos, Wei } from '../../lib/money.ts'
import type { UserId } from '../../shared/ids.ts'
import { type ParsedBatch, readFee, keyAt, readMicros, readSession } from './parsed-batch.ts'
import type { Prices, PricedTicket } from './tariff.ts'
import type { PricingRate, TicketPrice } from './ticket-row.ts'

/**
 * Hashes the costs of a charge's tickets. The ledger's chain includes the hash, so that tickets
 * cannot be replaced by others with the same sum (docs/ledger.md, "Chain").
 *
 * Each ticket contributes 80 bytes, in key order: the 16 bytes of its key in `envelopes`, the 16
 * bytes of its event's digest, and as doubles (little-endian) its signing time in microseconds, the
 * quotient and remainder of its fee by 2^53, those of its rate, and the time of the rate's
 * observation in milliseconds. A ticket not sold at cost without a plan version adds 40 bytes, also
 * as doubles: the version's id, and the quotients and remainders by 2^53 of its retail price and of
 * the platform's cut. Gains: reads no other data of a ticket, so that the cost is not visible in
 * the `ingest by COPY` row of `npm run bench`. Plain version: `hashTickets`, with which
 * test/core/metering/batch/tickets-hash.unit.test.ts compares the columns, and which verifies the
 * books.
 */

export interface HashedTicket {
  /** 16 bytes each. */
  readonly key: Buffer
  readonly digest: Buffer
  readonly signedAtMicros: number
  readonly fee: Wei
  readonly rate: PricingRate
  /** Null for a ticket sold at cost without a plan version. */
  readonly sale: HashedSale | null
}

export interface HashedSale {
  readonly termsId: bigint | null
  readonly retail: UsdAttos
  readonly platformFee: UsdAttos
}

const words = 10
const saleWords = 5
const half = 2n ** 53n

/** Hashes tickets; returns hexadecimal. */
export function hashTickets(tickets: readonly HashedTicket[]): string {
  const inOrder = tickets.toSorted((a, b) => a.key.compare(b.key))
  return hash('sha256', Buffer.concat(inOrder.map(bytesOf)), 'hex')
}

function bytesOf(ticket: HashedTicket): Buffer {
  const { key, digest, signedAtMicros, fee, rate, sale } = ticket
  const numbers = [signedAtMicros, ...halves(fee), ...numbersOf(rate)]
  if (sale) {
    const { termsId, retail, platformFee } = sale
    numbers.push(Number(termsId ?? 0n), ...halves(retail), ...halves(platformFee))
  }
  const bytes = Buffer.alloc(32 + numbers.length * 8)
  key.copy(bytes, 0)
  digest.copy(bytes, 16)
  numbers.forEach((number, n) => bytes.writeDoubleLE(number, 32 + n * 8))
  return bytes
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
  readonly sales: readonly PricedTicket[]
  /** The same tickets in key order. */
  readonly keyOrder: Uint32Array
}

/** Hashes each user's priced tickets. */
export function hashByUser(tickets: PricedTickets): Map<UserId, string> {
  const { batch, keyOrder } = tickets
  const positions = positionsByPlace(tickets)
  const sizes = new Map<UserId, number>()
  let total = 0
  for (const place of keyOrder) {
    const size = wordsOf(tickets, positions[place] ?? 0)
    if (size === 0) continue
    const user = userAt(batch, place)
    sizes.set(user, (sizes.get(user) ?? 0) + size)
    total += size
  }
  const bytes = new ArrayBuffer(total * 8)
  const ends = new Map<UserId, number>()
  let start = 0
  for (const [user, size] of sizes) {
    ends.set(user, start)
    start += size
  }
  const write = ticketWriter(tickets, bytes)
  for (const place of keyOrder) {
    const size = wordsOf(tickets, positions[place] ?? 0)
    if (size === 0) continue
    const user = userAt(batch, place)
    const at = ends.get(user) ?? 0
    write(at, place, positions[place] ?? 0)
    ends.set(user, at + size)
  }
  return new Map(
    [...sizes].map(([user, size]) => {
      const end = ends.get(user) ?? 0
      return [user, hash('sha256', Buffer.from(bytes, (end - size) * 8, size * 8), 'hex')]
    }),
  )
}

/** Returns the number of hashed words for a ticket: 0 without a price. */
function wordsOf({ prices, sales }: PricedTickets, i: number): number {
  const price = prices[i]
  if (!price) return 0
  return isSold(price, sales[i]?.termsId ?? null) ? words + saleWords : words
}

const isSold = ({ cost, retail, platformFee }: Prices, termsId: bigint | null): boolean =>
  termsId !== null || retail !== cost || platformFee !== 0n

function userAt({ tickets, sessions }: ParsedBatch, place: number): UserId {
  const subject = sessions[readSession(tickets, place)]?.payer.subject
  if (!subject) throw new Error('only tickets of known users are hashed')
  return subject.userId
}

/** Returns the list position of each ticket of the batch. */
function positionsByPlace({ batch, places }: PricedTickets): Uint32Array {
  const positions = new Uint32Array(batch.tickets.count)
  for (let i = 0; i < places.length; i++) positions[places[i] ?? 0] = i
  return positions
}

function ticketWriter({ batch: { tickets }, prices, sales }: PricedTickets, bytes: ArrayBuffer) {
  const ids = new Uint32Array(tickets.ids.buffer, tickets.ids.byteOffset, tickets.ids.length / 4)
  const [target, numbers] = [new Uint32Array(bytes), new Float64Array(bytes)]
  const rates = new Map<bigint, number[]>()

  /** Writes both halves of an amount, the high one first. */
  function amount(at: number, value: bigint): void {
    numbers[at] = value < half ? 0 : Number(value / half)
    numbers[at + 1] = value < half ? Number(value) : Number(value % half)
  }

  return (at: number, place: number, i: number): void => {
    const price = prices[i]
    if (!price) return
    const { rateId, rate, retail, platformFee } = price
    const from = keyAt(place) / 4
    for (let word = 0; word < 8; word++) target[at * 2 + word] = ids[from + word] ?? 0
    const number = at + 4
    numbers[number] = readMicros(tickets, place)
    amount(number + 1, readFee(tickets, place))
    const [high = 0, low = 0, observed = 0] = getOrInsert(rates, rateId, () => numbersOf(rate))
    numbers[number + 3] = high
    numbers[number + 4] = low
    numbers[number + 5] = observed
    const termsId = sales[i]?.termsId ?? null
    if (!isSold(price, termsId)) return
    numbers[number + 6] = Number(termsId ?? 0n)
    amount(number + 7, retail)
    amount(number + 9, platformFee)
  }
}
