import type { Ledger } from '../../balances/ledger/ledger.ts'
import { type Loop, startLoop } from '../../lib/loop.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Issuing } from '../invoices/issuing.ts'
import { findExpired } from '../payments/card-store.ts'
import type { Customers } from '../payments/customers.ts'
import type { Payers } from '../payments/payers.ts'
import type { Card, PaymentProcessor } from '../processor/port.ts'
import type { Ceilings } from '../wallet/ceilings.ts'
import { createAttemptSweep } from './attempt-sweep.ts'
import { type AttemptHandlers, type AttemptsDeps, createAttempts } from './attempts.ts'
import { type BookingDeps, createBooking } from './booking.ts'
import { createCollectNow } from './collect-now.ts'
import { retryWith } from './collection-store.ts'
import { createCollectionWorker } from './worker.ts'

export interface CollectionDeps extends Pick<BookingDeps, 'plans' | 'findOwner'> {
  readonly processor: PaymentProcessor
  readonly customers: Customers
  readonly payers: Payers
  readonly ledger: Ledger
  readonly ceilings: Pick<Ceilings, 'refresh'>
  readonly issue: Issuing['issue']
  readonly reconcileReturns: AttemptsDeps['reconcileReturns']
  /** Cards that are charged at a time. */
  readonly chargesAtOnce: number
  /** Of the purposes that other parts pay for. */
  readonly handlers: Omit<AttemptHandlers, 'invoice'>
}

const pauseMs = 1_000
const expiredAtOnce = 200

/** Charges of cards on file, and the collections that invoice users and get the invoices paid. */
export function createCollectionPart(shared: Shared, deps: CollectionDeps) {
  const { pool, clocks, log, metrics, now } = shared
  const { ceilings } = deps
  const handlers = { ...deps.handlers, invoice: createBooking({ ...deps, now }) }
  const attempts = createAttempts({ ...shared, ...deps, handlers })
  const sweep = createAttemptSweep({ ...shared, ...deps, attempts })
  const collectNow = createCollectNow({ ...shared, ...deps, wake: () => loop?.wake() })
  const worker = createCollectionWorker({ ...shared, ...deps, attempts })
  let loop: Loop | undefined

  /** A card changes what the user may owe, and pays what an earlier card did not. */
  async function onCardRead(user: UserKey, card: Card | null): Promise<void> {
    await ceilings.refresh([user])
    if (card === null) return
    const at = await clocks.timeOf(pool, user.appId, now())
    await retryWith(pool, user, { cardId: card.id, at })
    loop?.wake()
  }

  /** Takes the credit lines of users whose cards have expired. */
  async function refreshExpired(): Promise<void> {
    for (let after: UserKey | null = null; ;) {
      const users = await findExpired(pool, now(), { after, limit: expiredAtOnce })
      if (users.length > 0) await ceilings.refresh(users)
      if (users.length < expiredAtOnce) return
      after = users.at(-1) ?? null
    }
  }

  function start(): void {
    sweep.start()
    loop = startLoop({ name: 'collections', log, metrics, pauseMs, round: () => worker.run() })
  }

  const stop = async (): Promise<void> => void (await Promise.all([sweep.stop(), loop?.stop()]))

  return { attempts, worker, collectNow, onCardRead, start, stop, upkeep: [refreshExpired] }
}

export type CollectionPart = ReturnType<typeof createCollectionPart>
