import { setImmediate as nextTurn } from 'node:timers/promises'
import { uuidV7 } from '../lib/crypto.ts'
import { priceOf } from '../lib/money.ts'
import { type Db, type Pool, tx } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import type { UserId } from '../ids.ts'
import {
  type BatchProblem, type Candidate, type SortedBatch, attribute, examine, sameIdOtherBytes, sortBatch, ticketProblem,
} from './batch.ts'
import { maxEventBytes } from './envelope.ts'
import type { Partitions } from './partitions.ts'
import { type Indexed, count, countOf, skipTaken } from './positions.ts'
import { ratesAt } from './rate-store.ts'
import * as store from './store.ts'
import type { Charge, Counts, Outcome, QuarantineReason, ResolveSubjects, StreamRecord, Subject, TicketCharge } from './types.ts'

export const maxBatch = 5_000

export interface IngestDeps {
  readonly pool: Pool
  readonly now: Now
  readonly charge: Charge
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
}

/** A batch of at most `maxBatch` records of one source, parsed and attributed. */
export interface Prepared {
  readonly records: readonly StreamRecord[]
  readonly indexed: readonly Indexed[]
  readonly subjects: ReadonlyMap<string, Subject>
  readonly at: Date
}

const breath = 250

/** Turns records into tickets, charges and counters in one transaction: all of a batch or, when it throws, nothing. */
export function createIngest(deps: IngestDeps) {
  const { pool, now, charge, resolveSubjects, partitions, rateMaxAgeSeconds } = deps

  /** Everything that needs no transaction, so that the next batch is prepared while one is being written. */
  async function prepare(records: readonly StreamRecord[]): Promise<Prepared> {
    const at = now()
    const indexed: Indexed[] = []
    for (const [index, { bytes }] of records.entries()) {
      indexed.push({ index, examined: examine(bytes, at) })
      // The process has others to answer, too.
      if (index % breath === breath - 1) await nextTurn()
    }
    const tickets = indexed.flatMap(({ examined }) => (examined.kind === 'ticket' ? [examined.ticket] : []))
    const subjects = await attribute(tickets, resolveSubjects)
    await partitions.ensure(tickets.map((ticket) => ticket.signedAtMs))
    return { records, indexed, subjects, at }
  }

  /** Writes a prepared batch. */
  async function commit({ records, indexed, subjects, at }: Prepared): Promise<Ingested> {
    return tx(pool, async (db) => {
      const fresh = await skipTaken(db, { records, indexed })
      const written = await write(db, { records, batch: sortBatch(fresh, subjects), at })
      await count(db, { records, fresh, outcomes: written.outcomes })
      return { ...written, counts: countOf(written.outcomes.values()) }
    })
  }

  interface Writing { readonly records: readonly StreamRecord[]; readonly batch: SortedBatch; readonly at: Date }

  async function write(db: Db, { records, batch, at }: Writing) {
    const entered = await enter(db, batch.candidates)
    const priced = await price(db, entered.fresh)
    const charged = await book(db, priced, at)
    const problems = [...batch.problems, ...entered.problems]
    if (problems.length > 0) await quarantine(db, { records, problems, at })
    const outcomes = new Map<number, Outcome>()
    for (const { index } of entered.fresh) outcomes.set(index, 'ticket')
    for (const index of entered.repeats) outcomes.set(index, 'duplicate')
    for (const index of batch.ignored) outcomes.set(index, 'ignored')
    for (const { index } of problems) outcomes.set(index, 'quarantined')
    return {
      outcomes, exhausted: charged, quarantined: countReasons(problems),
      unpriced: priced.filter((row) => row.price === null).length,
    }
  }

  async function price(db: Db, candidates: readonly Candidate[]): Promise<store.NewTicket[]> {
    if (candidates.length === 0) return []
    const rates = await ratesAt(db, candidates.map(({ ticket }) => ticket.signedAt), rateMaxAgeSeconds)
    const seen = new Set<string>()
    return candidates.map(({ ticket, subject }, i) => {
      const rate = rates[i]
      const turn = `${subject.appId} ${ticket.sequenceNumber} ${ticket.sessionId}`
      const replayed = seen.has(turn)
      seen.add(turn)
      return { ticket, subject, replayed, price: rate ? { rateId: rate.id, cost: priceOf(ticket.fee, rate.usdAttosPerEth) } : null }
    })
  }

  async function book(db: Db, rows: readonly store.NewTicket[], at: Date): Promise<UserId[]> {
    if (rows.length === 0) return []
    const chargeId = uuidV7(at.getTime())
    await store.insertTickets(db, rows, { chargeId, at })
    const charges = rows.flatMap(chargeOf)
    return charges.length === 0 ? [] : charge(db, charges, { id: chargeId, at })
  }

  return { prepare, commit }
}

