import { DomainError } from '../../../proto/errors.ts'
import { createRowBuffer } from '../../lib/copy-sql.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import { type UserId, authId } from '../../shared/ids.ts'
import { type Clocks, realTime } from '../../shared/clocks/clocks.ts'
import type { EmitPriced } from '../backend/emit.ts'
import { dateByClocks } from '../batch/clock.ts'
import { createDeduplicator, encodeEventIds } from './deduplicate.ts'
import { createBatchParser, digestOfHex, readFee, readSignerMicros } from '../batch/parsed-batch.ts'
import type { ResolveSubjects, Subject } from '../batch/subjects.ts'
import type { TicketPrice } from '../batch/ticket-row.ts'
import { type SignedTicket, noLimits } from '../events/parse.ts'
import { type HoldingRate, noRate } from '../rates/holding-rate.ts'
import type { RateLookup } from '../rates/lookup.ts'
import { type ObservedRate, ensureRates } from '../rates/store.ts'
import type { Charge } from './charges.ts'
import type { Partitions } from './partition-store.ts'
import type { Prices } from '../batch/tariff.ts'
import { networkSale, toPrices } from '../batch/tariff.ts'
import { type RatedTickets, type Rating, noPeriods } from '../rating/rating.ts'
import { isPoison } from '../quarantine/poison.ts'
import { type NewTickets, executePlan, planWrite } from './write-plan.ts'

/**
 * Ingests tickets supplied by an operator: events retried from quarantine, and imported tickets.
 * They are deduplicated, priced, charged and summed by the same rules and statements as stream
 * tickets.
 */
export interface ManualTicket {
  readonly ticket: SignedTicket
  readonly subject: Subject
  /** SHA-256 of the event's bytes in hexadecimal. Only the first 128 bits are used. */
  readonly digest: string
  /** A price that was fixed before; undefined to price the ticket now. */
  readonly price?: (Prices & { readonly rate: ObservedRate }) | undefined
}

/** Outcomes of the tickets, as positions in the request. */
export interface ManualIngestOutcome {
  readonly ingested: readonly number[]
  /** The same event was already ingested. */
  readonly duplicates: readonly number[]
  /** Another event has this id. */
  readonly conflicts: readonly number[]
  /** Users with no balance left. */
  readonly exhausted: readonly UserId[]
}

export interface ManualIngestDeps {
  readonly pool: Pool
  readonly charge: Charge
  readonly emit?: EmitPriced | undefined
  readonly resolveSubjects: ResolveSubjects
  readonly partitions: Partitions
  readonly findRates: RateLookup
  readonly holdingRate: HoldingRate
  readonly rating: Pick<Rating, 'rateLocked'>
  readonly clocks?: Clocks
}

