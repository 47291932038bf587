import type { UsdAttos } from '../lib/money.ts'
import { type DecimalSum, addDecimal, newDecimalSum } from '../lib/decimal.ts'
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

/** By user, hour, pipeline and model, in the order of the key of `usage_hourly`. */
export function sumHours(fresh: readonly Fresh[]): HourSums[] {
  const byPayer = new Map<Payer, Map<Feature, Map<number, HourSums>>>()
  const all: HourSums[] = []
  for (const ticket of fresh) {
    const { entry, subject } = ticket
    const hour = Math.floor(entry.signedAtMs / hourMs) * hourMs
    const features = within(byPayer, entry.session.payer, () => new Map<Feature, Map<number, HourSums>>())
    const hours = within(features, entry.feature, () => new Map<number, HourSums>())
    add(within(hours, hour, () => {
      const sums = { ...zero(), subject, feature: entry.feature, hourMs: hour }
      all.push(sums)
      return sums
    }), ticket)
  }
  return all.sort((a, b) =>
    compare(a.subject.appId, b.subject.appId) || compare(a.subject.userId, b.subject.userId) || a.hourMs - b.hourMs
    || compare(a.feature.pipeline, b.feature.pipeline) || compare(a.feature.modelId, b.feature.modelId))
}

/** By session, in the order of the key of `ticket_sessions`. */
export function sumSessions(fresh: readonly Fresh[], at: Date): SessionSums[] {
  const late = at.getTime() - lateMs
  const bySession = new Map<Session, SessionSums>()
  for (const ticket of fresh) {
    const { entry, subject } = ticket
    const sums = within(bySession, entry.session, () => ({
      ...zero(), subject, session: entry.session, firstMicros: entry.signedAtMicros, lastMicros: entry.signedAtMicros,
      late: 0, sequences: [],
    }))
    add(sums, ticket)
    sums.firstMicros = Math.min(sums.firstMicros, entry.signedAtMicros)
    sums.lastMicros = Math.max(sums.lastMicros, entry.signedAtMicros)
    if (entry.signedAtMs < late) sums.late += 1
    sums.sequences.push(entry.sequence)
  }
  return [...bySession.values()].sort((a, b) =>
    compare(a.subject.appId, b.subject.appId) || compare(a.subject.userId, b.subject.userId)
    || compare(a.session.sessionId, b.session.sessionId))
}

function within<Key, Value>(map: Map<Key, Value>, key: Key, make: () => Value): Value {
  const known = map.get(key)
  if (known !== undefined) return known
  const made = make()
  map.set(key, made)
  return made
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)
