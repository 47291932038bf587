import type {
  AccountFacts,
  ChargedTickets,
  ReplayFinding,
  StoredEntry,
} from '../../balances/ledger/facts.ts'
import type { CreateReplay } from '../../balances/ledger/replay.ts'
import { ethRate } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { TicketRecords } from '../../metering/records.ts'
import { userId } from '../../shared/ids.ts'
import type { Check, DifferentRow, UserRange } from '../types.ts'
import {
  type ChargedTicket,
  type RateInOrder,
  archivedCharges,
  chargedTickets,
  readEntries,
  ratesById,
} from './replay-store.ts'
import { readFacts } from './facts-store.ts'
import { type ListMoves, clockDifferences } from './clocks.ts'
import { type SalesDeps, createSales } from './sales.ts'

/**
 * Replays the ledger of users from their facts: burn order, periods, plan versions, expiries, rates
 * and the chain.
 */

export interface ReplayDeps {
  readonly createReplay: CreateReplay
  readonly hashTickets: TicketRecords['hashTickets']
  readonly listMoves: ListMoves
  readonly sales: SalesDeps
}

export interface CheckedRow {
  readonly check: Check
  readonly row: DifferentRow
}

type Replay = ReturnType<CreateReplay>

interface ReplayedUser {
  readonly userId: string
  readonly externalUserId: string | null
  readonly replay: Replay
}

// A rate that another core recorded while a batch was priced may have been too late for it.
const slackMs = 60_000

/**
 * Yields the differences in a range of users. Memory is bounded by a page of entries and the
 * tickets of one charge.
 */
export async function* replayDifferences(
  db: Db,
  range: UserRange,
  { createReplay, hashTickets, listMoves, sales: deps }: ReplayDeps,
): AsyncGenerator<CheckedRow> {
  const sales = await createSales(db, range, deps)
  const moves = await listMoves(db, range.appId)
  const { facts, names } = await readFacts(db, range)
  const archived = await archivedCharges(db, range)
  const rates = createRateCache(db)
  const charges = chargeReader(chargedTickets(db, range))
  const replayed = new Set<string>()
  let user: ReplayedUser | null = null
  try {
    for await (const { userId: id, entry } of readEntries(db, range)) {
      if (user && user.userId !== id) yield* rowsOf(user, user.replay.end())
      if (user?.userId !== id) user = begin(id)
      replayed.add(id)
      const tickets = entry.kind === 'charge' ? await charges.read(id, entry.seq) : []
      await rates.load(tickets)
      yield* rateDifferences(user, { entry, tickets, rates })
      const { seq, ratesKnownAt, createdAt: bookedAt } = entry
      const { externalUserId } = user
      const charge = { userId: id, externalUserId, seq, ratesKnownAt, bookedAt, tickets }
      for (const row of sales.differences(charge, rates.find)) yield { check: 'prices', row }
      for (const row of clockDifferences(charge, moves)) yield { check: 'prices', row }
      const isArchived = archived.has(`${id} ${entry.causeId}`)
      yield* rowsOf(user, user.replay.step(entry, charged(range, tickets, isArchived)))
    }
    if (user) yield* rowsOf(user, user.replay.end())
    for (const id of facts.keys())
      if (!replayed.has(id)) yield* rowsOf(begin(id), begin(id).replay.end())
  } finally {
    await charges.close()
  }

  function begin(id: string): ReplayedUser {
    const userFacts = facts.get(id) ?? unknownUser(range, id)
    return { userId: id, externalUserId: names.get(id) ?? null, replay: createReplay(userFacts) }
  }

  function charged(
    { appId }: UserRange,
    tickets: readonly ChargedTicket[],
    isArchived: boolean,
  ): ChargedTickets {
    return {
      isArchived,
      hash: isArchived ? null : hashTickets(tickets.map((ticket) => rates.hashed(ticket))),
      tickets: tickets.map((ticket) => ({
        appId,
        userId: userId(ticket.userId),
        eventId: ticket.eventId,
        signedAt: new Date(Math.floor(ticket.signedAtMicros / 1000)),
        pipeline: ticket.pipeline,
        modelId: ticket.modelId,
        cost: ticket.retail,
      })),
    }
  }
}

