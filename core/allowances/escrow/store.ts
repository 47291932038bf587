import * as limits from '../limits/enforcement.ts'
import * as authorisations from './authorisation-store.ts'
import * as clocks from './clock-store.ts'
import * as due from './due-store.ts'
import * as earlyTickets from './early-ticket-store.ts'
import * as leases from './lease-store.ts'
import type { EscrowStore } from './port.ts'
import * as sessions from './session-store.ts'

const forgetOld: EscrowStore['forgetOld'] = async (db, { endedBefore, bookedBefore, limit }) => {
  await authorisations.forgetEnded(db, endedBefore, limit)
  await earlyTickets.forgetEarlyTickets(db, bookedBefore, limit)
}

/** What the escrow keeps, in PostgreSQL. */
export const escrowStore = {
  ...leases,
  ...authorisations,
  ...earlyTickets,
  ...sessions,
  ...clocks,
  ...due,
  forgetOld,
  ...limits,
}
