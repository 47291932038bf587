import { setImmediate as yieldToOthers } from 'node:timers/promises'
import { getOrInsert } from '../../lib/maps.ts'
import type { Db } from '../../lib/sql.ts'
import {
  type BilledUser,
  type ParsedBatch,
  type TicketColumns,
  readFee,
  readIndex,
  readSession,
  readSignerMicros,
} from '../batch/parsed-batch.ts'
import { networkSale } from '../batch/tariff.ts'
import { type TicketPrice, createPrices } from '../batch/ticket-row.ts'
import { type HoldingRate, noRate } from '../rates/holding-rate.ts'
import type { RateLookup } from '../rates/lookup.ts'
import type { RatedTickets } from '../rating/rating.ts'
import { type EventIds, encodeEventIds } from './deduplicate.ts'
import { type NewTickets, type RowBuffers, type WritePlan, planWrite } from './write-plan.ts'

/** All writes of a batch if each ticket is new and has a known user, which is nearly always so. */
export interface BatchPlan {
  readonly ids: EventIds
  /** Indexes of records with an unknown client id. */
  readonly unknownClients: readonly number[]
  readonly write: WritePlan
}

/** Rates tickets, in a transaction or before it. */
export type Rate = (tickets: Pick<NewTickets, 'batch' | 'places'>) => Promise<RatedTickets>

interface PlannerDeps {
  readonly findRates: RateLookup
  readonly holdingRate: HoldingRate
}

/** Creates the function that rates and prices the tickets of known users and plans their writes. */
export function createPlanner({ findRates, holdingRate }: PlannerDeps) {
  // Yields between its steps: another batch's transaction needs this thread for each statement.
  async function planBatch(
    db: Db,
    { batch, places, rate }: Pick<NewTickets, 'batch' | 'places'> & { readonly rate: Rate },
    buffers: RowBuffers,
  ): Promise<BatchPlan> {
    const { known, unknownClients } = groupByUser(batch, places)
    await yieldToOthers()
    const rated = await rate({ batch, places: known })
    await yieldToOthers()
    const prices = await price(db, batch.tickets, { places: known, sales: rated.sales })
    await yieldToOthers()
    const ids = encodeEventIds(batch.tickets, known, buffers.out)
    await yieldToOthers()
    const heldRate = prices.includes(null) ? await holdingRate(db) : noRate
    const write = await planWrite(
      {
        ...rated,
        batch,
        places: known,
        keyOrder: ids.firsts,
        prices,
        holdingRate: heldRate,
        ratesKnownAt: buffers.at,
      },
      buffers,
    )
    return { ids, unknownClients, write }
  }

  async function price(
    db: Db,
    tickets: TicketColumns,
    { places, sales }: Pick<NewTickets, 'places' | 'sales'>,
  ): Promise<(TicketPrice | null)[]> {
    const rates = await findRates(
      db,
      Array.from(places, (place) => readSignerMicros(tickets, place)),
    )
    const priceOf = createPrices()
    return rates.map((rate, i) => {
      const { tariff } = sales[i] ?? networkSale
      return rate ? priceOf(rate, readFee(tickets, places[i] ?? 0), tariff) : null
    })
  }

  return planBatch
}

/**
 * Returns tickets of known users, grouped by user in primary key order: Postgres inserts them
 * faster so.
 */
export function groupByUser(
  { tickets, sessions }: ParsedBatch,
  places: Uint32Array,
): { known: Uint32Array; unknownClients: number[] } {
  const unknownClients: number[] = []
  const groups = new Map<BilledUser, number[]>()
  for (const place of places) {
    const payer = sessions[readSession(tickets, place)]?.payer
    if (payer?.subject) getOrInsert(groups, payer, () => []).push(place)
    else unknownClients.push(readIndex(tickets, place))
  }
  const inOrder = [...groups]
    .map(([{ subject }, group]) => ({ key: `${subject?.appId}${subject?.userId}`, group }))
    .sort((a, b) => (a.key < b.key ? -1 : 1))
  return { known: Uint32Array.from(inOrder.flatMap(({ group }) => group)), unknownClients }
}
