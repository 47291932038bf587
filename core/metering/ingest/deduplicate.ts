import type { RowBuffer } from '../../lib/copy-sql.ts'
import { type Db, isUniqueViolation, savepoint } from '../../lib/sql.ts'
import { copyEventIds, findDigests, insertEventIds } from './store.ts'
import {
  type TicketColumns,
  byKey,
  compareKeys,
  readDigest,
  readIndex,
  keyAt,
  readKey,
} from '../batch/parsed-batch.ts'

/**
 * Deduplicates tickets by event id. Each id is a row of `envelopes` with the digest of its event's
 * bytes: the first event with an id becomes a ticket, the same bytes again are a duplicate, other
 * bytes with that id a conflict.
 *
 * Gains: new ids are written by COPY without a look-up, which would double the cost (`ingest by
 * COPY` in `npm run bench`). Plain version: a look-up and an insert per id, with which
 * test/core/metering/ingest/deduplicate.test.ts compares the outcomes.
 */

/** Result of the deduplication of tickets. */
export interface DeduplicatedTickets {
  /** The given tickets with a new id, in the same order. */
  readonly newTickets: Uint32Array
  /** Indexes of records that repeat an earlier one byte by byte. */
  readonly duplicates: readonly number[]
  /** Indexes of records whose id belongs to other bytes. */
  readonly conflicts: readonly number[]
}

/** Event ids of tickets, ready to be written. */
export interface EventIds {
  readonly tickets: TicketColumns
  /** The tickets, as positions in `tickets`. */
  readonly places: Uint32Array
  /**
   * The first ticket of each id in key order. Every writer inserts in this order, to prevent
   * deadlocks.
   */
  readonly firsts: Uint32Array
  /** The rows of `firsts` for COPY. */
  readonly rows: Buffer
}

/** Encodes the event ids of tickets into `out`, without the database. */
export function encodeEventIds(
  tickets: TicketColumns,
  places: Uint32Array,
  out: RowBuffer,
): EventIds {
  const sorted = byKey(tickets, places)
  const firsts = sorted.filter(
    (place, i) => i === 0 || compareKeys(tickets, place, sorted[i - 1] ?? 0) !== 0,
  )
  return { tickets, places, firsts, rows: encodeRows({ tickets, firsts }, out) }
}

function encodeRows(
  { tickets, firsts }: Pick<EventIds, 'tickets' | 'firsts'>,
  out: RowBuffer,
): Buffer {
  const start = out.end()
  for (const place of firsts) {
    out.row(2)
    out.uuid(tickets.ids, keyAt(place))
    out.uuid(tickets.ids, keyAt(place) + 16)
  }
  return out.slice(start, out.end())
}

export function createDeduplicator() {
  let duplicatesExpected = false

  /** Returns true unless ids repeat within the batch, or the previous batch had duplicates. */
  const areLikelyNew = ({ places, firsts }: EventIds): boolean =>
    !duplicatesExpected && places.length > 0 && firsts.length === places.length

  /**
   * Inserts ids that are expected to be new. Rejects if one is not; the transaction is then
   * aborted.
   */
  async function insertNew(db: Db, { rows }: EventIds): Promise<void> {
    await copyEventIds(db, rows).catch((error: unknown) => {
      duplicatesExpected ||= isUniqueViolation(error)
      throw error
    })
  }

  /**
   * Inserts the new ids and classifies each ticket. `out` is for rows that must be encoded again.
   */
  async function insert(db: Db, ids: EventIds, out: RowBuffer): Promise<DeduplicatedTickets> {
    const { places, firsts } = ids
    const earlier = firsts.length === 0 ? noDigests : await insertMissing(db, ids, out)
    duplicatesExpected = earlier.size > 0
    if (earlier.size === 0 && firsts.length === places.length)
      return { newTickets: places, duplicates: [], conflicts: [] }
    return partition(ids, earlier)
  }

  /**
   * Inserts the missing ids and returns the digests of the others. COPY is cheapest, but a single
   * duplicate fails it as a whole. Duplicates come in groups: after a batch with one, the next
   * batch looks its ids up first.
   */
  async function insertMissing(
    db: Db,
    { tickets, firsts, rows }: EventIds,
    out: RowBuffer,
  ): Promise<Digests> {
    const earlier = duplicatesExpected ? await findDigests(db, keysOf(tickets, firsts)) : noDigests
    const missing =
      earlier.size === 0 ? firsts : firsts.filter((place) => !earlier.has(readKey(tickets, place)))
    if (missing.length === 0) return earlier
    try {
      await savepoint(db, () =>
        copyEventIds(db, earlier.size === 0 ? rows : encodeRows({ tickets, firsts: missing }, out)),
      )
      return earlier
    } catch (error) {
      if (!isUniqueViolation(error)) throw error
      const late = await insertEventIds(db, {
        keys: keysOf(tickets, missing),
        digests: Array.from(missing, (place) => readDigest(tickets, place)),
      })
      return new Map([...earlier, ...(await findDigests(db, [...late]))])
    }
  }

  return { areLikelyNew, insertNew, insert }
}

/** Digest by key; both are 16 characters of one byte each. */
type Digests = ReadonlyMap<string, string>

const noDigests: Digests = new Map()

const keysOf = (tickets: TicketColumns, places: Uint32Array): string[] =>
  Array.from(places, (place) => readKey(tickets, place))

function partition({ tickets, places, firsts }: EventIds, earlier: Digests): DeduplicatedTickets {
  const firstOfKey = new Map(
    Array.from(firsts, (place) => [
      readKey(tickets, place),
      { place, digest: readDigest(tickets, place) },
    ]),
  )
  const duplicates: number[] = []
  const conflicts: number[] = []
  const newTickets = places.filter((place) => {
    const key = readKey(tickets, place)
    const [first, digest] = [firstOfKey.get(key), earlier.get(key)]
    if (first?.place === place && digest === undefined) return true
    const isDuplicate = readDigest(tickets, place) === (digest ?? first?.digest)
    ;(isDuplicate ? duplicates : conflicts).push(readIndex(tickets, place))
    return false
  })
  return { newTickets, duplicates, conflicts }
}
