import { rebuildHours } from './ingest/hour-store.ts'
import { rebuildSessions } from './ingest/session-store.ts'
import { restoreTickets, truncateMonth } from './ingest/store.ts'

/** What the books change in metering's tables. Each function writes in the caller's transaction. */
export const ticketRecords = { rebuildHours, rebuildSessions, restoreTickets, truncateMonth }

export type TicketRecords = typeof ticketRecords
