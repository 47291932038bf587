import type { AppId, UserId } from '../../shared/ids.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type Log, createThrottle } from '../../lib/log.ts'
import { usdAttos } from '../../lib/money.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { PricingRate } from '../batch/ticket-row.ts'
import { type HashedTicket, hashTickets } from '../batch/tickets-hash.ts'
import type { EmitPriced } from '../backend/emit.ts'
import {
  type Charge,
  type ChargeResult,
  type ListSettling,
  type SettlementSums,
  settlingTickets,
  toSteps,
  sumSettlements,
  userCharges,
} from './charges.ts'
import { priceHours } from './hour-store.ts'
import { bookInParts } from './parts.ts'
import { isPoison } from '../quarantine/poison.ts'
import { priceSessions } from './session-store.ts'
import { priceTickets } from './store.ts'
import { type RatedTicket, type Rating, StaleRating } from '../rating/rating.ts'
import { type Prices, type PricedTicket, networkSale, toPrices } from '../batch/tariff.ts'
import type { RateLookup } from '../rates/lookup.ts'
import * as store from '../rates/store.ts'

export interface PricingDeps {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  readonly charge: Charge
  readonly findRates: RateLookup
  readonly rating: Rating
  /** Maximum ages of observations that price waiting tickets. */
  readonly waitingAges: store.RateAges
  /** Called, in the transaction, with the newly priced tickets. */
  readonly emit?: EmitPriced | undefined
  readonly onPriced: (count: number, settlement: SettlementSums | null) => void
  readonly onExhausted: (users: readonly UserId[]) => Promise<void>
}

const batchSize = 1_000
/**
 * Number of ids to read again: ids are assigned before the commit, so a slow observation may appear
 * with an id below newer ones.
 */
const lateObservations = 100n

/** Prices tickets that arrived before their rate: each once, by the rate of its own time. */
export function createPricing({
  pool,
  now,
  log,
  charge,
  findRates,
  rating,
  waitingAges,
  emit,
  onPriced,
  onExhausted,
}: PricingDeps) {
  let newestSeen = 0n
  const isNew = createThrottle(now, 3_600_000)

  /**
   * Prices the tickets that observations since the last pass allow; the first pass uses all
   * observations.
   */
  async function pass(signal?: AbortSignal): Promise<number> {
    const span = await store.pricedSpan(pool, newestSeen - lateObservations, waitingAges)
    if (!span) return 0
    const skipped = new Set<AppId>()
    let total = 0
    for (;;) {
      const { locked, priced } = await priceBatch(span, skipped)
      total += priced
      if (locked < batchSize) break
      if (signal?.aborted) return total
    }
    // Read observations again if a skipped ticket may still need them.
    if (skipped.size === 0) newestSeen = span.newestId
    return total
  }

  async function priceBatch(span: store.Window, skipped: Set<AppId>) {
    const { locked, parts } = await priceWhole(span, skipped).catch((error: unknown) => {
      if (!isPoison(error)) throw error
      return priceInParts(span, skipped)
    })
    const priced = parts.reduce((sum, { count }) => sum + count, 0)
    const settlement = sumSettlements(parts.map((part) => part.settlement))
    if (priced > 0) onPriced(priced, settlement)
    const exhausted = [...new Set(parts.flatMap((part) => part.exhausted))]
    if (exhausted.length > 0) await onExhausted(exhausted)
    return { locked, priced }
  }

  function priceWhole(span: store.Window, skipped: ReadonlySet<AppId>): Promise<PricedBatch> {
    const price = (isLocked: boolean): Promise<PricedBatch> =>
      inBatch(span, skipped, async (db, waiting, knownAt) =>
        waiting.length === 0 ? [] : [await pricePart(db, waiting, { knownAt, isLocked })],
      )
    return price(false).catch((error: unknown) => {
      if (!(error instanceof StaleRating)) throw error
      rating.forget(error.users)
      return price(true)
    })
  }

  /**
   * Prices tickets in parts after the database rejected them as a whole. Apps of rejected parts are
   * skipped for the rest of the pass.
   */
  function priceInParts(span: store.Window, skipped: Set<AppId>): Promise<PricedBatch> {
    return inBatch(span, skipped, async (db, waiting, knownAt) => {
      const tickets = waiting
        .map(({ appId, userId }, place) => ({ place, appId, userId }))
        .sort((a, b) => compare(a.appId, b.appId) || compare(a.userId, b.userId))
      const { booked, refused } = await bookInParts(db, tickets, (places) =>
        pricePart(
          db,
          Array.from(places).flatMap((place) => waiting[place] ?? []),
          { knownAt, isLocked: true },
        ),
      )
      for (const { places, error } of refused) {
        const app = waiting[places[0] ?? 0]?.appId
        if (app) skipped.add(app)
        log[isNew(String(app)) ? 'error' : 'debug'](
          { err: error, appId: app, tickets: places.length },
          'the database refuses the price of tickets; they wait without one',
        )
      }
      return booked
    })
  }

  function inBatch(
    span: store.Window,
    skipped: ReadonlySet<AppId>,
    price: (
      db: Db,
      waiting: readonly store.WaitingTicket[],
      knownAt: Date,
    ) => Promise<readonly PricedPart[]>,
  ): Promise<PricedBatch> {
    const knownAt = now()
    return tx(pool, async (db) => {
      const waiting = await store.lockWaiting(db, span, {
        ages: waitingAges,
        limit: batchSize,
        skipped,
      })
      return { locked: waiting.length, parts: await price(db, waiting, knownAt) }
    })
  }

  async function pricePart(
    db: Db,
    waiting: readonly store.WaitingTicket[],
    { knownAt, isLocked }: { readonly knownAt: Date; readonly isLocked: boolean },
  ): Promise<PricedPart> {
    const at = now()
    const priced = await withPrices(findRates, db, waiting)
    const rated = await rating.rateTickets(db, priced.map(toRated), { at, knownAt, isLocked })
    const { sales, confirm } = rated
    const sold = priced.map((ticket, i): Sold => {
      const sale = sales[i] ?? networkSale
      return { ...ticket, sale, ...toPrices(ticket.fee, ticket.rate.usdAttosPerEth, sale.tariff) }
    })
    const id = uuidV7(at.getTime())
    await priceSessions(db, sold)
    await priceHours(db, sold)
    await priceTickets(db, sold, id)
    await emit?.(db, sold, at)
    const result = await charge(db, userCharges(sold.map(toCharge), hashOf(sold)), {
      id,
      at,
      ratesKnownAt: knownAt,
      settling: settlingOf(sold),
      confirm,
    })
    return { count: sold.length, ...result }
  }

  return { pass }
}

