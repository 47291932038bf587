import type { UserId } from '../../platform/ids.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type UsdAttos, priceOf } from '../../lib/money.ts'
import { type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { PricingRate } from '../batch/ticket-row.ts'
import { hashTickets } from '../batch/tickets-hash.ts'
import type { EmitPriced } from '../backend/emit.ts'
import {
  type Charge,
  type ListSettling,
  type SettlementSums,
  settlingTickets,
  stepsOf,
  userCharges,
} from '../ingest/charges.ts'
import { priceHours } from '../ingest/hour-store.ts'
import { priceSessions } from '../ingest/session-store.ts'
import { priceTickets } from '../ingest/store.ts'
import type { RateLookup } from './lookup.ts'
import * as store from './store.ts'

export interface PricingDeps {
  readonly pool: Pool
  readonly now: Now
  readonly charge: Charge
  readonly findRates: RateLookup
  /** How long an observation may serve a ticket that waits. */
  readonly waitingAgeSeconds: number
  /** Called, in the transaction, with the tickets that have got their price. */
  readonly emit?: EmitPriced | undefined
  readonly onPriced: (count: number, settlement: SettlementSums | null) => void
  readonly onExhausted: (users: readonly UserId[]) => Promise<void>
}

const batchSize = 1_000
/** Ids are drawn before the commit, so a slow observation may appear with an id below newer ones. */
const lateObservations = 100n

/** Prices tickets that arrived before their rate was known: each by the rate of its own time, and only once. */
export function createPricing({
  pool,
  now,
  charge,
  findRates,
  waitingAgeSeconds,
  emit,
  onPriced,
  onExhausted,
}: PricingDeps) {
  let newestSeen = 0n

  /** Prices all that observations since the last pass allow; the first pass goes by all observations. */
  async function pass(signal?: AbortSignal): Promise<number> {
    const span = await store.pricedSpan(pool, newestSeen - lateObservations, waitingAgeSeconds)
    if (!span) return 0
    let total = 0
    for (;;) {
      const priced = await priceBatch(span)
      total += priced
      if (priced < batchSize) break
      if (signal?.aborted) return total
    }
    newestSeen = span.newestId
    return total
  }

  async function priceBatch(span: store.Window): Promise<number> {
    const known = now()
    const { count, exhausted, settlement } = await tx(pool, async (db) => {
      const waiting = await store.lockWaiting(db, span, {
        maxAgeSeconds: waitingAgeSeconds,
        limit: batchSize,
      })
      if (waiting.length === 0) return { count: 0, exhausted: [], settlement: null }
      const rates = await findRates(
        db,
        waiting.map((ticket) => ticket.signedAtMicros),
      )
      const priced = waiting.flatMap((ticket, i) => {
        const rate = rates[i]
        return rate
          ? [{ ...ticket, rate, rateId: rate.id, cost: priceOf(ticket.fee, rate.usdAttosPerEth) }]
          : []
      })
      const at = now()
      const id = uuidV7(at.getTime())
      await priceSessions(db, priced)
      await priceHours(db, priced)
      await priceTickets(db, priced, id)
      await emit?.(db, priced, at)
      const charges = priced.map((ticket) => ({ ...ticket, signedAt: new Date(ticket.signedAt) }))
      const result = await charge(db, userCharges(charges, hashOf(priced)), {
        id,
        at,
        ratesKnownAt: known,
        settling: settlingOf(priced),
      })
      return { count: priced.length, ...result }
    })
    if (count > 0) onPriced(count, settlement)
    if (exhausted.length > 0) await onExhausted(exhausted)
    return count
  }

  return { pass }
}

/** The hash of the tickets of each user. */
function hashOf(priced: readonly (store.WaitingTicket & { readonly rate: PricingRate })[]) {
  const byUser = Map.groupBy(priced, ({ userId }) => userId)
  return (user: UserId): string | null => {
    const tickets = byUser.get(user)
    return tickets ? hashTickets(tickets) : null
  }
}

/** What they held until now goes when they are charged. */
const settlingOf =
  (priced: readonly (store.WaitingTicket & { readonly cost: UsdAttos })[]): ListSettling =>
  (users) => {
    const tickets = priced.filter(({ userId }) => users.has(userId))
    const columns = settlingTickets(
      tickets.map((ticket) => ({ ...ticket, signedMicros: ticket.signedAtMicros })),
    )
    return stepsOf({ priced: { columns } })
  }
