import { type RowBuffer, createRowBuffer } from '../lib/copy-sql.ts'
import { priceOf } from '../lib/money.ts'
import { type Db, type Pool, tx } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import type { UserId } from '../ids.ts'
import type { EmitPriced } from './backend/emit.ts'
import { attribute } from './batch.ts'
import { type Bookable, type Given, type Irregular, book, bookable, regular } from './booking.ts'
import { type Known, createEnvelopes } from './envelopes.ts'
import type { Partitions } from './partitions.ts'
import { type Taken, count, countOf, takePositions } from './positions.ts'
import { countReasons, quarantine, sameIdOtherBytes, ticketProblem, unknownClient } from './quarantine-intake.ts'
import { ratesAt } from './rate-store.ts'
import type { Sorted, Sorting } from './sorting.ts'
import type { Fresh } from './sums.ts'
import type { Charge, Counts, Outcome, QuarantineReason, ResolveSubjects, StreamRecord } from './types.ts'

export const maxBatch = 10_000

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
}

const keptBuffers = 2

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
    await partitions.ensure(sorted.batch.entries.map((entry) => entry.signedAtMs))
    return { ...sorted, records, at }
  }

  /** Writes a prepared batch. */
  async function commit(prepared: Prepared): Promise<Ingested> {
    const out = idle.pop() ?? createRowBuffer()
    const ingested = await tx(pool, async (db) => {
      const taken = await takePositions(db, prepared.records)
      const { outcomes, ...written } = await write(db, prepared, { taken, out })
      await count(db, { records: prepared.records, outcomes })
      return { ...written, counts: countOf(outcomes) }
    })
    // Not when it fails: a connection that breaks may still hold what it was to send.
    out.clear()
    if (idle.length < keptBuffers) idle.push(out)
    prepared.release()
    return ingested
  }

  async function write(db: Db, { records, batch, rows: firstParts, at }: Prepared, { taken, out }: Writing) {
    const isNew = ({ index }: { readonly index: number }): boolean => !taken[index]
    const known: Known[] = []
    const nobodys: number[] = []
    for (const entry of batch.entries) {
      const { subject } = entry.session.payer
      if (!isNew(entry)) continue
      if (subject) known.push({ entry, subject })
      else nobodys.push(entry.index)
    }
    const given = { firstParts, out, at, charge, emit }
    const { booked, ...entered } = await enter(db, known, given)
    const done = booked.fresh.length === 0 ? { exhausted: [], irregular: regular } : await book(db, booked, given)
    const problems = [
      ...batch.problems.filter(isNew),
      ...nobodys.map((index) => ticketProblem({ records, index, at }, unknownClient)),
      ...entered.disputed.map((index) => ticketProblem({ records, index, at }, sameIdOtherBytes)),
    ]
    if (problems.length > 0) await quarantine(db, { records, problems, at })
    const outcomes = outcomesOf({
      ticket: booked.fresh.map(({ entry }) => entry.index), duplicate: entered.repeats,
      ignored: batch.ignored.filter((index) => !taken[index]), quarantined: problems.map(({ index }) => index),
    })
    const unpriced = booked.fresh.filter((ticket) => ticket.price === null).length
    return { outcomes, ...done, quarantined: countReasons(problems), unpriced }
  }

  /** Enters the ids of known users' tickets. Meanwhile all is worked out as if, as nearly always, every one were new. */
  async function enter(db: Db, known: readonly Known[], given: Given) {
    const priced = await price(db, known)
    let guess: Bookable | null = null
    const entered = await envelopes.enter(db, {
      known, out: given.out, meanwhile: () => { guess = bookable(priced, given) },
    })
    if (guess !== null && entered.fresh.length === known.length) return { ...entered, booked: guess }
    const fresh = new Set(entered.fresh.map(({ entry }) => entry))
    return { ...entered, booked: bookable(priced.filter(({ entry }) => fresh.has(entry)), given) }
  }

  async function price(db: Db, known: readonly Known[]): Promise<Fresh[]> {
    const rates = await ratesAt(db, known.map(({ entry }) => entry.signedAtMicros), rateMaxAgeSeconds)
    return known.map(({ entry, subject }, i) => {
      const rate = rates[i]
      return { entry, subject, price: rate ? { rateId: rate.id, cost: priceOf(entry.fee, rate.usdAttosPerEth) } : null }
    })
  }

  return { prepare, commit }
}

export type Ingest = ReturnType<typeof createIngest>

interface Writing { readonly taken: Taken; readonly out: RowBuffer }

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
