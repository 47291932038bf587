import { type RowBuffer, createRowBuffer } from '../lib/copy-sql.ts'
import { priceOf } from '../lib/money.ts'
import { type Db, type Pool, tx } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import type { UserId } from '../ids.ts'
import type { EmitPriced } from './backend/emit.ts'
import { type Entry, type Payer, attribute } from './batch.ts'
import { type Bookable, type Given, type Irregular, book, bookable, regular } from './booking.ts'
import { type Known, type Proposal, createEnvelopes, propose } from './envelopes.ts'
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
  /** What its rows are written to. */
  readonly out: RowBuffer
  readonly draft: Draft
}

/** All that is written of a batch if, as nearly always, each of its tickets is new and of a known user. */
interface Draft {
  readonly proposal: Proposal
  /** Records of clients that are nobody's. */
  readonly nobodys: readonly number[]
  readonly booked: Bookable
}

const keptBuffers = 3

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
    const out = idle.pop() ?? createRowBuffer()
    const draft = await draftOf(pool, sorted.batch.entries, { firstParts: sorted.rows, out, at })
    return { ...sorted, records, at, out, draft }
  }

  /** Writes a prepared batch. */
  async function commit(prepared: Prepared): Promise<Ingested> {
    const ingested = await tx(pool, async (db) => {
      const taken = await takePositions(db, prepared.records)
      const { outcomes, ...written } = await write(db, prepared, taken)
      await count(db, { records: prepared.records, outcomes })
      return { ...written, counts: countOf(outcomes) }
    })
    // Not when it fails: a connection that breaks may still hold what it was to send.
    prepared.out.clear()
    if (idle.length < keptBuffers) idle.push(prepared.out)
    prepared.release()
    return ingested
  }

  async function write(db: Db, prepared: Prepared, taken: Taken) {
    const { records, batch, rows: firstParts, out, at } = prepared
    const isNew = ({ index }: { readonly index: number }): boolean => !taken[index]
    const given = { firstParts, out, at, charge, emit }
    // A rate that was missing may be known by now.
    const holds = !taken.includes(true) && unpricedOf(prepared.draft.booked) === 0
    const { proposal, nobodys, booked: guess } = holds ? prepared.draft : await draftOf(db, batch.entries.filter(isNew), given)
    const { fresh, repeats, disputed } = await envelopes.enter(db, proposal, out)
    const booked = fresh.length === proposal.known.length ? guess : await bookable(among(guess.fresh, fresh), given)
    const done = fresh.length === 0 ? { exhausted: [], irregular: regular } : await book(db, booked, given)
    const problems = [
      ...batch.problems.filter(isNew),
      ...nobodys.map((index) => ticketProblem({ records, index, at }, unknownClient)),
      ...disputed.map((index) => ticketProblem({ records, index, at }, sameIdOtherBytes)),
    ]
    if (problems.length > 0) await quarantine(db, { records, problems, at })
    const outcomes = outcomesOf({
      ticket: fresh.map(({ entry }) => entry.index), duplicate: repeats,
      ignored: batch.ignored.filter((index) => !taken[index]), quarantined: problems.map(({ index }) => index),
    })
    return { outcomes, ...done, quarantined: countReasons(problems), unpriced: unpricedOf(booked) }
  }

  async function draftOf(db: Db, entries: readonly Entry[], given: Given): Promise<Draft> {
    const { known, nobodys } = byUser(entries)
    const priced = await price(db, known)
    const proposal = propose(known, given.out)
    return { proposal, nobodys, booked: await bookable(priced, given) }
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

/** Tickets of known users, those of each together and in the order of the tickets' key: Postgres takes them faster so. */
function byUser(entries: readonly Entry[]): { known: Known[]; nobodys: number[] } {
  const nobodys: number[] = []
  const groups = new Map<Payer, Known[]>()
  for (const entry of entries) {
    const { payer } = entry.session
    const group = groups.get(payer)
    if (payer.subject === null) nobodys.push(entry.index)
    else if (group) group.push({ entry, subject: payer.subject })
    else groups.set(payer, [{ entry, subject: payer.subject }])
  }
  const inOrder = [...groups].map(([{ subject }, group]) => ({ key: `${subject?.appId}${subject?.userId}`, group }))
    .sort((a, b) => (a.key < b.key ? -1 : 1))
  return { known: inOrder.flatMap(({ group }) => group), nobodys }
}

const unpricedOf = ({ fresh, charges }: Bookable): number => fresh.length - charges.length

function among(priced: readonly Fresh[], known: readonly Known[]): Fresh[] {
  const wanted = new Set(known.map(({ entry }) => entry))
  return priced.filter(({ entry }) => wanted.has(entry))
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
