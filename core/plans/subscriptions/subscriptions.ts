import { DomainError } from '../../../proto/errors.ts'
import { tx } from '../../lib/sql.ts'
import { later, realTime } from '../../shared/clocks/clocks.ts'
import type { AppId } from '../../shared/ids.ts'
import type { PlanSync } from '../sync/service.ts'
import type { Author, Change } from './change.ts'
import { type ChangesDeps, createChanges } from './changes.ts'
import { type MovesDeps, createMoves, getPlan } from './moves.ts'
import type { LockedAccount } from './ports.ts'
import * as store from './store.ts'
import { parseTiming } from './timing.ts'
import { getChangeable, readCurrent } from './users.ts'

export interface SubscriptionsDeps<Account extends LockedAccount>
  extends Omit<MovesDeps<Account>, 'payments'>, ChangesDeps {
  readonly sync: Pick<PlanSync, 'isSynced' | 'remotes' | 'target'>
}

export interface CancelRequest {
  readonly externalUserId: string
  readonly confirm: boolean
  readonly timing?: string | undefined
}

/**
 * Moves users between plans. A user has one slot, which is never empty. Every change locks the
 * account first.
 */
export function createSubscriptions<Account extends LockedAccount>(
  deps: SubscriptionsDeps<Account>,
) {
  const { pool, ledger, resubscribe, clocks = realTime, now } = deps
  const { lockPresent, move, note } = createMoves(deps)
  const { change, checkout } = createChanges({ ...deps, move })

  /**
   * Moves a user to Starter, at the end of the current period or now. Throws CONFIRM_REQUIRED,
   * NO_SUBSCRIPTION, ALREADY_STARTER, and ALREADY_SCHEDULED when this is already scheduled.
   */
  async function cancel(app: AppId, request: CancelRequest, by: Author): Promise<Change> {
    const timing = parseTiming(request.timing) ?? 'next_billing_cycle'
    requireConfirmed(request.confirm)
    const user = await getChangeable({ pool, resubscribe }, app, request.externalUserId)
    return tx(pool, async (db) => {
      const current = await readCurrent({ clocks, now }, db, user)
      const starter = await store.findStarter(db, app)
      if (starter === null || current.planId === starter)
        throw new DomainError('ALREADY_STARTER', 'the user is already on the Starter plan')
      if (timing === 'next_billing_cycle' && current.next?.planId === starter)
        throw new DomainError(
          'ALREADY_SCHEDULED',
          'the subscription is already scheduled to end with its period',
        )
      const plan = await getPlan(db, app, starter)
      return move(db, user, { target: { plan, timing, reason: 'cancel' }, by })
    })
  }

  /** Removes the scheduled change. Throws NOTHING_TO_RESUME when nothing is scheduled. */
  async function resume(app: AppId, request: CancelRequest, by: Author): Promise<Change> {
    requireConfirmed(request.confirm)
    const user = await getChangeable({ pool, resubscribe }, app, request.externalUserId)
    return tx(pool, async (db) => {
      const at = now()
      const { account, subscription } = await lockPresent(db, user, at)
      const { id, planId, next } = subscription
      if (!next) throw new DomainError('NOTHING_TO_RESUME', 'no change of plan is scheduled')
      await store.saveSuccessor(db, user, null)
      await ledger.save(db, [account], at)
      const details = { subscriptionId: id, planId, scheduledPlanId: next.planId }
      await note(db, user, { by, action: 'subscription_resumed', at, details })
      return {
        subscriptionId: id,
        planId,
        effectiveAt: later(at, account.aheadMs).toISOString(),
        timing: 'immediate' as const,
      }
    })
  }

  return { change, checkout, cancel, resume }
}

export type Subscriptions = ReturnType<typeof createSubscriptions>

function requireConfirmed(confirm: boolean): void {
  if (!confirm) throw new DomainError('CONFIRM_REQUIRED', 'send "confirm": true')
}
