import { setImmediate as nextTurn } from 'node:timers/promises'
import { type RowBuffer, createRowBuffer } from '../../lib/copy-sql.ts'
import { getOrInsert } from '../../lib/maps.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { UserId } from '../../platform/ids.ts'
import type { EmitPriced } from '../backend/emit.ts'
import { type Batch, type Payer, attribute } from '../batch/batch.ts'
import {
  type Bookable,
  type Booked,
  type Fresh,
  type Given,
  type Irregular,
  book,
  bookable,
  regular,
} from './write-plan.ts'
import { type Columns, feeOf, indexOf, microsOf, msOf, sessionOf } from '../batch/columns.ts'
import { type Entered, type Proposal, createEnvelopes, propose } from '../batch/deduplicate.ts'
import type { Partitions } from './partitions.ts'
import { type Taken, count, countOf, takePositions } from './offsets.ts'
import {
  countReasons,
  quarantine,
  sameIdOtherBytes,
  ticketProblem,
  unknownClient,
} from '../quarantine/intake.ts'
import { ratesAt } from '../rates/store.ts'
import type { Sorted, Sorting } from '../batch/parse-pool.ts'
import { createPrices } from '../batch/prices.ts'
import { copyTickets } from './store.ts'
import type {
  Charge,
  Counts,
  Outcome,
  Priced,
  QuarantineReason,
  ResolveSubjects,
  StreamRecord,
} from '../types.ts'

export const maxBatch = 30_000

export interface IngestDeps {
  readonly pool: Pool
  readonly now: Now
  readonly charge: Charge
  /** Sends priced tickets on, where they are to be sent. */
  readonly emit?: EmitPriced | undefined
  readonly sorting: Pick<Sorting, 'sort'>
  readonly resolveSubjects: ResolveSubjects
  readonly partitions: Partitions
  readonly rateMaxAgeSeconds: number
}

/** What became of a batch. Records of a stream that were taken before are in no counter: they were counted then. */
export interface Ingested {
  readonly counts: Counts
  readonly quarantined: ReadonlyMap<QuarantineReason, number>
  readonly unpriced: number
  readonly exhausted: readonly UserId[]
  readonly irregular: Irregular
}

/** A batch of at most `maxBatch` records of one source, sorted and attributed. To be committed once. */
export interface Prepared extends Sorted {
  readonly records: readonly StreamRecord[]
  readonly at: Date
  /** What its rows are written to. */
  readonly out: RowBuffer
  readonly draft: Draft
}

/** A transaction that has the tickets of a batch in it and waits for the batch before to be committed. */
export interface Begun {
  readonly prepared: Prepared
  /** Settles when it waits. */
  readonly waiting: Promise<void>
  /** Writes the rest. Rejects, nothing written, also when the batch must be written in one go after all. */
  readonly finish: () => Promise<Ingested>
  readonly abandon: () => Promise<void>
}

/** All that is written of a batch if, as nearly always, each of its tickets is new and of a known user. */
interface Draft {
  readonly proposal: Proposal
  /** Records of clients that are nobody's. */
  readonly nobodys: readonly number[]
  readonly booked: Bookable
}

interface Done extends Booked {
  readonly taken: Taken
  readonly nobodys: readonly number[]
  readonly entered: Entered
  readonly unpriced: number
}

const keptBuffers = 3
const dayMs = 86_400_000

