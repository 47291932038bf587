import { addBillionths, addDecimal, addDecimals, newDecimalSum } from '../../lib/decimal.ts'
import { getOrInsert } from '../../lib/maps.ts'
import { lateMs } from '../../shared/late-tickets.ts'
import {
  type ParsedBatch,
  type TicketColumns,
  readClockOffset,
  readBillionths,
  readFeature,
  readFee,
  readMicros,
  pixelsAsNumber,
  readSequence,
  readSession,
} from '../batch/parsed-batch.ts'
import type { Subject } from '../batch/subjects.ts'
import type { TicketPrice } from '../batch/ticket-row.ts'
import type { HourSums, Sums } from './hour-store.ts'
import type { SessionSums } from './session-store.ts'

/**
 * Sums new tickets by session and hour.
 *
 * Gains: a run of consecutive tickets with the same session, feature and hour is summed first, with
 * doubles where these are exact, and then added once to its session and once to its hour. The
 * `ingest by COPY` row of `npm run bench` shows it. Plain version: a bigint addition per ticket and
 * sum, with which test/core/metering/ingest/sums.unit.test.ts compares the sums.
 */

const hourMs = 3_600_000
const hourMicros = hourMs * 1000

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
