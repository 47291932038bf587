import { setImmediate as yieldToOthers } from 'node:timers/promises'
import type { RowBuffer } from '../../lib/copy-sql.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type EthRate, retailBound, usdAttos } from '../../lib/money.ts'
import type { Db, Statement } from '../../lib/sql.ts'
import type { UserId } from '../../shared/ids.ts'
import type { TicketKey } from '../backend/store.ts'
import type { EmitPriced } from '../backend/emit.ts'
import {
  type ParsedBatch,
  type Session,
  readClockOffset,
  readExactSequence,
  readFeature,
  readFee,
  rowStart,
  readMicros,
  signedAtMs,
  readSequence,
  readSession,
  readSignerMicros,
  rowEnd,
} from '../batch/parsed-batch.ts'
import type { Subject } from '../batch/subjects.ts'
import { hashByUser } from '../batch/tickets-hash.ts'
import {
  type TicketPrice,
  type TicketRest,
  copyDated,
  eventIdIn,
  rowTailWriter,
} from '../batch/ticket-row.ts'
import { microsText } from '../events/values.ts'
import type { RatedTickets } from '../rating/rating.ts'
import { networkSale } from '../batch/tariff.ts'
import {
  type Charge,
  type ListSettling,
  type SettlementSums,
  type TicketCharge,
  type UserCharge,
  createSettlingColumns,
  toSteps,
} from './charges.ts'
import { addHours, hoursStatement } from './hour-store.ts'
import {
  type RepeatedSequences,
  type SessionSums,
  addSessions,
  closeHoles,
  countDistinct,
  toRanges,
  sessionsStatement,
} from './session-store.ts'
import { copyTickets } from './store.ts'
import { createSums } from './sums.ts'

/**
 * Plans and executes the write of new tickets: rows, sums by session and hour, charges. The plan is
 * made without the database, so that the transaction only sends prepared data.
 */

/** New tickets of known users. */
export interface NewTickets extends RatedTickets {
  readonly batch: ParsedBatch
  /** The tickets, as positions in the batch. */
  readonly places: Uint32Array
  /** In the same order; null for a ticket with an unknown rate. */
  readonly prices: readonly (TicketPrice | null)[]
  /** The same tickets in order of their keys in `envelopes`. */
  readonly keyOrder: Uint32Array
  /** The rate at which tickets without a price hold money. */
  readonly holdingRate: EthRate
  /** When the rates were read; null for prices fixed elsewhere. */
  readonly ratesKnownAt: Date | null
}

/** New tickets with all their writes. */
export interface WritePlan extends NewTickets {
  readonly chargeId: string
  readonly at: Date
  readonly sessions: readonly SessionSums[]
  /** The statements that add the sums. */
  readonly addingSessions: Statement
  readonly addingHours: Statement
  /** Complete rows for COPY, assuming that no sequence number repeats. */
  readonly rows: Buffer
  readonly unpriced: number
  readonly hashes: ReadonlyMap<UserId, string>
}

export interface RowBuffers {
  /** The first parts of the tickets' rows. */
  readonly firstParts: Buffer
  /** Receives the complete rows. */
  readonly out: RowBuffer
  readonly at: Date
}

const yieldEvery = 100

/**
 * Plans the write of new tickets. Yields in between, because another batch's transaction may be
 * running.
 */
export async function planWrite(tickets: NewTickets, buffers: RowBuffers): Promise<WritePlan> {
  const { batch, places, prices, sales } = tickets
  const { out, at } = buffers
  const chargeId = uuidV7(at.getTime())
  const sums = createSums(batch, at)
  const start = out.end()
  const write = rowWriter({ batch, chargeId, at }, buffers)
  let unpriced = 0
  for (let i = 0; i < places.length; i++) {
    const [place = 0, price = null, sale = networkSale] = [places[i], prices[i], sales[i]]
    write({ place, price, sale, replayed: false })
    sums.addTicket(place, price)
    if (price === null) unpriced += 1
    if (i % yieldEvery === yieldEvery - 1) await yieldToOthers()
  }
  const rows = out.slice(start, out.end())
  const { sessions, hours } = sums.read()
  await yieldToOthers()
  const addingHours = hoursStatement(hours)
  await yieldToOthers()
  const hashes = hashByUser(tickets)
  await yieldToOthers()
  const addingSessions = sessionsStatement(sessions)
  await yieldToOthers()
  const added = { sessions, addingSessions, addingHours }
  return { ...tickets, ...added, chargeId, at, rows, unpriced, hashes }
}

/** Anomalies in a batch's sessions, as numbers of tickets. */
export interface Anomalies {
  /**
   * Tickets with a repeated sequence number: the signer's state was replayed, or two sessions share
   * an id.
   */
  readonly forked: number
  /** Tickets that arrived long after signing. */
  readonly late: number
  /** Tickets counted as lost, because their sessions have too many holes. */
  readonly lost: bigint
}

