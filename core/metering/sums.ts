import type { UsdAttos } from '../lib/money.ts'
import { within } from '../lib/maps.ts'
import { type DecimalSum, addDecimal, addDecimals, newDecimalSum } from '../lib/decimal.ts'
import type { Entry, Feature, Payer, Session } from './batch.ts'
import type { Subject } from './types.ts'

/** What the tickets of a batch add to their hours and to their sessions. */

export interface Priced { readonly rateId: bigint; readonly cost: UsdAttos }

/** A ticket that is new, of a known user. */
export interface Fresh {
  readonly entry: Entry
  readonly subject: Subject
  readonly price: Priced | null
}

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
// As long as what a grant could still pay for is kept for its late tickets.
const lateMs = 15 * 60_000

const zero = (): Sums =>
  ({ tickets: 0, unpriced: 0, fee: 0n, cost: 0n, billableSecs: newDecimalSum(), pixels: 0n })

function add(sums: Sums, { entry, price }: Fresh): void {
  sums.tickets += 1
  if (price === null) sums.unpriced += 1
  else sums.cost += price.cost
  sums.fee += entry.fee
  addDecimal(sums.billableSecs, entry.billableSecs)
  if (entry.pixels !== '0') sums.pixels += BigInt(entry.pixels)
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
  readonly feature: Feature
  readonly hourMs: number
}

/**
 * Sums tickets by session and by hour. Those of a session mostly follow each other, all of one hour: each ticket is
 * added once, and what they come to twice.
 */
export function createSums(at: Date) {
  const late = at.getTime() - lateMs
  const sessions = new Map<Session, SessionSums>()
  const byPayer = new Map<Payer, Map<Feature, Map<number, HourSums>>>()
  const hours: HourSums[] = []
  let run: Run | null = null

  function take(ticket: Fresh): void {
    const { entry } = ticket
    const { session, feature, signedAtMs, signedAtMicros } = entry
    const goesOn = run !== null && run.into.session === session && run.feature === feature
      && signedAtMs >= run.hourMs && signedAtMs < run.hourMs + hourMs
    const current = run !== null && goesOn ? run : begin(ticket)
    add(current, ticket)
    const { into } = current
    into.firstMicros = Math.min(into.firstMicros, signedAtMicros)
    into.lastMicros = Math.max(into.lastMicros, signedAtMicros)
    if (signedAtMs < late) into.late += 1
    into.sequences.push(entry.sequence)
  }

  function begin({ entry, subject }: Fresh): Run {
    end()
    const into = within(sessions, entry.session, () => ({
      ...zero(), subject, session: entry.session, firstMicros: entry.signedAtMicros, lastMicros: entry.signedAtMicros,
      late: 0, sequences: [],
    }))
    run = { ...zero(), into, feature: entry.feature, hourMs: Math.floor(entry.signedAtMs / hourMs) * hourMs }
    return run
  }

  function end(): void {
    if (run === null) return
    const { into, feature, hourMs: hour } = run
    const features = within(byPayer, into.session.payer, () => new Map<Feature, Map<number, HourSums>>())
    const ofFeature = within(features, feature, () => new Map<number, HourSums>())
    addAll(into, run)
    addAll(within(ofFeature, hour, () => {
      const sums = { ...zero(), subject: into.subject, feature, hourMs: hour }
      hours.push(sums)
      return sums
    }), run)
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
  compare(a.subject.appId, b.subject.appId) || compare(a.subject.userId, b.subject.userId)
  || compare(a.session.sessionId, b.session.sessionId)

const byHour = (a: HourSums, b: HourSums): number =>
  compare(a.subject.appId, b.subject.appId) || compare(a.subject.userId, b.subject.userId) || a.hourMs - b.hourMs
  || compare(a.feature.pipeline, b.feature.pipeline) || compare(a.feature.modelId, b.feature.modelId)

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)
