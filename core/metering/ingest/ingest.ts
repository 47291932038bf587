import { type RowBuffer, createRowBuffer } from '../../lib/copy-sql.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { UserId } from '../../shared/ids.ts'
import { type Clocks, realTime } from '../../shared/clocks/clocks.ts'
import type { EmitPriced } from '../backend/emit.ts'
import {
  type ParsedBatch,
  type RecordProblem,
  type TicketColumns,
  readIndex,
  signedAtMs,
  readSession,
} from '../batch/parsed-batch.ts'
import { dateByClocks } from '../batch/clock.ts'
import { type BatchPlan, type Rate, createPlanner, groupByUser } from './batch-plan.ts'
import { type DeduplicatedTickets, createDeduplicator } from './deduplicate.ts'
import { type EncodedBatch, encodeBatch } from '../batch/encoder.ts'
import { type ResolveSubjects, resolvePayers } from '../batch/subjects.ts'
import type { QuarantineReason, SigningLimits } from '../events/parse.ts'
import {
  countReasons,
  quarantine,
  refusedTicket,
  sameIdOtherBytes,
  ticketProblem,
  unknownClient,
} from '../quarantine/intake.ts'
import type { HoldingRate } from '../rates/holding-rate.ts'
import type { RateLookup } from '../rates/lookup.ts'
import { type Charge, type SettlementSums, sumSettlements } from './charges.ts'
import { type Rating, StaleRating } from '../rating/rating.ts'
import { type PartTicket, type RefusedPart, bookInParts } from './parts.ts'
import type { Partitions } from './partition-store.ts'
import {
  type AlreadyConsumed,
  type OutcomeCounts,
  advanceStreams,
  countOutcomes,
  lockStreams,
  listOutcomes,
} from './position-store.ts'
import type { StreamRecord } from '../events/record.ts'
import { copyTickets } from './store.ts'
import {
  type Anomalies,
  type NewTickets,
  type RowBuffers,
  type WrittenTickets,
  executePlan,
  planWrite,
} from './write-plan.ts'

export const maxBatch = 30_000

export interface IngestDeps {
  readonly pool: Pool
  readonly now: Now
  readonly charge: Charge
  /** Queues priced tickets for the metering backend, if there is one. */
  readonly emit?: EmitPriced | undefined
  /** Bounds of signing times. */
  readonly limits: SigningLimits
  readonly resolveSubjects: ResolveSubjects
  readonly partitions: Partitions
  readonly findRates: RateLookup
  readonly holdingRate: HoldingRate
  readonly rating: Rating
  readonly clocks?: Clocks | undefined
}

/** Outcomes of a batch's records. Records that were consumed before are not counted again. */
export interface IngestedBatch {
  readonly counts: OutcomeCounts
  readonly quarantined: ReadonlyMap<QuarantineReason, number>
  readonly unpriced: number
  /** Users with no balance left. */
  readonly exhausted: readonly UserId[]
  /** Null if the users had no holds. */
  readonly settlement: SettlementSums | null
  readonly anomalies: Anomalies
}

/**
 * At most `maxBatch` records of one source, parsed, attributed and planned. Can be written only
 * once.
 */
export interface PreparedBatch extends EncodedBatch {
  readonly records: readonly StreamRecord[]
  readonly at: Date
  /** Buffer of the complete rows. */
  readonly out: RowBuffer
  readonly plan: BatchPlan
}

/** Writes a batch while the previous batch is not committed yet. */
export interface EarlyWrite {
  /** Called when the transaction has written the ids and tickets. */
  readonly onTicketsWritten: () => void
  /** Resolves when the previous batch is committed. If it rejects, nothing is written. */
  readonly turn: Promise<void>
}

/** The new tickets of a batch, and their writes. */
interface TicketWrite extends Pick<BatchPlan, 'unknownClients' | 'write'> {
  readonly deduplicated: DeduplicatedTickets
}

/** Tickets written in the transaction. */
interface BookedTickets extends WrittenTickets {
  readonly deduplicated: DeduplicatedTickets
  readonly unpriced: number
}

