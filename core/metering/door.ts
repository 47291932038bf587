import { createRowBuffer } from '../lib/copy-sql.ts'
import { priceOf } from '../lib/money.ts'
import type { Db } from '../lib/sql.ts'
import type { UserId } from '../ids.ts'
import type { EmitPriced } from './backend/emit.ts'
import { createBatch, halfDigest } from './batch.ts'
import { book, bookable } from './booking.ts'
import { type Known, createEnvelopes } from './envelopes.ts'
import { ratesAt } from './rate-store.ts'
import type { Fresh, Priced } from './sums.ts'
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
  readonly price?: Priced | null
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
  readonly emit?: EmitPriced | undefined
  readonly rateMaxAgeSeconds: number
  readonly at: Date
}

/** Inside the caller's transaction. The months of the tickets must be there. */
export async function admit(db: Db, arrivals: readonly Arrival[], admission: Admission): Promise<Admitted> {
  const rows = createRowBuffer()
  const sorting = createBatch(rows, admission.at)
  arrivals.forEach(({ ticket, digest }, index) => sorting.addTicket(index, ticket, halfDigest(digest)))
  const known = sorting.read().entries.flatMap((entry): Known[] => {
    const arrival = arrivals[entry.index]
    return arrival ? [{ entry, subject: arrival.subject }] : []
  })
  const out = createRowBuffer()
  const { fresh, repeats, disputed } = await createEnvelopes().enter(db, { known, out, meanwhile: () => {} })
  const given = { firstParts: rows.slice(0, rows.end()), out, ...admission }
  const priced = await price(db, { fresh, arrivals, rateMaxAgeSeconds: admission.rateMaxAgeSeconds })
  const exhausted = fresh.length === 0 ? [] : (await book(db, bookable(priced, given), given)).exhausted
  return { fresh: fresh.map(({ entry }) => entry.index), repeats, conflicts: disputed, exhausted }
}

interface Pricing extends Pick<Admission, 'rateMaxAgeSeconds'> {
  readonly fresh: readonly Known[]
  readonly arrivals: readonly Arrival[]
}

async function price(db: Db, { fresh, arrivals, rateMaxAgeSeconds }: Pricing): Promise<Fresh[]> {
  const rates = await ratesAt(db, fresh.map(({ entry }) => entry.signedAtMicros), rateMaxAgeSeconds)
  return fresh.map(({ entry, subject }, i) => {
    const rate = rates[i]
    const found = rate ? { rateId: rate.id, cost: priceOf(entry.fee, rate.usdAttosPerEth) } : null
    const fixed = arrivals[entry.index]?.price
    return { entry, subject, price: fixed === undefined ? found : fixed }
  })
}
