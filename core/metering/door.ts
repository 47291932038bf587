import { DomainError } from '../../proto/errors.ts'
import { uuidV7 } from '../lib/crypto.ts'
import { type UsdAttos, priceOf } from '../lib/money.ts'
import type { Db } from '../lib/sql.ts'
import type { UserId } from '../ids.ts'
import { type Candidate, sortBatch, subjectKey } from './batch.ts'
import { isPoison } from './intake.ts'
import { type ObservedRate, ensureRates, ratesAt } from './rate-store.ts'
import type { Partitions } from './partitions.ts'
import * as store from './store.ts'
import type { Charge, ResolveSubjects, SignedTicket, Subject } from './types.ts'

/**
 * The door for tickets that come by hand: re-driven events and imported tickets. They are unique, priced, charged and
 * summed by the same rules, and in the same statements, as those of a stream.
 */
export interface Arrival {
  readonly ticket: SignedTicket
  readonly subject: Subject
  /** SHA-256 of the event's bytes in hexadecimal, of which the first 128 bits count. */
  readonly digest: string
  /** A price that was fixed before; undefined when it is still to be found. */
  readonly price?: { readonly rate: ObservedRate; readonly cost: UsdAttos } | undefined
}

export interface Admitted {
  /** By the arrivals' positions. */
  readonly fresh: readonly number[]
  /** The same event had come before. */
  readonly repeats: readonly number[]
  /** Another event has this id. */
  readonly conflicts: readonly number[]
  /** Users that have nothing left now. */
  readonly exhausted: readonly UserId[]
}

export interface DoorDeps {
  readonly charge: Charge
  readonly resolveSubjects: ResolveSubjects
  readonly partitions: Partitions
  readonly rateMaxAgeSeconds: number
}

export function createDoor({ charge, resolveSubjects, partitions, rateMaxAgeSeconds }: DoorDeps) {
  /** Inside the caller's transaction, after `prepare` for the same tickets. */
  async function admit(db: Db, arrivals: readonly Arrival[], at: Date): Promise<Admitted> {
    const subjects = new Map(arrivals.map(({ ticket, subject }) => [subjectKey(ticket), subject]))
    const { candidates } = sortBatch(arrivals.map(({ ticket, digest }, index) =>
      ({ index, examined: { kind: 'ticket', digest, ticket } })), subjects)
    const { fresh, repeats, conflicts } = await enter(db, candidates)
    const entering = fresh.map(({ index }) => arrivals[index]).filter((one) => one !== undefined)
    const exhausted = entering.length === 0 ? [] : await book(db, entering, at)
    return { fresh: fresh.map(({ index }) => index), repeats, conflicts, exhausted }
  }

  async function book(db: Db, arrivals: readonly Arrival[], at: Date): Promise<UserId[]> {
    const prices = await pricesOf(db, arrivals)
    const turns = new Set<string>()
    const rows = arrivals.map(({ ticket, subject }, i): store.NewTicket => {
      const turn = `${subject.userId} ${ticket.sequenceNumber} ${ticket.sessionId}`
      const replayed = turns.has(turn)
      turns.add(turn)
      return { ticket, subject, replayed, price: prices[i] ?? null }
    })
    const id = uuidV7(at.getTime())
    await store.insertTickets(db, rows, { chargeId: id, at })
    const charges = rows.flatMap(({ ticket, subject, price }) => {
      const { eventId, pipeline, modelId, signedAtMs } = ticket
      return price === null ? [] : [{ ...subject, eventId, pipeline, modelId, signedAt: new Date(signedAtMs), cost: price.cost }]
    })
    return charges.length === 0 ? [] : charge(db, charges, { id, at })
  }

  // What has a price keeps it; its rate is recorded here if it is not yet.
  async function pricesOf(db: Db, arrivals: readonly Arrival[]): Promise<store.NewTicket['price'][]> {
    const found = await ratesAt(db, arrivals.map(({ ticket }) => ticket.signedAt), rateMaxAgeSeconds)
    const kept = await ensureRates(db, arrivals.flatMap(({ price }) => price?.rate ?? []))
    return arrivals.map(({ ticket, price }, i) => {
      if (price) return { rateId: kept(price.rate), cost: price.cost }
      const rate = found[i]
      return rate ? { rateId: rate.id, cost: priceOf(ticket.fee, rate.usdAttosPerEth) } : null
    })
  }

  /** Whose the tickets are, users of known apps provisioned when new, by auth id; and months for them to go to. */
  async function prepare(tickets: readonly SignedTicket[]): Promise<ReadonlyMap<string, Subject>> {
    await partitions.ensure(tickets.map((ticket) => ticket.signedAtMs))
    return resolveSubjects([...new Map(tickets.map((ticket) => [subjectKey(ticket), ticket])).values()])
  }

  return { admit, prepare }
}

export type Door = ReturnType<typeof createDoor>

/** What the database refuses, for the tickets themselves and not for its own state, is CONFLICT. */
export async function refusingPoison<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof DomainError || !isPoison(error) || !(error instanceof Error)) throw error
    throw new DomainError('CONFLICT', `the database refuses it: ${error.message.slice(0, 200)}`, { cause: error })
  }
}

/** Enters the ids. An id that was there stands for what it stood for; the first of equal ones stands for all. */
async function enter(db: Db, candidates: readonly Candidate[]) {
  const firsts = new Map<string, Candidate>()
  for (const candidate of candidates) {
    if (!firsts.has(candidate.envelope.key)) firsts.set(candidate.envelope.key, candidate)
  }
  const old = firsts.size === 0 ? new Set<string>() : await store.insertEnvelopes(db, [...firsts.values()].map(({ envelope }) => envelope))
  const known = await store.digestsOf(db, [...old])
  const fresh: Candidate[] = []
  const repeats: number[] = []
  const conflicts: number[] = []
  for (const candidate of candidates) {
    const { index, envelope: { key, digest } } = candidate
    const first = firsts.get(key)
    if (first === candidate && !old.has(key)) fresh.push(candidate)
    else if ((old.has(key) ? known.get(key) : first?.envelope.digest) === digest) repeats.push(index)
    else conflicts.push(index)
  }
  return { fresh, repeats, conflicts }
}
