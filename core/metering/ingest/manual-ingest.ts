import { DomainError } from '../../../proto/errors.ts'
import { authId, type UserId } from '../../platform/ids.ts'
import { createRowBuffer } from '../../lib/copy-sql.ts'
import { type UsdAttos, priceOf } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { EmitPriced } from '../backend/emit.ts'
import { createBatch } from '../batch/batch.ts'
import { type Fresh, book, bookable } from './write-plan.ts'
import { feeOf, microsOf } from '../batch/columns.ts'
import { halfDigest } from '../events/event-id.ts'
import { createEnvelopes, propose } from '../batch/deduplicate.ts'
import { isPoison } from './retry.ts'
import type { Partitions } from './partitions.ts'
import { type ObservedRate, ensureRates, ratesAt } from '../rates/store.ts'
import type { Charge, Priced, ResolveSubjects, SignedTicket, Subject } from '../types.ts'

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

export function createDoor({
  charge,
  emit,
  resolveSubjects,
  partitions,
  rateMaxAgeSeconds,
}: DoorDeps) {
  const envelopes = createEnvelopes()

  /** Inside the caller's transaction, after `prepare` for the same tickets. */
  async function admit(db: Db, arrivals: readonly Arrival[], at: Date): Promise<Admitted> {
    const [rows, out] = [createRowBuffer(), createRowBuffer()]
    const sorting = createBatch(rows, at, arrivals.length)
    arrivals.forEach(({ ticket, digest }, index) =>
      sorting.addTicket(index, ticket, halfDigest(digest)),
    )
    const batch = sorting.read()
    for (const { ticket, subject } of arrivals) {
      const payer = batch.payers.get(authId(ticket.clientId, ticket.externalUserId))
      if (payer) payer.subject = subject
    }
    const every = Uint32Array.from(arrivals.keys())
    const { fresh, repeats, disputed } = await envelopes.enter(
      db,
      propose(batch.tickets, every, out),
      out,
    )
    const given = { firstParts: rows.slice(0, rows.end()), out, at, charge, emit }
    const prices = await price(db, { batch, places: fresh }, arrivals)
    const { exhausted } =
      fresh.length === 0
        ? { exhausted: [] }
        : await book(db, await bookable({ batch, places: fresh, prices }, given), given)
    return { fresh: [...fresh], repeats, conflicts: disputed, exhausted }
  }

  // What has a price keeps it; its rate is recorded here if it is not yet. A ticket's place is that of its arrival.
  async function price(
    db: Db,
    { batch, places }: Pick<Fresh, 'batch' | 'places'>,
    arrivals: readonly Arrival[],
  ): Promise<(Priced | null)[]> {
    const found = await ratesAt(
      db,
      Array.from(places, (place) => microsOf(batch.tickets, place)),
      rateMaxAgeSeconds,
    )
    const kept = await ensureRates(
      db,
      Array.from(places).flatMap((place) => arrivals[place]?.price?.rate ?? []),
    )
    return Array.from(places, (place, i) => {
      const fixed = arrivals[place]?.price
      if (fixed) return { rateId: kept(fixed.rate), cost: fixed.cost }
      const rate = found[i]
      return rate
        ? { rateId: rate.id, cost: priceOf(feeOf(batch.tickets, place), rate.usdAttosPerEth) }
        : null
    })
  }

  /** Whose the tickets are, users of known apps provisioned when new, by auth id; and months for them to go to. */
  async function prepare(tickets: readonly SignedTicket[]): Promise<ReadonlyMap<string, Subject>> {
    await partitions.ensure(tickets.map((ticket) => ticket.signedAtMs))
    const payers = new Map(
      tickets.map((ticket) => [authId(ticket.clientId, ticket.externalUserId), ticket]),
    )
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
    throw new DomainError('CONFLICT', `the database refuses it: ${error.message.slice(0, 200)}`, {
      cause: error,
    })
  }
}