export const noAnomalies: Anomalies = { forked: 0, late: 0, lost: 0n }

export interface WrittenTickets {
  /** Users with no balance left. */
  readonly exhausted: readonly UserId[]
  /** Null if the users had no holds. */
  readonly settlement: SettlementSums | null
  readonly anomalies: Anomalies
}

interface ExecuteOptions extends RowBuffers {
  readonly charge: Charge
  /** Queues priced tickets for the metering backend, if there is one. */
  readonly emit?: EmitPriced | undefined
  /**
   * Whether the transaction already wrote the plan's rows. If so, a repeated sequence number
   * rejects.
   */
  readonly ticketsWritten: boolean
}

/** Writes tickets with their sums and charges in the caller's transaction. */
export async function executePlan(
  db: Db,
  plan: WritePlan,
  options: ExecuteOptions,
): Promise<WrittenTickets> {
  const { chargeId, at, sessions, places, ratesKnownAt, confirm } = plan
  if (places.length === 0) return { exhausted: [], settlement: null, anomalies: noAnomalies }
  const { repeated, oversized } = await addSessions(db, plan.addingSessions)
  const lost = oversized.length === 0 ? 0n : await closeHoles(db, oversized)
  const replayed = replayedTickets(plan, repeated)
  if (!options.ticketsWritten) await copyTickets(db, rowsWith(replayed, plan, options))
  else if (replayed.size > 0) throw new Error('sequence numbers were repeated')
  await addHours(db, plan.addingHours)
  await options.emit?.(db, keysOf(plan, options.firstParts), at)
  const charges = chargesOf(plan, options.firstParts)
  const settling = listSettling(plan)
  const chargeOptions = { id: chargeId, at, ratesKnownAt, settling, confirm }
  const charged = await options.charge(db, charges, chargeOptions)
  return {
    ...charged,
    anomalies: { forked: replayed.size, late: sumOf(sessions, ({ late }) => late), lost },
  }
}

const sumOf = (
  sessions: readonly SessionSums[],
  select: (session: SessionSums) => number,
): number => sessions.reduce((sum, session) => sum + select(session), 0)

type WrittenTicket = Omit<TicketRest, 'subject' | 'aheadMs'> & { readonly place: number }

/** Returns a function that writes one complete row. */
function rowWriter(
  { batch, ...charge }: Pick<WritePlan, 'batch' | 'chargeId' | 'at'>,
  { firstParts, out }: RowBuffers,
) {
  const writeRest = rowTailWriter(out, charge)

  return ({ place, price, sale, replayed }: WrittenTicket): void => {
    const { tickets } = batch
    const aheadMs = readClockOffset(tickets, place)
    const [from, to] = [rowStart(tickets, place), rowEnd(tickets, place)]
    if (aheadMs === 0) out.copy(firstParts, from, to)
    else copyDated(out, firstParts, { from, to, micros: readMicros(tickets, place) })
    writeRest({ subject: subjectOf(batch, place), price, sale, replayed, aheadMs })
  }
}

/** Returns the plan's rows, encoded again if some tickets are replayed. */
function rowsWith(
  replayed: ReadonlySet<number>,
  { places, prices, sales, rows, ...charge }: WritePlan,
  buffers: RowBuffers,
): Buffer {
  if (replayed.size === 0) return rows
  const start = buffers.out.end()
  const write = rowWriter(charge, buffers)
  places.forEach((place, i) => {
    const [price = null, sale = networkSale] = [prices[i], sales[i]]
    write({ place, price, sale, replayed: replayed.has(place) })
  })
  return buffers.out.slice(start, buffers.out.end())
}

function subjectOf({ tickets, sessions }: ParsedBatch, place: number): Subject {
  const subject = sessions[readSession(tickets, place)]?.payer.subject
  if (!subject) throw new Error('only tickets of known users are written')
  return subject
}

function keysOf({ batch, places, prices }: NewTickets, rows: Buffer): TicketKey[] {
  return mapPriced({ places, prices }, (place) => ({
    ...subjectOf(batch, place),
    signedAt: microsText(readMicros(batch.tickets, place)),
    eventId: eventIdIn(rows, rowStart(batch.tickets, place)),
  }))
}

/**
 * Builds one charge per user from its sessions' sums. Lists the tickets only on the ledger's
 * request.
 */
