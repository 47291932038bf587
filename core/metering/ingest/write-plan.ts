import { setImmediate as yieldToOthers } from 'node:timers/promises'
import type { RowBuffer } from '../../lib/copy-sql.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { addBillionths, addDecimal, addDecimals, newDecimalSum } from '../../lib/decimal.ts'
import { getOrInsert } from '../../lib/maps.ts'
import { type EthRate, retailBound, usdAttos } from '../../lib/money.ts'
import type { Db, Statement } from '../../lib/sql.ts'
import type { UserId } from '../../platform/ids.ts'
import type { TicketKey } from '../backend/store.ts'
import type { EmitPriced } from '../backend/emit.ts'
import {
  type ParsedBatch,
  type Session,
  type TicketColumns,
  readClockOffset,
  readBillionths,
  readExactSequence,
  readFeature,
  readFee,
  rowStart,
  readMicros,
  signedAtMs,
  pixelsAsNumber,
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
import { microsText } from '../events/parse.ts'
import type { RatedTickets } from '../rating/rating.ts'
import { networkSale } from '../rating/tariff.ts'
import {
  type Charge,
  type ListSettling,
  type SettlementSums,
  type TicketCharge,
  type UserCharge,
  createSettlingColumns,
  toSteps,
} from './charges.ts'
import { type NetworkCost, addNetworkCosts } from './network-cost-store.ts'
import { type HourSums, type Sums, addHours, hoursStatement } from './hour-store.ts'
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

/**
 * Plans and executes the write of new tickets: rows, sums by session and hour, charges. The plan is
 * made without the database, so that the transaction only sends prepared data.
 *
 * Gains: a run of consecutive tickets with the same session, feature and hour is summed first, with
 * doubles where these are exact, and then added once to its session and once to its hour. The
 * `ingest by COPY` row of `npm run bench` shows it. Plain version: a bigint addition per ticket and
 * sum, with which test/core/metering/ingest/sums.unit.test.ts compares the sums.
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
  /** Costs that count as unpaid network cost. Default is the cost of all priced tickets. */
  readonly networkCosts?: readonly NetworkCost[]
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
  await addNetworkCosts(db, plan.networkCosts ?? sessions.map(networkCostOf), at)
  return {
    ...charged,
    anomalies: { forked: replayed.size, late: sumOf(sessions, ({ late }) => late), lost },
  }
}

const networkCostOf = ({ subject: { appId }, cost }: SessionSums): NetworkCost => ({ appId, cost })

const sumOf = (sessions: readonly SessionSums[], of: (session: SessionSums) => number): number =>
  sessions.reduce((sum, session) => sum + of(session), 0)

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

const hourMs = 3_600_000
const hourMicros = hourMs * 1000
// Equals the time for which the ledger keeps an expired credit open to late tickets
// (core/allowances/account.ts).
const lateMs = 15 * 60_000

const zero = (): Sums => ({
  tickets: 0,
  unpriced: 0,
  fee: 0n,
  cost: 0n,
  markup: 0n,
  platformFee: 0n,
  platformWei: 0n,
  billableSecs: newDecimalSum(),
  pixels: 0n,
})

function add(sums: Sums, tickets: TicketColumns, place: number): void {
  sums.tickets += 1
  const oversized = tickets.oversized.get(place)
  sums.fee += readFee(tickets, place)
  if (oversized) {
    addDecimal(sums.billableSecs, oversized.billableSecs)
    sums.pixels += oversized.pixels
  } else {
    addBillionths(sums.billableSecs, readBillionths(tickets, place))
    const pixels = pixelsAsNumber(tickets, place)
    if (pixels !== 0) sums.pixels += BigInt(pixels)
  }
}

function addPrice(sums: Sums, { cost, retail, platformFee, platformWei }: TicketPrice): void {
  sums.cost += cost
  if (retail !== cost) sums.markup += retail - cost
  if (platformFee === 0n && platformWei === 0n) return
  sums.platformFee += platformFee
  sums.platformWei += platformWei
}

