import { getOrInsert } from '../../lib/maps.ts'
import {
  type DecimalSum,
  addBillionths,
  addDecimal,
  addDecimals,
  newDecimalSum,
} from '../../lib/decimal.ts'
import type { Batch, Feature, Session } from './batch.ts'
import {
  type Columns,
  billionthsOf,
  featureOf,
  feeOf,
  microsOf,
  quickPixelsOf,
  sequenceOf,
  sessionOf,
} from './columns.ts'
import type { Priced, Subject } from '../types.ts'

/** What the tickets of a batch add to their hours and to their sessions. */

export interface Sums {
  tickets: number
  unpriced: number
  fee: bigint
  cost: bigint
  readonly billableSecs: DecimalSum
  pixels: bigint
}

export interface HourSums extends Sums {
  readonly subject: Subject
  readonly feature: Feature
  readonly hourMs: number
}

export interface SessionSums extends Sums {
  readonly subject: Subject
  readonly session: Session
  firstMicros: number
  lastMicros: number
  late: number
  /** In the order of arrival. */
  readonly sequences: bigint[]
}

const hourMs = 3_600_000
const hourMicros = hourMs * 1000
// As long as what a grant could still pay for is kept for its late tickets.
const lateMs = 15 * 60_000

const zero = (): Sums => ({
  tickets: 0,
  unpriced: 0,
  fee: 0n,
  cost: 0n,
  billableSecs: newDecimalSum(),
  pixels: 0n,
})

function add(sums: Sums, tickets: Columns, place: number): void {
  sums.tickets += 1
  const odd = tickets.odd.get(place)
  sums.fee += feeOf(tickets, place)
  if (odd) {
    addDecimal(sums.billableSecs, odd.billableSecs)
    sums.pixels += odd.pixels
  } else {
    addBillionths(sums.billableSecs, billionthsOf(tickets, place))
    const pixels = quickPixelsOf(tickets, place)
    if (pixels !== 0) sums.pixels += BigInt(pixels)
  }
}

function addAll(sums: Sums, more: Sums): void {
  sums.tickets += more.tickets
  sums.unpriced += more.unpriced
  sums.cost += more.cost
  sums.fee += more.fee
  addDecimals(sums.billableSecs, more.billableSecs)
  sums.pixels += more.pixels
}

/** Tickets that follow each other, of one session, feature and hour. */
interface Run extends Sums {
  readonly into: SessionSums
  /** Places in the batch. */
  readonly session: number
  readonly feature: number
  readonly hourMs: number
}

/**
 * Sums tickets by session and by hour. Those of a session mostly follow each other, all of one hour: each ticket is
 * added once, and what they come to twice.
 */
export function createSums({ tickets, sessions: known, features }: Batch, at: Date) {
  const lateMicros = (at.getTime() - lateMs) * 1000
  const sessions = new Map<number, SessionSums>()
  const byUser = new Map<Subject, Map<number, Map<number, HourSums>>>()
  const hours: HourSums[] = []
  let run: Run | null = null

  function take(place: number, price: Priced | null): void {
    const micros = microsOf(tickets, place)
    const hour = Math.floor(micros / hourMicros) * hourMs
    const goesOn =
      run !== null &&
      run.session === sessionOf(tickets, place) &&
      run.feature === featureOf(tickets, place) &&
      run.hourMs === hour
    const current = run !== null && goesOn ? run : begin(place, hour)
    add(current, tickets, place)
    if (price === null) current.unpriced += 1
    else current.cost += price.cost
    const { into } = current
    into.firstMicros = Math.min(into.firstMicros, micros)
    into.lastMicros = Math.max(into.lastMicros, micros)
    if (micros < lateMicros) into.late += 1
    into.sequences.push(sequenceOf(tickets, place))
  }

  function begin(place: number, hour: number): Run {
    end()
    const [session, feature, micros] = [
      sessionOf(tickets, place),
      featureOf(tickets, place),
      microsOf(tickets, place),
    ]
    const into = getOrInsert(sessions, session, () => {
      const of = known[session]
      if (!of?.payer.subject) throw new Error('a ticket of nobody cannot be summed')
      return {
        ...zero(),
        subject: of.payer.subject,
        session: of,
        firstMicros: micros,
        lastMicros: micros,
        late: 0,
        sequences: [],
      }
    })
    run = { ...zero(), into, session, feature, hourMs: hour }
    return run
  }

  function end(): void {
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

  /** By session in the order of the key of `ticket_sessions`, and by hour in that of `usage_hourly`. */
  function read(): { sessions: SessionSums[]; hours: HourSums[] } {
    end()
    return { sessions: [...sessions.values()].sort(bySession), hours: hours.sort(byHour) }
  }

  return { take, read }
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
