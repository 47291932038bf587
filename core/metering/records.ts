import { hashTickets } from './batch/tickets-hash.ts'
import { rebuildHours } from './ingest/hour-store.ts'
import { rebuildSessions } from './ingest/session-store.ts'
import { toPrices } from './batch/tariff.ts'
import { restoreTickets, truncateMonth } from './ingest/store.ts'

/**
 * Functions with which the books use metering's tables. Those that write use the caller's
 * transaction.
 */
export const ticketRecords = {
  rebuildHours,
  rebuildSessions,
  restoreTickets,
  truncateMonth,
  hashTickets,
  toPrices,
}

export type TicketRecords = typeof ticketRecords
