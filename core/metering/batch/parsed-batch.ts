import { hash } from 'node:crypto'
import type { RowBuffer } from '../../lib/copy-sql.ts'
import { billionthsAsNumber, quickInteger } from '../../lib/decimal.ts'
import { getOrInsert } from '../../lib/maps.ts'
import { type Wei, wei } from '../../lib/money.ts'
import { authId } from '../../shared/ids.ts'
import {
  type EventProblem,
  type SignedTicket,
  type SigningLimits,
  foldEvent,
  parseEvent,
} from '../events/parse.ts'
import type { NamedUser, Subject } from './subjects.ts'
import { writeTicket } from './ticket-row.ts'

/**
 * A parsed batch of events, independent of the database. Of each ticket, columns keep only its
 * encoded row (ticket-row.ts) and a few numbers; its texts are released.
 *
 * Gains: no object per ticket survives until its batch is written, so the garbage collector copies
 * nothing. With an object per ticket it took a third of all processor time; the `ingest by COPY`
 * and `memory, collector at full rate` rows of `npm run bench` show it. Plain version: an array of
 * objects with bigint amounts, sorted by comparing ids, with which
 * test/core/metering/batch/columns.unit.test.ts compares the columns.
 */

/** A user named by tickets, one object for all of the user's tickets in a batch. */
export interface BilledUser extends NamedUser {
  /** Positions in the batch's `sessions`, by session id. */
  readonly sessions: Map<string, number>
  /** Null before the look-up, and for an unknown client id. */
  subject: Subject | null
}

/** A signer session, one object for all of its tickets in a batch. */
export interface Session {
  readonly payer: BilledUser
  readonly sessionId: string
  readonly manifestId: string
  readonly appName: string
  readonly feature: Feature
}

export interface Feature {
  readonly pipeline: string
  readonly modelId: string
}

/** A record that cannot become a ticket. */
export interface RecordProblem {
  /** Index of the record in the batch. */
  readonly index: number
  readonly problem: EventProblem
}

/** Records, parsed into tickets, problems and events of other types. */
export interface ParsedBatch {
  readonly tickets: TicketColumns
  readonly sessions: readonly Session[]
  readonly features: readonly Feature[]
  readonly problems: readonly RecordProblem[]
  /** Indexes of records with a type that is not billed. */
  readonly ignored: readonly number[]
  /** By auth id. */
  readonly payers: ReadonlyMap<string, BilledUser>
}

/** Time of parsing, and limits for signing times relative to it. */
export interface ParsedAt {
  readonly at: Date
  readonly limits: SigningLimits
}

/**
 * Parses at most `size` records, one by one, and writes the first parts of their tickets' rows to
 * `rows`. `at` and the limits bound the signing times.
 */
export function createBatchParser(rows: RowBuffer, { at, limits }: ParsedAt, size: number) {
  const columns = createColumns(size)
  const sessions: Session[] = []
  const features: Feature[] = []
  const problems: RecordProblem[] = []
  const ignored: number[] = []
  const payers = new Map<string, BilledUser>()
  const byClient = new Map<string, Map<string, BilledUser>>()
  const byPipeline = new Map<string, Map<string, number>>()

  function add(index: number, bytes: Buffer): void {
    const parsed = parseEvent(bytes, at, limits)
    if (parsed.kind === 'ignored') ignored.push(index)
    else if (parsed.kind === 'problem') problems.push({ index, problem: parsed.problem })
    else {
      const { ticket, isFolded } = parsed
      const compared = isFolded ? foldEvent(bytes, ticket.eventId) : bytes
      addTicket(index, ticket, digestOfBytes(compared))
    }
  }

  /** Adds a parsed ticket; `digest` is that of its event's bytes. */
  function addTicket(index: number, ticket: SignedTicket, digest: string): void {
    const { fee, billableSecs, signedAtMicros } = ticket
    const feature = positionOfFeature(ticket)
    const from = rows.end()
    writeTicket(rows, ticket)
    columns.add({
      index,
      feature,
      fee,
      billableSecs,
      signedAtMicros,
      from,
      to: rows.end(),
      pixels: ticket.pixels,
      eventId: ticket.eventId,
      digest,
      session: positionOfSession(ticket, feature),
      sequence: ticket.sequenceNumber,
    })
  }

  function positionOfSession(ticket: SignedTicket, featurePosition: number): number {
    const payer = payerOf(ticket)
    const { sessionId, manifestId, appName } = ticket
    return getOrInsert(payer.sessions, sessionId, () => {
      const feature = features[featurePosition] ?? { pipeline: '', modelId: '' }
      return sessions.push({ payer, sessionId, manifestId, appName, feature }) - 1
    })
  }

  function payerOf({ clientId, externalUserId }: SignedTicket): BilledUser {
    const users = getOrInsert(byClient, clientId, () => new Map<string, BilledUser>())
    return getOrInsert(users, externalUserId, () => {
      const payer: BilledUser = { clientId, externalUserId, sessions: new Map(), subject: null }
      payers.set(authId(clientId, externalUserId), payer)
      return payer
    })
  }

  function positionOfFeature({ pipeline, modelId }: SignedTicket): number {
    const models = getOrInsert(byPipeline, pipeline, () => new Map<string, number>())
    return getOrInsert(models, modelId, () => features.push({ pipeline, modelId }) - 1)
  }

  return {
    add,
    addTicket,
    read: (): ParsedBatch => ({
      tickets: columns.read(),
      sessions,
      features,
      problems,
      ignored,
      payers,
    }),
  }
}