export type Ingest = ReturnType<typeof createIngest>

function chargeOf({ ticket, subject, price }: store.NewTicket): TicketCharge[] {
  if (price === null) return []
  const { eventId, pipeline, modelId } = ticket
  return [{ ...subject, eventId, pipeline, modelId, signedAt: new Date(ticket.signedAtMs), cost: price.cost }]
}

/** Enters the ids; the first of equal ones stands. What repeats it byte by byte is a repeat, all else a problem. */
async function enter(db: Db, candidates: readonly Candidate[]) {
  const firsts = new Map<string, Candidate>()
  for (const candidate of candidates) {
    if (!firsts.has(candidate.envelope.key)) firsts.set(candidate.envelope.key, candidate)
  }
  const old = await enterAll(db, firsts)
  const known = await store.digestsOf(db, [...old])
  const fresh: Candidate[] = []
  const problems: BatchProblem[] = []
  const repeats: number[] = []
  for (const candidate of candidates) {
    const { index, digest, ticket, envelope } = candidate
    const first = firsts.get(envelope.key)
    const standing = old.has(envelope.key) ? known.get(envelope.key) : first?.envelope.digest
    if (first === candidate && !old.has(envelope.key)) fresh.push(candidate)
    else if (standing === envelope.digest) repeats.push(index)
    else problems.push({ index, digest, problem: ticketProblem(ticket, sameIdOtherBytes) })
  }
  return { fresh, problems, repeats }
}

const enterAll = async (db: Db, firsts: ReadonlyMap<string, Candidate>): Promise<ReadonlySet<string>> =>
  firsts.size === 0 ? new Set() : store.insertEnvelopes(db, [...firsts.values()].map(({ envelope }) => envelope))

interface Quarantining {
  readonly records: readonly StreamRecord[]
  readonly problems: readonly BatchProblem[]
  readonly at: Date
}

async function quarantine(db: Db, { records, problems, at }: Quarantining): Promise<void> {
  const rows = problems.flatMap(({ index, digest, problem }): store.Quarantined[] => {
    const record = records[index]
    if (!record) return []
    const { bytes, source, partition, offset } = record
    return [{
      ...problem, id: uuidV7(at.getTime()), digest, source, partition, offset,
      bytes: bytes.subarray(0, maxEventBytes), byteCount: bytes.length,
    }]
  })
  await store.insertQuarantined(db, rows, at)
}

/** Puts one record, refused by the database as part of any batch, into quarantine in its own transaction. */
export async function quarantineRecord(
  db: Db, { record, digest, detail, at }: { record: StreamRecord; digest: string; detail: string; at: Date },
): Promise<Ingested> {
  const records = [record]
  const examined = examine(record.bytes, at)
  const fresh = await skipTaken(db, { records, indexed: [{ index: 0, examined }] })
  if (fresh.length === 0) return { counts: countOf([]), quarantined: new Map(), unpriced: 0, exhausted: [] }
  const reason = 'rejected_by_database'
  const problem = examined.kind === 'ticket' ? ticketProblem(examined.ticket, { reason, detail })
    : { reason, detail, eventId: null, authId: null, fee: null } as const
  const problems = [{ index: 0, digest, problem }]
  await quarantine(db, { records, problems, at })
  await count(db, { records, fresh, outcomes: new Map([[0, 'quarantined']]) })
  return { counts: countOf(['quarantined']), quarantined: countReasons(problems), unpriced: 0, exhausted: [] }
}

function countReasons(problems: readonly BatchProblem[]): Map<QuarantineReason, number> {
  const counts = new Map<QuarantineReason, number>()
  for (const { problem } of problems) counts.set(problem.reason, (counts.get(problem.reason) ?? 0) + 1)
  return counts
}
