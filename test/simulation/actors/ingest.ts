import type { Ledger } from '../../../core/balances/ledger/ledger.ts'
import {
  type EthRate,
  type UsdAttos,
  divCeil,
  ethRate,
  retailBound,
  computeRetail,
  usdAttos,
  wei,
} from '../../../core/lib/money.ts'
import { tx } from '../../../core/lib/sql.ts'
import {
  type SettlingStep,
  type SettlingTicket,
  type OwnedTicketCharge,
  settlingTickets,
  toSteps,
  userCharges,
} from '../../../core/metering/ingest/charges.ts'
import type { TicketEvent } from './broker.ts'
import type { Database, Ticket } from './database.ts'
import type { Truth } from '../truth.ts'
import { type World, rateMarginPercent } from './world.ts'

export interface IngestDeps {
  readonly database: Database
  readonly ledger: Ledger
  readonly world: World
  readonly truth: Truth
  readonly now: () => Date
}

/**
 * Handles a batch as `core/metering/ingest` does, without its columns and COPY: books each event id
 * once, prices it by the rate of its time, and charges and settles in one transaction. Tickets
 * without a rate wait until `price` charges them.
 */
export function createIngest({ database, ledger, world, truth, now }: IngestDeps) {
  const ingest = (events: readonly TicketEvent[]): Promise<void> =>
    book(
      events.filter(
        ({ id }, index) =>
          !database.tickets.has(id) && events.findIndex((other) => other.id === id) === index,
      ),
      'booked',
    )

  const price = (): Promise<void> =>
    book(
      [...database.tickets.values()].filter((ticket) => ticket.cost === null && costOf(ticket)),
      'priced',
    )

  async function book(events: readonly TicketEvent[], step: 'booked' | 'priced'): Promise<void> {
    if (events.length === 0) return
    const tickets = events.map((event): Ticket => ({ ...event, cost: costOf(event) }))
    const at = now()
    await tx(database.pool, async (db) => {
      for (const ticket of tickets) database.saveTicket(ticket)
      await ledger.charge(db, chargesOf(tickets), {
        id: `charge-${at.getTime()}`,
        at,
        ratesKnownAt: at,
        confirm: () => {},
        settling: (users) =>
          settlingOf(
            tickets.filter(({ call }) => users.has(call.userId)),
            step,
          ),
      })
    })
    for (const { call, cost } of tickets) {
      if (cost === null) truth.pass(call)
      else truth.book(call, cost, ownerCostOf(call))
      database.touch(call.userId)
      if (world.owner) database.touch(world.owner.userId)
    }
  }

  function settlingOf(tickets: readonly Ticket[], priced: 'booked' | 'priced') {
    const bySteps = Map.groupBy(tickets, ({ cost }): SettlingStep =>
      cost === null ? 'unpriced' : priced,
    )
    const steps: Partial<Record<SettlingStep, { columns: ReturnType<typeof settlingTickets> }>> = {}
    for (const [step, of] of bySteps) steps[step] = { columns: settlingTickets(of.map(toSettling)) }
    return toSteps(steps)
  }

  function toSettling({ call, cost }: Ticket): SettlingTicket {
    const user = truth.truthOf(call.userId)
    return {
      appId: user.appId,
      userId: user.userId,
      sessionId: call.session.id,
      sequence: call.sequence,
      signedMicros: Number(call.eventTime / 1_000n),
      cost: cost ?? retailBound(wei(call.feeWei), holdingRate(), world.ratioOf(call.userId)),
    }
  }

  const costOf = ({ call }: TicketEvent): UsdAttos | null => {
    const rate = world.priceAt(Number(call.eventTime / 1_000_000n))
    return rate && computeRetail(wei(call.feeWei), rate, world.ratioOf(call.userId))
  }

  /** Returns what the ticket of a call charges the owner; 0 while it has no price. */
  function ownerCostOf(call: TicketEvent['call']): UsdAttos {
    const rate = world.priceAt(Number(call.eventTime / 1_000_000n))
    return usdAttos(rate === null ? 0n : world.ownerCostAt(call, rate))
  }

  // Returns the newest observed rate, raised by the margin.
  function holdingRate(): EthRate {
    const rate = world.published.at(-1)?.rate ?? 0n
    return ethRate(divCeil(rate * BigInt(100 + rateMarginPercent), 100n))
  }

  function chargesOf(tickets: readonly Ticket[]) {
    const priced = tickets.filter(({ cost }) => cost !== null).map(toCharge)
    const charges = userCharges(priced)
    const charged = new Set(charges.map(({ userId }) => userId))
    const unpriced = Map.groupBy(
      tickets.filter(({ cost }) => cost === null),
      ({ call }) => call.userId,
    )
    return [
      ...charges.map((charge) => ({
        ...charge,
        unpriced: unpriced.get(charge.userId)?.length ?? 0,
      })),
      ...[...unpriced].flatMap(([userId, of]) =>
        charged.has(userId)
          ? []
          : userCharges(of.map(toCharge)).map((charge) => ({
              ...charge,
              tickets: 0,
              unpriced: of.length,
            })),
      ),
    ]
  }

  function toCharge({ id, call, cost }: Ticket): OwnedTicketCharge {
    const { appId, userId } = truth.truthOf(call.userId)
    return {
      appId,
      userId,
      eventId: id,
      signedAt: new Date(Number(call.eventTime / 1_000_000n)),
      pipeline: pipelineOf(call.session.plan),
      modelId: 'echo',
      cost: cost ?? usdAttos(0n),
      ownerCost: cost === null ? usdAttos(0n) : ownerCostOf(call),
    }
  }

  return { ingest, price }
}

export type Ingest = ReturnType<typeof createIngest>

export const pipelineOf = ({ type }: { readonly type: string }): string =>
  type === 'lv2v' ? 'live-video-to-video' : 'other'