/** All outcomes of a batch's records. */
interface BookedBatch extends BookedTickets {
  readonly consumed: AlreadyConsumed
  /** Indexes of records with an unknown client id. */
  readonly unknownClients: readonly number[]
  readonly refused: readonly RefusedPart[]
}

const maxIdleBuffers = 3
const dayMs = 86_400_000

/**
 * Turns records into tickets, charges and counters in one transaction: the whole batch or, if it
 * throws, nothing.
 */
export function createIngest(deps: IngestDeps) {
  const { pool, now, charge, emit, limits, resolveSubjects, partitions, rating } = deps
  const { clocks = realTime } = deps
  const { areLikelyNew, insertEarly, insertPlanned } = createInserts()
  const planBatch = createPlanner(deps)
  const idle: RowBuffer[] = []
  const stale = new WeakSet<PreparedBatch>()

  /**
   * Does the work that needs no transaction, so that one batch is prepared while another is
   * written.
   */
  async function prepare(records: readonly StreamRecord[]): Promise<PreparedBatch> {
    const at = now()
    const encoded = await encodeBatch(records, { at, limits })
    const { batch, rows: firstParts } = encoded
    await resolvePayers(batch.payers, resolveSubjects)
    await dateByClocks(pool, batch, { clocks, at })
    await partitions.ensure(daysOf(batch.tickets))
    const out = idle.pop() ?? createRowBuffer()
    const places = Uint32Array.from({ length: batch.tickets.count }, (_, place) => place)
    const rate: Rate = (tickets) => rating.rateBatch(tickets, at)
    const plan = await planBatch(pool, { batch, places, rate }, { firstParts, out, at })
    return { ...encoded, records, at, out, plan }
  }

  /**
   * Returns true if a batch's ids and tickets can be written before its turn, because they most
   * likely depend on no other batch.
   */
  const canWriteEarly = ({ plan }: PreparedBatch): boolean =>
    plan.write.unpriced === 0 && areLikelyNew(plan.ids)

  /**
   * Writes a prepared batch in one transaction. With `early`, writes the ids and tickets, which are
   * the largest part, before the batch's turn and the rest in its turn. An early write rejects, and
   * writes nothing, if a ticket is not new or a user has entered a period since. With null, writes
   * any batch at once.
   */
  async function write(prepared: PreparedBatch, early: EarlyWrite | null): Promise<IngestedBatch> {
    const ingested = await writeRated(prepared, early).catch((error: unknown) => {
      if (!(error instanceof StaleRating)) throw error
      rating.forget(error.users)
      stale.add(prepared)
      if (early) throw error
      return writeRated(prepared, null)
    })
    recycle(prepared)
    return ingested
  }

  /**
   * Writes a batch that the database rejected as a whole: books its tickets in parts, and
   * quarantines the rejected ones. Uses one transaction, so that a batch is still written
   * completely or not at all.
   */
  async function writeInParts(prepared: PreparedBatch): Promise<IngestedBatch> {
    const { batch } = prepared
    const ingested = await tx(pool, async (db) => {
      const consumed = await lockStreams(db, prepared.records)
      const { known, unknownClients } = groupByUser(batch, unconsumed(batch.tickets, consumed))
      const { booked, refused } = await bookInParts(db, partTickets(batch, known), (places) =>
        bookPart(db, prepared, places),
      )
      return settle(db, prepared, { ...sumParts(booked), unknownClients, consumed, refused })
    })
    recycle(prepared)
    return ingested
  }

  /** Books tickets of known users, rated under locks on their accounts. */
  async function bookPart(
    db: Db,
    prepared: PreparedBatch,
    places: Uint32Array,
  ): Promise<BookedTickets> {
    const { batch, at } = prepared
    const rate: Rate = (tickets) => rating.rateLocked(db, tickets, at)
    const plan = await planBatch(db, { batch, places, rate }, buffersOf(prepared))
    return book(db, prepared, { ...(await insertPlanned(db, prepared, plan)), isWritten: false })
  }

  async function book(
    db: Db,
    prepared: PreparedBatch,
    { deduplicated, write: plan, isWritten }: TicketWrite & { readonly isWritten: boolean },
  ): Promise<BookedTickets> {
    const written = await executePlan(db, plan, {
      ...buffersOf(prepared),
      charge,
      emit,
      ticketsWritten: isWritten,
    })
    return { ...written, deduplicated, unpriced: plan.unpriced }
  }

  async function writeRated(
    prepared: PreparedBatch,
    early: EarlyWrite | null,
  ): Promise<IngestedBatch> {
    return tx(pool, async (db) => {
      const earlyTickets = early && (await insertEarly(db, prepared, early))
      const consumed = await lockStreams(db, prepared.records)
      if (earlyTickets && consumed.includes(true))
        throw new Error('some records were consumed before')
      const tickets = earlyTickets ?? (await insertIds(db, prepared, consumed))
      const booked = await book(db, prepared, { ...tickets, isWritten: earlyTickets !== null })
      const { unknownClients } = tickets
      return settle(db, prepared, { ...booked, unknownClients, consumed, refused: [] })
    })
  }

  // Call only after success: a broken connection may still hold the memory that it was to send.
  function recycle({ out }: PreparedBatch): void {
    out.clear()
    if (idle.length < maxIdleBuffers) idle.push(out)
  }

  /** Inserts the new ids, and plans again if some are not new. */
  async function insertIds(
    db: Db,
    prepared: PreparedBatch,
    consumed: AlreadyConsumed,
  ): Promise<TicketWrite> {
    const { batch } = prepared
    // A rate that was missing during preparation may be known now.
    const isCurrent =
      !consumed.includes(true) && prepared.plan.write.unpriced === 0 && !stale.has(prepared)
    const rate: Rate = (tickets) =>
      stale.has(prepared)
        ? rating.rateLocked(db, tickets, prepared.at)
        : rating.rateBatch(tickets, prepared.at)
    const places = unconsumed(batch.tickets, consumed)
    const plan = isCurrent
      ? prepared.plan
      : await planBatch(db, { batch, places, rate }, buffersOf(prepared))
    return insertPlanned(db, prepared, plan)
  }

  return { prepare, canWriteEarly, write, writeInParts }
}