const unknownUser = ({ appId }: UserRange, id: string): AccountFacts => ({
  owner: { appId, userId: userId(id) },
  credits: new Map(),
  adjustments: new Map(),
  periods: [],
  subscriptions: [],
  versions: [],
  balance: null,
})

/** Reads the tickets of one charge after the other. */
function chargeReader(tickets: AsyncGenerator<ChargedTicket>) {
  let next: ChargedTicket | null = null
  let isOpen = false

  /** Charges must be read in order. Skips the tickets of charges that are not read. */
  async function read(user: string, seq: bigint): Promise<ChargedTicket[]> {
    isOpen = true
    const charged: ChargedTicket[] = []
    for (;;) {
      next ??= (await tickets.next()).value ?? null
      if (next === null || isAfter(next, user, seq)) return charged
      if (next.userId === user && next.seq === seq) charged.push(next)
      next = null
    }
  }

  const close = async (): Promise<void> => {
    if (isOpen) await tickets.return(undefined)
  }

  return { read, close }
}

const isAfter = (ticket: ChargedTicket, user: string, seq: bigint): boolean =>
  ticket.userId > user || (ticket.userId === user && ticket.seq > seq)

const maxRates = 10_000

/** Caches the rates that tickets name, by id. */
function createRateCache(db: Db) {
  let known = new Map<bigint, RateInOrder>()

  async function load(tickets: readonly ChargedTicket[]): Promise<void> {
    const missing = new Set(tickets.map(({ rateId }) => rateId).filter((id) => !known.has(id)))
    if (missing.size === 0) return
    if (known.size > maxRates) known = new Map()
    const ids = known.size === 0 ? new Set(tickets.map(({ rateId }) => rateId)) : missing
    for (const [id, rate] of await ratesById(db, [...ids])) known.set(id, rate)
  }

  const find = (id: bigint): RateInOrder | undefined => known.get(id)

  const hashed = ({ key, digest, signedAtMicros, fee, rateId, isSold, ...sale }: ChargedTicket) => {
    const rate = known.get(rateId)
    return {
      sale: isSold ? sale : null,
      key: key ?? nothing,
      digest: digest ?? nothing,
      signedAtMicros,
      fee,
      rate: rate ?? noRate,
    }
  }

  return { load, find, hashed }
}

const nothing = Buffer.alloc(16)
const noRate = { usdAttosPerEth: ethRate(0n), observedAt: new Date(0) }

interface PricedEntry {
  readonly entry: StoredEntry
  readonly tickets: readonly ChargedTicket[]
  readonly rates: ReturnType<typeof createRateCache>
}

/**
 * Finds tickets with a rate that was not the newest one known for their time when they were priced.
 */
function* rateDifferences(
  user: ReplayedUser,
  { entry: { ratesKnownAt }, tickets, rates }: PricedEntry,
): Generator<CheckedRow> {
  if (ratesKnownAt === null) return
  for (const { eventId, rateId, signedAtMicros, aheadMs } of tickets) {
    const rate = rates.find(rateId)
    if (!rate?.next || (rate.source === 'fixed' && rate.observedAt.getTime() === 0)) continue
    const { observedMicros, recordedAt } = rate.next
    if (observedMicros > signedAtMicros - aheadMs * 1000) continue
    if (recordedAt.getTime() + slackMs > ratesKnownAt.getTime()) continue
    yield {
      check: 'prices',
      row: {
        userId: user.userId,
        externalUserId: user.externalUserId,
        key: { event_id: eventId },
        stored: { rate_is_the_newest: 'false' },
        expected: { rate_is_the_newest: 'true' },
      },
    }
  }
}

function* rowsOf(
  { userId: id, externalUserId }: ReplayedUser,
  findings: readonly ReplayFinding[],
): Generator<CheckedRow> {
  for (const { table, key, column, stored, expected } of findings)
    yield {
      check: table,
      row: {
        userId: id,
        externalUserId,
        key,
        stored: { [column]: stored },
        expected: { [column]: expected },
      },
    }
}
