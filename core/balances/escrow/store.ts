import * as limits from '../limits/enforcement.ts'
import type { EscrowStore } from './port.ts'
import * as authorisations from './stores/authorisation-store.ts'
import * as clocks from './stores/clock-store.ts'
import * as due from './stores/due-store.ts'
import * as earlyTickets from './stores/early-ticket-store.ts'
import * as leases from './stores/lease-store.ts'
import * as sessions from './stores/session-store.ts'
import * as sidecars from './stores/sidecar-store.ts'

const forgetOld: EscrowStore['forgetOld'] = async (db, { endedBefore, bookedBefore, limit }) => {
  await authorisations.forgetEnded(db, endedBefore, limit)
  await earlyTickets.forgetEarlyTickets(db, bookedBefore, limit)
}

/** The escrow's storage in PostgreSQL. */
export const escrowStore = {
  ...sidecars,
  ...leases,
  ...authorisations,
  ...earlyTickets,
  ...sessions,
  ...clocks,
  ...due,
  forgetOld,
  ...limits,
}
