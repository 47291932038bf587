import * as authorisations from './authorisation-store.ts'
import * as clocks from './clock-store.ts'
import * as earlyTickets from './early-ticket-store.ts'
import * as leases from './lease-store.ts'
import * as sessions from './session-store.ts'

/** What the escrow keeps, in PostgreSQL. */
export const escrowStore = { ...leases, ...authorisations, ...earlyTickets, ...sessions, ...clocks }
