import { DomainError } from '../../proto/errors.ts'
import { authId, type UserId } from '../ids.ts'
import { createRowBuffer } from '../lib/copy-sql.ts'
import { type UsdAttos, priceOf } from '../lib/money.ts'
import type { Db } from '../lib/sql.ts'
import type { EmitPriced } from './backend/emit.ts'
import { createBatch, halfDigest } from './batch.ts'
import { book, bookable } from './booking.ts'
import { type Known, createEnvelopes, propose } from './envelopes.ts'
import { isPoison } from './intake.ts'
import type { Partitions } from './partitions.ts'
import { type ObservedRate, ensureRates, ratesAt } from './rate-store.ts'
import type { Fresh } from './sums.ts'
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
  readonly emit?: EmitPriced | undefined
  readonly resolveSubjects: ResolveSubjects
  readonly partitions: Partitions
  readonly rateMaxAgeSeconds: number
}

export function createDoor({ charge, emit, resolveSubjects, partitions, rateMaxAgeSeconds }: DoorDeps) {
  const envelopes = createEnvelopes()

  /** Inside the caller's transaction, after `prepare` for the same tickets. */
  async function admit(db: Db, arrivals: readonly Arrival[], at: Date): Promise<Admitted> {
    const [rows, out] = [createRowBuffer(), createRowBuffer()]
    const sorting = createBatch(rows, at)
    arrivals.forEach(({ ticket, digest }, index) => sorting.addTicket(index, ticket, halfDigest(digest)))
    const known = sorting.read().entries.flatMap((entry): Known[] => {
      const arrival = arrivals[entry.index]
      return arrival ? [{ entry, subject: arrival.subject }] : []
    })
    const { fresh, repeats, disputed } = await envelopes.enter(db, propose(known, out), out)
    const given = { firstParts: rows.slice(0, rows.end()), out, at, charge, emit }
    const priced = await price(db, fresh, arrivals)
    const { exhausted } = fresh.length === 0 ? { exhausted: [] } : await book(db, await bookable(priced, given), given)
    return { fresh: fresh.map(({ entry }) => entry.index), repeats, conflicts: disputed, exhausted }
  }

  // What has a price keeps it; its rate is recorded here if it is not yet.
  async function price(db: Db, fresh: readonly Known[], arrivals: readonly Arrival[]): Promise<Fresh[]> {
    const found = await ratesAt(db, fresh.map(({ entry }) => entry.signedAtMicros), rateMaxAgeSeconds)
    const kept = await ensureRates(db, fresh.flatMap(({ entry }) => arrivals[entry.index]?.price?.rate ?? []))
    return fresh.map(({ entry, subject }, i) => {
      const fixed = arrivals[entry.index]?.price
      if (fixed) return { entry, subject, price: { rateId: kept(fixed.rate), cost: fixed.cost } }
      const rate = found[i]
      return { entry, subject, price: rate ? { rateId: rate.id, cost: priceOf(entry.fee, rate.usdAttosPerEth) } : null }
    })
  }

  /** Whose the tickets are, users of known apps provisioned when new, by auth id; and months for them to go to. */
  async function prepare(tickets: readonly SignedTicket[]): Promise<ReadonlyMap<string, Subject>> {
    await partitions.ensure(tickets.map((ticket) => ticket.signedAtMs))
    const payers = new Map(tickets.map((ticket) => [authId(ticket.clientId, ticket.externalUserId), ticket]))
    return resolveSubjects([...payers.values()])
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