/** Turns records into tickets, charges and counters in one transaction: all of a batch or, when it throws, nothing. */
export function createIngest(deps: IngestDeps) {
  const { pool, now, charge, emit, sorting, resolveSubjects, partitions, rateMaxAgeSeconds } = deps
  const envelopes = createEnvelopes()
  const idle: RowBuffer[] = []

  /** Everything that needs no transaction, so that the next batch is prepared while one is being written. */
  async function prepare(records: readonly StreamRecord[]): Promise<Prepared> {
    const at = now()
    const sorted = await sorting.sort(records, at)
    await attribute(sorted.batch.payers, resolveSubjects)
    const { tickets } = sorted.batch
    await partitions.ensure(daysOf(tickets))
    const out = idle.pop() ?? createRowBuffer()
    const every = Uint32Array.from({ length: tickets.count }, (_, place) => place)
    const draft = await draftOf(
      pool,
      { batch: sorted.batch, places: every },
      { firstParts: sorted.rows, out, at },
    )
    return { ...sorted, records, at, out, draft }
  }

  /** Writes a prepared batch. */
  async function commit(prepared: Prepared): Promise<Ingested> {
    const ingested = await tx(pool, async (db) =>
      write(db, prepared, await takePositions(db, prepared.records)),
    )
    letGo(prepared)
    return ingested
  }

  // Not of a batch that failed: a connection that breaks may still hold what it was to send.
  function letGo({ out, release }: Prepared): void {
    out.clear()
    if (idle.length < keptBuffers) idle.push(out)
    release()
  }

  /**
   * Begins to write a prepared batch before its turn, with what nothing else waits for: the ids and the tickets, which
   * are most of it. Null when they depend on more than on the batch itself.
   */
  function begin(prepared: Prepared): Begun | null {
    const {
      records,
      rows: firstParts,
      out,
      at,
      draft: { proposal, nobodys, booked },
    } = prepared
    if (booked.unpriced > 0 || !envelopes.areLikelyNew(proposal)) return null
    const turn = Promise.withResolvers<boolean>()
    const waiting = Promise.withResolvers<void>()
    const written = tx(pool, async (db) => {
      await envelopes.enterNew(db, proposal)
      await copyTickets(db, booked.rows)
      waiting.resolve()
      if (!(await turn.promise)) throw new Error('abandoned')
      const taken = await takePositions(db, records)
      if (taken.includes(true)) throw new Error('some records were taken before')
      const entered = { fresh: proposal.places, repeats: [], disputed: [] }
      const done = await book(db, booked, { firstParts, out, at, charge, emit, copied: true })
      return settle(db, prepared, { taken, nobodys, entered, ...done, unpriced: 0 })
    })
    written.catch(waiting.reject)
    waiting.promise.catch(() => {})
    async function finish(): Promise<Ingested> {
      turn.resolve(true)
      const ingested = await written
      letGo(prepared)
      return ingested
    }
    async function abandon(): Promise<void> {
      turn.resolve(false)
      await written.catch(() => {})
    }
    return { prepared, waiting: waiting.promise, finish, abandon }
  }

  async function write(db: Db, prepared: Prepared, taken: Taken): Promise<Ingested> {
    const { batch, rows: firstParts, out, at } = prepared
    const given = { firstParts, out, at, charge, emit }
    // A rate that was missing may be known by now.
    const holds = !taken.includes(true) && prepared.draft.booked.unpriced === 0
    const {
      proposal,
      nobodys,
      booked: guess,
    } = holds
      ? prepared.draft
      : await draftOf(db, { batch, places: newOf(batch.tickets, taken) }, given)
    const entered = await envelopes.enter(db, proposal, out)
    const { fresh } = entered
    const booked =
      fresh.length === proposal.places.length ? guess : await bookable(among(guess, fresh), given)
    const done =
      fresh.length === 0 ? { exhausted: [], irregular: regular } : await book(db, booked, given)
    return settle(db, prepared, { taken, nobodys, entered, ...done, unpriced: booked.unpriced })
  }

  /** Puts what became no ticket where it belongs, and moves the stream on. */
  async function settle(db: Db, { records, batch, at }: Prepared, done: Done): Promise<Ingested> {
    const {
      taken,
      nobodys,
      entered: { fresh, repeats, disputed },
      ...told
    } = done
    const problems = [
      ...batch.problems.filter(({ index }) => !taken[index]),
      ...nobodys.map((index) => ticketProblem({ records, index, at }, unknownClient)),
      ...disputed.map((index) => ticketProblem({ records, index, at }, sameIdOtherBytes)),
    ]
    if (problems.length > 0) await quarantine(db, { records, problems, at })
    const outcomes = outcomesOf({
      ticket: Array.from(fresh, (place) => indexOf(batch.tickets, place)),
      duplicate: repeats,
      ignored: batch.ignored.filter((index) => !taken[index]),
      quarantined: problems.map(({ index }) => index),
    })
    await count(db, { records, outcomes })
    return { ...told, quarantined: countReasons(problems), counts: countOf(outcomes) }
  }

  // In small steps: while one batch is drafted, the database waits for each next statement of the one before.
  async function draftOf(
    db: Db,
    { batch, places }: Pick<Fresh, 'batch' | 'places'>,
    given: Given,
  ): Promise<Draft> {
    const { known, nobodys } = byUser(batch, places)
    await nextTurn()
    const prices = await price(db, batch.tickets, known)
    await nextTurn()
    const proposal = propose(batch.tickets, known, given.out)
    await nextTurn()
    return { proposal, nobodys, booked: await bookable({ batch, places: known, prices }, given) }
  }

  async function price(db: Db, tickets: Columns, places: Uint32Array): Promise<(Priced | null)[]> {
    const rates = await ratesAt(
      db,
      Array.from(places, (place) => microsOf(tickets, place)),
      rateMaxAgeSeconds,
    )
    const priceOf = createPrices()
    return rates.map((rate, i) => (rate ? priceOf(rate, feeOf(tickets, places[i] ?? 0)) : null))
  }

  return { prepare, begin, commit }
}