export type Ingest = ReturnType<typeof createIngest>

/** Inserts ids and tickets, each once. */
function createInserts() {
  const deduplicator = createDeduplicator()

  /** Inserts all ids and tickets as new ones, then waits for the batch's turn. */
  async function insertEarly(
    db: Db,
    { plan: { ids, unknownClients, write: plan } }: PreparedBatch,
    { onTicketsWritten, turn }: EarlyWrite,
  ): Promise<TicketWrite> {
    await deduplicator.insertNew(db, ids)
    await copyTickets(db, plan.rows)
    onTicketsWritten()
    await turn
    const deduplicated = { newTickets: ids.places, duplicates: [], conflicts: [] }
    return { deduplicated, unknownClients, write: plan }
  }

  async function insertPlanned(
    db: Db,
    prepared: PreparedBatch,
    { ids, unknownClients, write }: BatchPlan,
  ): Promise<TicketWrite> {
    const deduplicated = await deduplicator.insert(db, ids, prepared.out)
    const { newTickets } = deduplicated
    if (newTickets.length === ids.places.length) return { deduplicated, unknownClients, write }
    const rest = await planWrite(only(write, newTickets), buffersOf(prepared))
    return { deduplicated, unknownClients, write: rest }
  }

  return { areLikelyNew: deduplicator.areLikelyNew, insertEarly, insertPlanned }
}

/**
 * Quarantines the records that became no ticket, advances the streams and counts the outcomes.
 */