function chargesOf(tickets: WritePlan, rows: Buffer): UserCharge[] {
  let each: Map<UserId, TicketCharge[]> | null = null
  const ofUser = (user: UserId): readonly TicketCharge[] =>
    (each ??= Map.groupBy(ticketCharges(tickets, rows), ({ userId }) => userId)).get(user) ?? []
  const byUser = Map.groupBy(tickets.sessions, ({ subject }) => subject.userId)
  return [...byUser].flatMap(([userId, sessions]): UserCharge[] => {
    const unpriced = sumOf(sessions, (session) => session.unpriced)
    const [first] = sessions
    if (!first) return []
    return [
      {
        appId: first.subject.appId,
        userId,
        tickets: sumOf(sessions, (session) => session.tickets) - unpriced,
        unpriced,
        waited: 0,
        ticketsHash: tickets.hashes.get(userId) ?? null,
        each: () => ofUser(userId),
        cost: usdAttos(sessions.reduce((sum, { cost, markup }) => sum + cost + markup, 0n)),
        ownerCost: usdAttos(
          sessions.reduce((sum, { cost, platformFee }) => sum + cost + platformFee, 0n),
        ),
        from: new Date(
          Math.floor(Math.min(...sessions.map(({ firstMicros }) => firstMicros)) / 1000),
        ),
        to: new Date(Math.floor(Math.max(...sessions.map(({ lastMicros }) => lastMicros)) / 1000)),
      },
    ]
  })
}

function ticketCharges({ batch, places, prices }: NewTickets, rows: Buffer): TicketCharge[] {
  const { tickets, features } = batch
  return mapPriced({ places, prices }, (place, { retail }) => {
    const { appId, userId } = subjectOf(batch, place)
    const { pipeline, modelId } = features[readFeature(tickets, place)] ?? {
      pipeline: '',
      modelId: '',
    }
    const eventId = eventIdIn(rows, rowStart(tickets, place))
    return {
      appId,
      userId,
      eventId,
      pipeline,
      modelId,
      signedAt: new Date(signedAtMs(tickets, place)),
      cost: retail,
    }
  })
}

/**
 * Lists tickets of some users in columns. Called only for users with holds: most batches settle
 * nothing.
 */
const listSettling =
  ({
    batch: { tickets, sessions },
    places,
    prices,
    sales,
    holdingRate,
  }: NewTickets): ListSettling =>
  (users) => {
    const keys = sessions.map(({ payer: { subject }, sessionId }) =>
      subject && users.has(subject.userId) ? { ...subject, sessionId } : null,
    )
    const steps = { booked: createSettlingColumns(), unpriced: createSettlingColumns() }
    for (let i = 0; i < places.length; i++) {
      const [place = 0, price = null, sale = networkSale] = [places[i], prices[i], sales[i]]
      const key = keys[readSession(tickets, place)]
      if (!key) continue
      const { columns, positionOf } = price ? steps.booked : steps.unpriced
      columns.session.push(positionOf(key))
      columns.sequence.push(readExactSequence(tickets, place))
      columns.signedMicros.push(readSignerMicros(tickets, place))
      columns.cost.push(
        price?.retail ?? retailBound(readFee(tickets, place), holdingRate, sale.tariff.ratio),
      )
    }
    return toSteps(steps)
  }

function mapPriced<T>(
  { places, prices }: Pick<NewTickets, 'places' | 'prices'>,
  map: (place: number, price: TicketPrice) => T,
): T[] {
  const values: T[] = []
  for (let i = 0; i < places.length; i++) {
    const price = prices[i]
    if (price) values.push(map(places[i] ?? 0, price))
  }
  return values
}

/**
 * Returns the tickets with a sequence number that their session already had, in the database or
 * earlier in the batch.
 */
function replayedTickets(
  { batch, places, sessions }: WritePlan,
  repeated: readonly RepeatedSequences[],
): ReadonlySet<number> {
  const suspects = new Map<Session | undefined, { ranges: [bigint, bigint][]; seen: Set<bigint> }>()
  for (const { session, sequences } of sessions) {
    if (countDistinct(sequences) < sequences.length)
      suspects.set(session, { ranges: [], seen: new Set() })
  }
  for (const { position, ranges } of repeated) {
    const session = sessions[position]?.session
    if (session) suspects.set(session, { ranges: toRanges(ranges), seen: new Set() })
  }
  const replayed = new Set<number>()
  if (suspects.size === 0) return replayed
  // In order of arrival: of two tickets with the same number, the later one is the replay.
  for (const place of places.toSorted()) {
    const suspect = suspects.get(batch.sessions[readSession(batch.tickets, place)])
    if (!suspect) continue
    const { ranges, seen } = suspect
    const sequence = readSequence(batch.tickets, place)
    const before = ranges.some(([from, to]) => sequence >= from && sequence < to)
    if (before || seen.has(sequence)) replayed.add(place)
    seen.add(sequence)
  }
  return replayed
}