function addAll(sums: Sums, more: Sums): void {
  sums.tickets += more.tickets
  sums.unpriced += more.unpriced
  sums.cost += more.cost
  sums.markup += more.markup
  sums.platformFee += more.platformFee
  sums.platformWei += more.platformWei
  sums.fee += more.fee
  addDecimals(sums.billableSecs, more.billableSecs)
  sums.pixels += more.pixels
}

/** Consecutive tickets of one session, feature and hour. */
interface Run extends Sums {
  readonly into: SessionSums
  /** Positions in the batch's lists. */
  readonly session: number
  readonly feature: number
  readonly hourMs: number
}

/** Sums tickets of known users. A ticket signed 15 minutes before `at`, or earlier, is late. */
export function createSums({ tickets, sessions: known, features }: ParsedBatch, at: Date) {
  const lateMicros = (at.getTime() - lateMs) * 1000
  const sessions = new Map<number, SessionSums>()
  const byUser = new Map<Subject, Map<number, Map<number, HourSums>>>()
  const hours: HourSums[] = []
  let run: Run | null = null

  function addTicket(place: number, price: TicketPrice | null): void {
    const micros = readMicros(tickets, place)
    const hour = Math.floor(micros / hourMicros) * hourMs
    const continues =
      run !== null &&
      run.session === readSession(tickets, place) &&
      run.feature === readFeature(tickets, place) &&
      run.hourMs === hour
    const current = run !== null && continues ? run : startRun(place, hour)
    add(current, tickets, place)
    if (price === null) current.unpriced += 1
    else addPrice(current, price)
    const { into } = current
    into.firstMicros = Math.min(into.firstMicros, micros)
    into.lastMicros = Math.max(into.lastMicros, micros)
    if (micros - readClockOffset(tickets, place) * 1000 < lateMicros) into.late += 1
    into.sequences.push(readSequence(tickets, place))
  }

  function startRun(place: number, hour: number): Run {
    endRun()
    const [session, feature, micros] = [
      readSession(tickets, place),
      readFeature(tickets, place),
      readMicros(tickets, place),
    ]
    const into = getOrInsert(sessions, session, () => {
      const ticketSession = known[session]
      if (!ticketSession?.payer.subject) throw new Error('only tickets of known users are summed')
      return {
        ...zero(),
        subject: ticketSession.payer.subject,
        session: ticketSession,
        firstMicros: micros,
        lastMicros: micros,
        late: 0,
        sequences: [],
      }
    })
    run = { ...zero(), into, session, feature, hourMs: hour }
    return run
  }

  function endRun(): void {
    if (run === null) return
    const { into, feature: place, hourMs: hour } = run
    const ofUser = getOrInsert(byUser, into.subject, () => new Map<number, Map<number, HourSums>>())
    const ofFeature = getOrInsert(ofUser, place, () => new Map<number, HourSums>())
    addAll(into, run)
    addAll(
      getOrInsert(ofFeature, hour, () => {
        const feature = features[place] ?? into.session.feature
        const sums = { ...zero(), subject: into.subject, feature, hourMs: hour }
        hours.push(sums)
        return sums
      }),
      run,
    )
    run = null
  }

  /** Both results are in primary key order, of `ticket_sessions` and `usage_hourly`. */
  function read(): { sessions: SessionSums[]; hours: HourSums[] } {
    endRun()
    return { sessions: [...sessions.values()].sort(bySession), hours: hours.sort(byHour) }
  }

  return { addTicket, read }
}

const bySession = (a: SessionSums, b: SessionSums): number =>
  compare(a.subject.appId, b.subject.appId) ||
  compare(a.subject.userId, b.subject.userId) ||
  compare(a.session.sessionId, b.session.sessionId)

const byHour = (a: HourSums, b: HourSums): number =>
  compare(a.subject.appId, b.subject.appId) ||
  compare(a.subject.userId, b.subject.userId) ||
  a.hourMs - b.hourMs ||
  compare(a.feature.pipeline, b.feature.pipeline) ||
  compare(a.feature.modelId, b.feature.modelId)

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)
