import { uuidV7 } from '../lib/crypto.ts'
import { priceOf } from '../lib/money.ts'
import type { Db } from '../lib/sql.ts'
import type { UserId } from '../ids.ts'
import { type Candidate, sortBatch, subjectKey } from './batch.ts'
import { ratesAt } from './rate-store.ts'
import * as store from './store.ts'
import type { Charge, SignedTicket, Subject } from './types.ts'

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
  readonly price?: store.NewTicket['price']
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

export interface Admission {
  readonly charge: Charge
  readonly rateMaxAgeSeconds: number
  readonly at: Date
}

/** Inside the caller's transaction. The months of the tickets must be there. */
export async function admit(db: Db, arrivals: readonly Arrival[], admission: Admission): Promise<Admitted> {
  const subjects = new Map(arrivals.map(({ ticket, subject }) => [subjectKey(ticket), subject]))
  const { candidates } = sortBatch(arrivals.map(({ ticket, digest }, index) =>
    ({ index, examined: { kind: 'ticket', digest, ticket } })), subjects)
  const { fresh, repeats, conflicts } = await enter(db, candidates)
  const exhausted = fresh.length === 0 ? [] : await book(db, fresh.map(({ index }) => arrivals[index]).filter((one) => one !== undefined), admission)
  return { fresh: fresh.map(({ index }) => index), repeats, conflicts, exhausted }
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

async function book(db: Db, arrivals: readonly Arrival[], { charge, rateMaxAgeSeconds, at }: Admission): Promise<UserId[]> {
  const rates = await ratesAt(db, arrivals.map(({ ticket }) => ticket.signedAt), rateMaxAgeSeconds)
  const turns = new Set<string>()
  const rows = arrivals.map(({ ticket, subject, price }, i): store.NewTicket => {
    const rate = rates[i]
    const found = rate ? { rateId: rate.id, cost: priceOf(ticket.fee, rate.usdAttosPerEth) } : null
    const turn = `${subject.userId} ${ticket.sequenceNumber} ${ticket.sessionId}`
    const replayed = turns.has(turn)
    turns.add(turn)
    return { ticket, subject, replayed, price: price === undefined ? found : price }
  })
  const id = uuidV7(at.getTime())
  await store.insertTickets(db, rows, { chargeId: id, at })
  const charges = rows.flatMap(({ ticket, subject, price }) => {
    const { eventId, pipeline, modelId, signedAtMs } = ticket
    return price === null ? [] : [{ ...subject, eventId, pipeline, modelId, signedAt: new Date(signedAtMs), cost: price.cost }]
  })
  return charges.length === 0 ? [] : charge(db, charges, { id, at })
}