/** The tickets of a batch in record order. A ticket's place is its position in that order. */
export interface TicketColumns {
  readonly count: number
  readonly numbers: Float64Array<ArrayBuffer>
  /** Per ticket: 16 bytes of its key in `envelopes`, then 16 bytes of its event's digest. */
  readonly ids: Uint8Array<ArrayBuffer>
  /** By place: amounts of tickets with an amount that does not fit into a double. */
  readonly oversized: ReadonlyMap<number, TicketAmounts>
  /** By place: milliseconds by which a test app's clock was ahead (`putAhead`). */
  readonly ahead: Map<number, number>
}

/** The summed values of a ticket. */
export interface TicketAmounts {
  readonly fee: Wei
  readonly billableSecs: string
  readonly pixels: bigint
  readonly sequence: bigint
}

interface NewTicket extends Pick<TicketAmounts, 'fee' | 'billableSecs'> {
  /** Integers. */
  readonly pixels: string
  readonly sequence: string
  /** Index of its record in the batch. */
  readonly index: number
  /** Positions in the batch's lists. */
  readonly session: number
  readonly feature: number
  /** Start and end of the first part of its row. */
  readonly from: number
  readonly to: number
  readonly signedAtMicros: number
  readonly eventId: string
  /** 16 characters of one byte each. */
  readonly digest: string
}

const width = 10
const idLength = 16
const bothIds = 2 * idLength

/** Creates columns with room for `size` tickets. */
export function createColumns(size: number) {
  const numbers = new Float64Array(size * width)
  const ids = new Uint8Array(size * bothIds)
  const oversized = new Map<number, TicketAmounts>()
  let count = 0

  function add(ticket: NewTicket): void {
    const { fee, billableSecs, pixels, sequence } = ticket
    const [quickFee, quickPixels, quickSequence] = [
      Number(fee),
      quickInteger(pixels),
      quickInteger(sequence),
    ]
    const billionths = billionthsAsNumber(billableSecs)
    const fits =
      Number.isSafeInteger(quickFee) && !Number.isNaN(quickPixels + quickSequence + billionths)
    if (!fits)
      oversized.set(count, {
        fee,
        billableSecs,
        pixels: BigInt(pixels),
        sequence: BigInt(sequence),
      })
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
    writeEventKey(ids, keyAt(count), ticket.eventId)
    writeBytes(ids, keyAt(count) + idLength, ticket.digest)
    count += 1
  }

  return { add, read: (): TicketColumns => ({ count, numbers, ids, oversized, ahead: new Map() }) }
}

const number = ({ numbers }: TicketColumns, place: number, column: number): number =>
  numbers[place * width + column] ?? 0

export const readIndex = (tickets: TicketColumns, place: number): number =>
  number(tickets, place, 0)
export const readSession = (tickets: TicketColumns, place: number): number =>
  number(tickets, place, 1)
export const readFeature = (tickets: TicketColumns, place: number): number =>
  number(tickets, place, 2)
export const rowStart = (tickets: TicketColumns, place: number): number => number(tickets, place, 3)
export const rowEnd = (tickets: TicketColumns, place: number): number => number(tickets, place, 4)
/** Returns a ticket's signing time by the clock of its app. */
export const readMicros = (tickets: TicketColumns, place: number): number =>
  number(tickets, place, 5)
export const signedAtMs = (tickets: TicketColumns, place: number): number =>
  Math.floor(number(tickets, place, 5) / 1000)
/** Returns the milliseconds by which the app's clock was ahead. */
export const readClockOffset = ({ ahead }: TicketColumns, place: number): number =>
  ahead.size === 0 ? 0 : (ahead.get(place) ?? 0)
/** Returns the signing time by the signer's clock. */
export const readSignerMicros = (tickets: TicketColumns, place: number): number =>
  readMicros(tickets, place) - readClockOffset(tickets, place) * 1000
