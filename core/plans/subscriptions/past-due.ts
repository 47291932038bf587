import type { Db } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { Author, Change } from './change.ts'
import { type Moves, getPlan } from './moves.ts'
import type { LockedAccount } from './ports.ts'
import * as store from './store.ts'

/** The subscription that a failed or successful payment concerns. */
export interface PaidSubscription {
  readonly subscriptionId: string
  readonly planId: string
}

const collection: Author = { name: 'collection', isOperator: true }

/** Subscriptions after a failed payment, within a transaction of the caller. */
export function createPastDue<Account extends LockedAccount>({
  lockPresent,
  move,
  now,
}: Pick<Moves<Account>, 'lockPresent' | 'move'> & { readonly now: Now }) {
  /**
   * Marks the user's subscription as past due, or as active again. Returns the subscription; null
   * if the user is on Starter. Lock the user's account before.
   */
  async function setPastDue(
    db: Db,
    user: UserKey,
    isPastDue: boolean,
  ): Promise<PaidSubscription | null> {
    return store.saveStatus(db, user, isPastDue ? 'past_due' : 'active')
  }

  /**
   * Moves the user to Starter at once, because a subscription stayed unpaid. Returns null, and
   * changes nothing, if that subscription has ended or is on Starter. Locks and saves the account,
   * so the caller must have saved its own changes.
   */
  async function fallBack(db: Db, user: UserKey, subscriptionId: string): Promise<Change | null> {
    const starter = await store.findStarter(db, user.appId)
    if (starter === null) return null
    const { subscription } = await lockPresent(db, user, now())
    if (subscription.id !== subscriptionId || subscription.planId === starter) return null
    const plan = await getPlan(db, user.appId, starter)
    const target = { plan, timing: 'immediate', reason: 'unpaid' } as const
    return move(db, user, { target, by: collection })
  }

  return { setPastDue, fallBack }
}
