import { quickBillionths, quickInteger } from '../../lib/decimal.ts'
import { type Wei, wei } from '../../lib/money.ts'
import { writeBytes, writeKey } from '../events/event-id.ts'

/**
 * The tickets of a batch, in the order of their records, as numbers in a row and not as objects: what survives of an
 * event until its batch is written is what a garbage collector copies, again and again, and nothing costs a collector
 * more (measured: a third of all processor time).
 */
export interface Columns {
  readonly count: number
  readonly numbers: Float64Array<ArrayBuffer>
  /** 16 bytes of what each ticket is known by in `envelopes`, and 16 that tell its bytes from others. */
  readonly ids: Uint8Array<ArrayBuffer>
  /** By place, the amounts that do not fit into a double. */
  readonly odd: ReadonlyMap<number, Amounts>
}

/** What is added up of a ticket. */
export interface Amounts {
  readonly fee: Wei
  readonly billableSecs: string
  readonly pixels: bigint
  readonly sequence: bigint
}

interface NewTicket extends Pick<Amounts, 'fee' | 'billableSecs'> {
  /** Integers. */
  readonly pixels: string
  readonly sequence: string
  /** Of its record. */
  readonly index: number
  /** Places in the batch's lists. */
  readonly session: number
  readonly feature: number
  /** Where the first part of its row stands. */
  readonly from: number
  readonly to: number
  readonly signedAtMicros: number
  readonly eventId: string
  /** A character a byte. */
  readonly digest: string
}

const width = 10
const idLength = 16
const bothIds = 2 * idLength

/** Columns with room for `size` tickets. */
export function createColumns(size: number) {
  const numbers = new Float64Array(size * width)
  const ids = new Uint8Array(size * bothIds)
  const odd = new Map<number, Amounts>()
  let count = 0

  function add(ticket: NewTicket): void {
    const { fee, billableSecs, pixels, sequence } = ticket
    const [quickFee, quickPixels, quickSequence] = [
      Number(fee),
      quickInteger(pixels),
      quickInteger(sequence),
    ]
    const billionths = quickBillionths(billableSecs)
    const fits =
      Number.isSafeInteger(quickFee) && !Number.isNaN(quickPixels + quickSequence + billionths)
    if (!fits)
      odd.set(count, { fee, billableSecs, pixels: BigInt(pixels), sequence: BigInt(sequence) })
    let at = count * width
    numbers[at++] = ticket.index
    numbers[at++] = ticket.session
    numbers[at++] = ticket.feature
    numbers[at++] = ticket.from
    numbers[at++] = ticket.to
    numbers[at++] = ticket.signedAtMicros
    numbers[at++] = fits ? quickFee : NaN
    numbers[at++] = billionths
    numbers[at++] = quickPixels
    numbers[at] = quickSequence
    writeKey(ids, keyAt(count), ticket.eventId)
    writeBytes(ids, keyAt(count) + idLength, ticket.digest)
    count += 1
  }

  return { add, read: (): Columns => ({ count, numbers, ids, odd }) }
}

const number = ({ numbers }: Columns, place: number, column: number): number =>
  numbers[place * width + column] ?? 0

export const indexOf = (tickets: Columns, place: number): number => number(tickets, place, 0)
export const sessionOf = (tickets: Columns, place: number): number => number(tickets, place, 1)
export const featureOf = (tickets: Columns, place: number): number => number(tickets, place, 2)
export const fromOf = (tickets: Columns, place: number): number => number(tickets, place, 3)
export const toOf = (tickets: Columns, place: number): number => number(tickets, place, 4)
export const microsOf = (tickets: Columns, place: number): number => number(tickets, place, 5)
export const msOf = (tickets: Columns, place: number): number =>
  Math.floor(number(tickets, place, 5) / 1000)
export const billionthsOf = (tickets: Columns, place: number): number => number(tickets, place, 7)
export const quickPixelsOf = (tickets: Columns, place: number): number => number(tickets, place, 8)
export const sequenceOf = (tickets: Columns, place: number): bigint =>
  tickets.odd.get(place)?.sequence ?? BigInt(number(tickets, place, 9))
export const feeOf = (tickets: Columns, place: number): Wei =>
  tickets.odd.get(place)?.fee ?? wei(BigInt(number(tickets, place, 6)))

/** Where the key of a ticket stands in `ids`; its digest follows. */
export const keyAt = (place: number): number => place * bothIds

const text = ({ ids }: Columns, from: number): string =>
  Buffer.from(ids.buffer, ids.byteOffset + from, idLength).toString('latin1')

/** A character a byte. */
export const keyOf = (tickets: Columns, place: number): string => text(tickets, keyAt(place))
export const digestOf = (tickets: Columns, place: number): string =>
  text(tickets, keyAt(place) + idLength)

/** Less than zero when the key of the one comes before that of the other, zero when they are the same. */
export function compareKeys({ ids }: Columns, one: number, other: number): number {
  const [a, b] = [keyAt(one), keyAt(other)]
  for (let i = 0; i < idLength; i++) {
    const difference = (ids[a + i] ?? 0) - (ids[b + i] ?? 0)
    if (difference !== 0) return difference
  }
  return 0
}

// 38 bits of a key and 15 of its place in the list are a number that a double holds, and numbers sort many times faster.
const sortable = 2 ** 15

/** Places in the order of their keys, those of one key in the order of the records. */
export function byKey(tickets: Columns, places: Uint32Array): Uint32Array {
  const inOrder = (a: number, b: number): number => compareKeys(tickets, a, b) || a - b
  if (places.length > sortable) return places.toSorted(inOrder)
  const numbers = Float64Array.from(
    places,
    (place, i) => startOf(tickets, place) * sortable + i,
  ).sort()
  const sorted = Uint32Array.from(numbers, (each) => places[each % sortable] ?? 0)
  for (let from = 0; from < sorted.length;) {
    const start = Math.floor((numbers[from] ?? 0) / sortable)
    let to = from + 1
    while (to < sorted.length && Math.floor((numbers[to] ?? 0) / sortable) === start) to += 1
    if (to - from > 1) sorted.subarray(from, to).sort(inOrder)
    from = to
  }
  return sorted
}

function startOf({ ids }: Columns, place: number): number {
  const at = keyAt(place)
  const high = ((ids[at] ?? 0) << 16) | ((ids[at + 1] ?? 0) << 8) | (ids[at + 2] ?? 0)
  return high * 2 ** 14 + (((ids[at + 3] ?? 0) << 6) | ((ids[at + 4] ?? 0) >> 2))
}
