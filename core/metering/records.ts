import { hashTickets } from './batch/tickets-hash.ts'
import { rebuildHours } from './ingest/hour-store.ts'
import { rebuildSessions } from './ingest/session-store.ts'
import { pricesOf } from './rating/tariff.ts'
import { restoreTickets, truncateMonth } from './ingest/store.ts'

/** What the books do with metering's tables. Each function that writes does so in the caller's transaction. */
export const ticketRecords = {
  rebuildHours,
  rebuildSessions,
  restoreTickets,
  truncateMonth,
  hashTickets,
  pricesOf,
}

export type TicketRecords = typeof ticketRecords