export function createManualIngest({
  pool,
  charge,
  emit,
  resolveSubjects,
  partitions,
  findRates,
  holdingRate,
  rating,
  clocks = realTime,
}: ManualIngestDeps) {
  const deduplicator = createDeduplicator()

  /** Writes tickets in the caller's transaction. `prepare` must have run for the same tickets. */
  async function ingest(
    db: Db,
    tickets: readonly ManualTicket[],
    at: Date,
  ): Promise<ManualIngestOutcome> {
    const [rows, out] = [createRowBuffer(), createRowBuffer()]
    const parser = createBatchParser(rows, { at, limits: noLimits }, tickets.length)
    tickets.forEach(({ ticket, digest }, index) =>
      parser.addTicket(index, ticket, digestOfHex(digest)),
    )
    const batch = parser.read()
    for (const { ticket, subject } of tickets) {
      const payer = batch.payers.get(authId(ticket.clientId, ticket.externalUserId))
      if (payer) payer.subject = subject
    }
    await dateByClocks(db, batch, { clocks, at })
    const ids = encodeEventIds(batch.tickets, Uint32Array.from(tickets.keys()), out)
    const { newTickets: places, duplicates, conflicts } = await deduplicator.insert(db, ids, out)
    const buffers = { firstParts: rows.slice(0, rows.end()), out, at }
    const selection = new Set(places)
    const rated = await rate(db, { batch, places, at }, tickets)
    const prices = await price(db, { batch, places, at, ...rated }, tickets)
    const highRate = prices.includes(null) ? await holdingRate(db) : noRate
    const plan = await planWrite(
      {
        batch,
        places,
        keyOrder: ids.firsts.filter((place) => selection.has(place)),
        prices,
        ...rated,
        holdingRate: highRate,
        ratesKnownAt: tickets.some(({ price }) => price !== undefined) ? null : at,
      },
      buffers,
    )
    const options = { ...buffers, charge, emit, ticketsWritten: false }
    const { exhausted } = await executePlan(db, plan, options)
    return { ingested: [...places], duplicates, conflicts, exhausted }
  }

  /**
   * Rates tickets under locks on their accounts: manual ingest is not urgent enough to plan ahead.
   * A ticket with a fixed price gets no terms.
   */
  async function rate(
    db: Db,
    { batch, places, at }: Pick<NewTickets, 'batch' | 'places'> & { readonly at: Date },
    tickets: readonly ManualTicket[],
  ): Promise<RatedTickets> {
    const isFixed = (place: number): boolean => tickets[place]?.price !== undefined
    const fixed = { sales: Array.from(places, () => networkSale), confirm: noPeriods }
    if (places.every(isFixed)) return fixed
    const rated = await rating.rateLocked(db, { batch, places }, at)
    const sales = rated.sales.map((sale, i) => (isFixed(places[i] ?? 0) ? networkSale : sale))
    return { ...rated, sales }
  }

  // Keeps a fixed price and records its rate if missing. A ticket's place is its position in the
  // request.
  async function price(
    db: Db,
    {
      batch,
      places,
      at,
      sales,
    }: Pick<NewTickets, 'batch' | 'places' | 'sales'> & { readonly at: Date },
    tickets: readonly ManualTicket[],
  ): Promise<(TicketPrice | null)[]> {
    const rates = await findRates(
      db,
      Array.from(places, (place) => readSignerMicros(batch.tickets, place)),
    )
    const rateId = await ensureRates(
      db,
      Array.from(places).flatMap((place) => tickets[place]?.price?.rate ?? []),
      at,
    )
    return Array.from(places, (place, i) => {
      const fixed = tickets[place]?.price
      if (fixed) {
        const { usdAttosPerEth, observedAt } = fixed.rate
        const rate = { usdAttosPerEth, observedAt: new Date(observedAt) }
        return { ...fixed, rateId: rateId(fixed.rate), rate }
      }
      const [rate, { tariff } = networkSale] = [rates[i], sales[i]]
      if (!rate) return null
      const fee = readFee(batch.tickets, place)
      return { rateId: rate.id, rate, ...toPrices(fee, rate.usdAttosPerEth, tariff) }
    })
  }

  /**
   * Creates the partitions that the tickets need. Returns their users by auth id, and provisions
   * new ones.
   */
  async function prepare(tickets: readonly SignedTicket[]): Promise<ReadonlyMap<string, Subject>> {
    await partitions.ensure(tickets.map((ticket) => ticket.signedAtMs))
    const users = new Map(
      tickets.map((ticket) => [authId(ticket.clientId, ticket.externalUserId), ticket]),
    )
    const subjects = await resolveSubjects([...users.values()])
    const ahead = await clocks.ahead(pool, subjects.values())
    if (ahead.size > 0)
      await partitions.ensure(
        tickets.map(({ clientId, externalUserId, signedAtMs }) => {
          const app = subjects.get(authId(clientId, externalUserId))?.appId
          return signedAtMs + ((app && ahead.get(app)) ?? 0)
        }),
      )
    return subjects
  }

  return { ingest, prepare }
}

export type ManualIngest = ReturnType<typeof createManualIngest>

/**
 * Runs `work`. Throws CONFLICT if the database rejects the tickets themselves, but not if it is
 * unavailable.
 */
export async function conflictOnPoison<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof DomainError || !isPoison(error) || !(error instanceof Error)) throw error
    throw new DomainError('CONFLICT', `the database refuses it: ${error.message.slice(0, 200)}`, {
      cause: error,
    })
  }
}