export type Ingest = ReturnType<typeof createIngest>

/** A time in milliseconds of each day that tickets are of; of those that follow each other one. */
function daysOf(tickets: Columns): number[] {
  const days: number[] = []
  for (let place = 0; place < tickets.count; place++) {
    const day = Math.floor(msOf(tickets, place) / dayMs) * dayMs
    if (day !== days.at(-1)) days.push(day)
  }
  return days
}

const newOf = (tickets: Columns, taken: Taken): Uint32Array =>
  Uint32Array.from({ length: tickets.count }, (_, place) => place).filter(
    (place) => !taken[indexOf(tickets, place)],
  )

/** Tickets of known users, those of each together and in the order of the tickets' key: Postgres takes them faster so. */
function byUser(
  { tickets, sessions }: Batch,
  places: Uint32Array,
): { known: Uint32Array; nobodys: number[] } {
  const nobodys: number[] = []
  const groups = new Map<Payer, number[]>()
  for (const place of places) {
    const payer = sessions[sessionOf(tickets, place)]?.payer
    if (payer?.subject) getOrInsert(groups, payer, () => []).push(place)
    else nobodys.push(indexOf(tickets, place))
  }
  const inOrder = [...groups]
    .map(([{ subject }, group]) => ({ key: `${subject?.appId}${subject?.userId}`, group }))
    .sort((a, b) => (a.key < b.key ? -1 : 1))
  return { known: Uint32Array.from(inOrder.flatMap(({ group }) => group)), nobodys }
}

/** Of the places that were drafted those in `fresh`, with their prices. */
function among({ batch, places, prices }: Fresh, fresh: Uint32Array): Fresh {
  const wanted = new Set(fresh)
  return {
    batch,
    places: places.filter((place) => wanted.has(place)),
    prices: prices.filter((_, i) => wanted.has(places[i] ?? -1)),
  }
}

/** What became of each record, by its index; nothing of one that was taken before. */
function outcomesOf(indexes: Readonly<Record<Outcome, readonly number[]>>): Outcome[] {
  const outcomes: Outcome[] = []
  const settle = (outcome: Outcome): void => {
    for (const index of indexes[outcome]) outcomes[index] = outcome
  }
  settle('ticket')
  settle('duplicate')
  settle('ignored')
  settle('quarantined')
  return outcomes
}
