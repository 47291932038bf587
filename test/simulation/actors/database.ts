import type { UsdAttos } from '../../../core/lib/money.ts'
import { createMemoryDatabase } from '../../core/balances/escrow/memory-database.ts'
import { createMemoryEscrowStore } from '../../core/balances/escrow/memory-store.ts'
import { createMemoryAccountStore } from '../../core/balances/accounts/memory-store.ts'
import { createMemoryExposureStore } from '../../core/balances/exposure/memory-store.ts'
import type { TicketEvent } from './broker.ts'
import type { Mutation } from '../mutations.ts'

/** A ticket in the ledger; `cost` is null while it has no price. */
export interface Ticket extends TicketEvent {
  readonly cost: UsdAttos | null
}

/** The single database of a simulation. All cores share it, and it survives their kills. */
export function createDatabase(mutation: Mutation) {
  let touched = new Set<string>()
  const memory = createMemoryDatabase({ onChange: (key) => void touched.add(key) })
  /** Tickets by event id, and the number of tickets of each call. */
  const tickets = new Map<string, Ticket>()
  const ticketCounts = new Map<string, number>()

  const hasTicket = (user: { userId: string }, sessionId: string, sequence: bigint): boolean =>
    ticketCounts.has(`${user.userId} ${sessionId} ${sequence}`)

  function saveTicket(ticket: Ticket): void {
    const { userId, session, sequence } = ticket.call
    const key = `${userId} ${session.id} ${sequence}`
    if (!tickets.has(ticket.id)) memory.set(ticketCounts, key, (ticketCounts.get(key) ?? 0) + 1)
    memory.set(tickets, ticket.id, ticket)
  }

  const escrow = createMemoryEscrowStore({ database: memory, hasTicket })
  const store = { ...escrow.store, ...mutation.store?.(escrow.store, escrow.tables) }
  const ledger = createMemoryAccountStore(memory)
  const accountStore = { ...ledger.store, ...mutation.accounts?.(ledger.store) }
  const exposures = createMemoryExposureStore(memory, escrow.tables, ledger.accounts)
  const exposureStore = {
    ...exposures.store,
    ...mutation.exposures?.(exposures.store, { tables: escrow.tables, payers: exposures.payers }),
  }

  /** Returns the ids of rows that changed since the last call; for a user's row, the user's id. */
  function takeTouched(): Iterable<string> {
    if (touched.size === 0) return touched
    const last = touched
    touched = new Set()
    return last
  }

  // Users with limits get no lease. Other tests check what limits allow.
  const limited = new Set<string>()
  const limits = {
    findLenderLimits: async () => ({
      isLimited: (userId: string) => limited.has(userId),
      ceilings: () => [],
    }),
    loadTallies: async () => null,
    saveTallies: async () => {},
    countCalls: async () => {},
  }

  return {
    /** The database's clock minus true time. */
    clock: { skewMs: 0 },
    pool: memory.pool,
    limited,
    grantingStore: { ...store, ...limits },
    tickets: tickets as ReadonlyMap<string, Ticket>,
    saveTicket,
    escrowStore: store,
    tables: escrow.tables,
    accountStore,
    exposureStore,
    ownerLeases: exposures.ownerLeases,
    /** Counts what the owner's apps really hold. */
    countHeld: exposures.store.countHeld,
    payers: exposures.payers,
    accounts: ledger.accounts,
    terms: ledger.terms,
    touch: (userId: string): void => void touched.add(userId),
    takeTouched,
  }
}

export type Database = ReturnType<typeof createDatabase>