/** Moves a ticket from its signer's clock to its app's clock. */
export function putAhead(tickets: TicketColumns, place: number, aheadMs: number): void {
  if (aheadMs === 0) return
  tickets.numbers[place * width + 5] = readMicros(tickets, place) + aheadMs * 1000
  tickets.ahead.set(place, aheadMs)
}
export const readBillionths = (tickets: TicketColumns, place: number): number =>
  number(tickets, place, 7)
export const pixelsAsNumber = (tickets: TicketColumns, place: number): number =>
  number(tickets, place, 8)
export const readSequence = (tickets: TicketColumns, place: number): bigint =>
  tickets.oversized.get(place)?.sequence ?? BigInt(number(tickets, place, 9))
/** Returns a bigint only if a double is not exact. */
export const readExactSequence = (tickets: TicketColumns, place: number): number | bigint =>
  tickets.oversized.get(place)?.sequence ?? number(tickets, place, 9)
export const readFee = (tickets: TicketColumns, place: number): Wei =>
  tickets.oversized.get(place)?.fee ?? wei(BigInt(number(tickets, place, 6)))

/** Returns where a ticket's key begins in `ids`; its digest follows. */
export const keyAt = (place: number): number => place * bothIds

const text = ({ ids }: TicketColumns, from: number): string =>
  Buffer.from(ids.buffer, ids.byteOffset + from, idLength).toString('latin1')

/** 16 characters of one byte each. */
export const readKey = (tickets: TicketColumns, place: number): string =>
  text(tickets, keyAt(place))
export const readDigest = (tickets: TicketColumns, place: number): string =>
  text(tickets, keyAt(place) + idLength)

/**
 * Returns a negative number if the first ticket's key comes before the second's, zero if they are
 * equal.
 */
export function compareKeys({ ids }: TicketColumns, one: number, other: number): number {
  const [a, b] = [keyAt(one), keyAt(other)]
  for (let i = 0; i < idLength; i++) {
    const difference = (ids[a + i] ?? 0) - (ids[b + i] ?? 0)
    if (difference !== 0) return difference
  }
  return 0
}

// 38 bits of a key and 15 bits of its list position fit into a double, and numbers sort many times
// faster than ids.
const sortable = 2 ** 15

/** Sorts tickets by key, those with the same key by record order. */
export function byKey(tickets: TicketColumns, places: Uint32Array): Uint32Array {
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

function startOf({ ids }: TicketColumns, place: number): number {
  const at = keyAt(place)
  const high = ((ids[at] ?? 0) << 16) | ((ids[at + 1] ?? 0) << 8) | (ids[at + 2] ?? 0)
  return high * 2 ** 14 + (((ids[at + 3] ?? 0) << 6) | ((ids[at + 4] ?? 0) >> 2))
}

/** Returns the first 128 bits of an event's SHA-256, as 16 characters of one byte each. */
export const digestOfBytes = (bytes: Buffer | string): string =>
  hash('sha256', bytes, 'binary').slice(0, 16)

/** Returns the same from a SHA-256 in hexadecimal. */
export const digestOfHex = (hex: string): string =>
  Buffer.from(hex.slice(0, 32), 'hex').toString('latin1')

const [dash, uuidLength] = [45, 36]
// Positions after the 1st, 2nd, 3rd and 4th group of a UUID.
const dashes = new Set([8, 13, 18, 23])

/**
 * Writes the 16 bytes of an event's key. A UUID is its own key, already in lower case
 * (`canonicalEventId`); any other id is hashed.
 */
function writeEventKey(target: Uint8Array, at: number, id: string): void {
  if (!writeUuid(target, at, id)) writeBytes(target, at, digestOfBytes(id))
}

/** Writes a text with one byte per character. */
function writeBytes(target: Uint8Array, at: number, bytes: string): void {
  for (let i = 0; i < bytes.length; i++) target[at + i] = bytes.charCodeAt(i)
}

function writeUuid(target: Uint8Array, at: number, text: string): boolean {
  if (text.length !== uuidLength) return false
  let end = at
  for (let i = 0; i < uuidLength; i += 2) {
    if (dashes.has(i) && text.charCodeAt(i++) !== dash) return false
    const byte = (nibble(text.charCodeAt(i)) << 4) | nibble(text.charCodeAt(i + 1))
    if (byte < 0) return false
    target[end++] = byte
  }
  return true
}

/** Returns the value of a lower-case hexadecimal digit; -1 for any other character. */
function nibble(code: number): number {
  if (code >= 48 && code <= 57) return code - 48
  return code >= 97 && code <= 102 ? code - 87 : -1
}