/** Returns the tickets with a known rate. */
async function withPrices(
  findRates: RateLookup,
  db: Db,
  waiting: readonly store.WaitingTicket[],
): Promise<Priced[]> {
  const rates = await findRates(
    db,
    waiting.map((ticket) => ticket.signedAtMicros - ticket.aheadMs * 1000),
  )
  return waiting.flatMap((ticket, i) => {
    const rate = rates[i]
    return rate ? [{ ...ticket, rate, rateId: rate.id }] : []
  })
}

interface PricedPart extends ChargeResult {
  readonly count: number
}

interface PricedBatch {
  /** Number of tickets that were locked, priced or not. */
  readonly locked: number
  readonly parts: readonly PricedPart[]
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

interface Priced extends store.WaitingTicket {
  readonly rate: PricingRate
  readonly rateId: bigint
}

interface Sold extends Priced, Prices {
  readonly sale: PricedTicket
}

const toRated = (ticket: Priced): RatedTicket => ({
  ...ticket,
  signedMs: Math.floor(ticket.signedAtMicros / 1000),
})

const toCharge = (ticket: Sold) => ({
  ...ticket,
  cost: ticket.retail,
  ownerCost: usdAttos(ticket.cost + ticket.platformFee),
  signedAt: new Date(ticket.signedAt),
})

const toHashed = ({ sale: { termsId }, ...ticket }: Sold): HashedTicket => ({
  ...ticket,
  sale: { ...ticket, termsId },
})

/** Returns a function that hashes each user's tickets. */
function hashOf(priced: readonly Sold[]) {
  const byUser = Map.groupBy(priced, ({ userId }) => userId)
  return (user: UserId): string | null => {
    const tickets = byUser.get(user)
    return tickets ? hashTickets(tickets.map(toHashed)) : null
  }
}

/** Lists the users' tickets for settlement: their holds end when they are charged. */
const settlingOf =
  (priced: readonly Sold[]): ListSettling =>
  (users) => {
    const tickets = priced.filter(({ userId }) => users.has(userId))
    const columns = settlingTickets(
      tickets.map((ticket) => ({
        ...ticket,
        cost: ticket.retail,
        signedMicros: ticket.signedAtMicros - ticket.aheadMs * 1000,
      })),
    )
    return toSteps({ priced: { columns } })
  }
