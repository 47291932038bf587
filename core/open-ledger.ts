import { watchCollections } from './balances/accounts/collecting.ts'
import type { FindPayingOwners } from './balances/exposure/exposure.ts'
import { accountStore } from './balances/ledger/emitting-accounts.ts'
import { createLedger } from './balances/ledger/ledger.ts'
import { requestCollections } from './billing/collection/requests.ts'
import { createFindCards } from './billing/payments/chargeable-cards.ts'
import { createFindCeilings } from './billing/wallet/ceilings.ts'
import type { Resubscribe } from './plans/subscriptions/ports.ts'
import type { Shared } from './shared/shared.ts'

/** Functions of identity, which is created after the ledger. */
export interface IdentityPorts {
  readonly resubscribe: Resubscribe
  readonly findPayingOwners: FindPayingOwners
}

/**
 * Opens the ledger of a process that books. Core and a separate collector use the same one: users
 * get their credit lines, owners are charged, and collections are requested, whichever process books
 * a ticket or enters a period. `bounding` is needed only where core lends and reserves.
 */
export function openLedger(
  { clocks, now }: Pick<Shared, 'clocks' | 'now'>,
  ports: IdentityPorts,
  bounding?: { readonly horizonSeconds: number },
) {
  const findCards = createFindCards(now)
  const store = watchCollections(accountStore, requestCollections)
  const findCeilings = createFindCeilings(findCards)
  const ledger = createLedger({
    ...ports,
    store,
    clocks,
    findCeilings,
    ...(bounding && { bounding }),
  })
  return { ledger, findCards }
}