async function settle(
  db: Db,
  { records, batch, at }: PreparedBatch,
  { consumed, unknownClients, refused, deduplicated, ...booked }: BookedBatch,
): Promise<IngestedBatch> {
  const { newTickets, duplicates, conflicts } = deduplicated
  const { unpriced, exhausted, settlement, anomalies } = booked
  const problemAt = (index: number, problem: Parameters<typeof ticketProblem>[1]): RecordProblem =>
    ticketProblem({ records, index, at }, problem)
  const problems = [
    ...batch.problems.filter(({ index }) => !consumed[index]),
    ...unknownClients.map((index) => problemAt(index, unknownClient)),
    ...conflicts.map((index) => problemAt(index, sameIdOtherBytes)),
    ...refused.flatMap(({ places, error }) =>
      places.map((place) =>
        problemAt(readIndex(batch.tickets, place), refusedTicket(error, places.length)),
      ),
    ),
  ]
  if (problems.length > 0) await quarantine(db, { records, problems, at })
  const outcomes = listOutcomes({
    ticket: Array.from(newTickets, (place) => readIndex(batch.tickets, place)),
    duplicate: duplicates,
    ignored: batch.ignored.filter((index) => !consumed[index]),
    quarantined: problems.map(({ index }) => index),
  })
  await advanceStreams(db, { at, records, outcomes })
  return {
    counts: countOutcomes(outcomes),
    quarantined: countReasons(problems),
    unpriced,
    exhausted,
    settlement,
    anomalies,
  }
}

const buffersOf = ({ rows: firstParts, out, at }: PreparedBatch): RowBuffers => ({
  firstParts,
  out,
  at,
})

/**
 * Returns the start, in milliseconds, of each day on which tickets were signed. Merges only
 * consecutive equal days.
 */
function daysOf(tickets: TicketColumns): number[] {
  const days: number[] = []
  for (let place = 0; place < tickets.count; place++) {
    const day = Math.floor(signedAtMs(tickets, place) / dayMs) * dayMs
    if (day !== days.at(-1)) days.push(day)
  }
  return days
}

const unconsumed = (tickets: TicketColumns, consumed: AlreadyConsumed): Uint32Array =>
  Uint32Array.from({ length: tickets.count }, (_, place) => place).filter(
    (place) => !consumed[readIndex(tickets, place)],
  )

const partTickets = ({ tickets, sessions }: ParsedBatch, places: Uint32Array): PartTicket[] =>
  Array.from(places).flatMap((place) => {
    const subject = sessions[readSession(tickets, place)]?.payer.subject
    return subject ? [{ place, ...subject }] : []
  })

/** Combines the results of a batch's parts. */
function sumParts(parts: readonly BookedTickets[]): BookedTickets {
  const sum = (value: (part: BookedTickets) => number): number =>
    parts.reduce((total, part) => total + value(part), 0)
  return {
    deduplicated: {
      newTickets: Uint32Array.from(parts.flatMap((part) => [...part.deduplicated.newTickets])),
      duplicates: parts.flatMap((part) => part.deduplicated.duplicates),
      conflicts: parts.flatMap((part) => part.deduplicated.conflicts),
    },
    unpriced: sum((part) => part.unpriced),
    exhausted: [...new Set(parts.flatMap((part) => part.exhausted))],
    settlement: sumSettlements(parts.map((part) => part.settlement)),
    anomalies: {
      forked: sum((part) => part.anomalies.forked),
      late: sum((part) => part.anomalies.late),
      lost: parts.reduce((total, part) => total + part.anomalies.lost, 0n),
    },
  }
}

/** Returns the tickets that are in `selected`, with their prices. */
function only(
  { batch, places, prices, sales, keyOrder, ...more }: NewTickets,
  selected: Uint32Array,
): NewTickets {
  const selection = new Set(selected)
  return {
    ...more,
    batch,
    keyOrder: keyOrder.filter((place) => selection.has(place)),
    places: places.filter((place) => selection.has(place)),
    prices: prices.filter((_, i) => selection.has(places[i] ?? -1)),
    sales: sales.filter((_, i) => selection.has(places[i] ?? -1)),
  }
}
