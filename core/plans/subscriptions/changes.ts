import { DomainError } from '../../../proto/errors.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { type Clocks, realTime } from '../../shared/clocks/clocks.ts'
import type { Idempotency } from '../../shared/idempotency.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Plan } from '../offers/plan.ts'
import type { Selling } from '../offers/service.ts'
import type { PlanSync } from '../sync/service.ts'
import type { Author, Change, SubscribedUser } from './change.ts'
import { type Moves, getPlan, requireOpen, requireOther, toSold } from './moves.ts'
import type { LockedAccount, PlanPayments, PlanRequest, Resubscribe } from './ports.ts'
import { isPriced, needsCard, parseTiming } from './timing.ts'
import { getChangeable, readCurrent } from './users.ts'

export interface ChangesDeps {
  readonly pool: Pool
  readonly resubscribe: Resubscribe
  readonly selling: Selling
  readonly sync: Pick<PlanSync, 'isSynced'>
  readonly payments: PlanPayments
  readonly idempotency: Idempotency
  readonly clocks?: Clocks
  readonly now: Now
}

export interface ChangeRequest {
  readonly externalUserId: string
  readonly planId: string
  readonly timing: string | undefined
  readonly successUrl: string | undefined
  readonly cancelUrl: string | undefined
  readonly idempotencyKey: string | undefined
  /** The app of the caller. Default: the user's. */
  readonly openedBy?: AppId | undefined
}

export type CheckoutRequest = Omit<ChangeRequest, 'timing' | 'openedBy'>

/** Moves users to the plans that they choose. */
export function createChanges<Account extends LockedAccount>(
  deps: ChangesDeps & Pick<Moves<Account>, 'move'>,
) {
  const { pool, move, selling, sync, payments, idempotency, clocks = realTime, now } = deps

  /**
   * Moves a user to another plan, now or at the end of the current period, and replaces a scheduled
   * change. A plan that must be paid is paid first: if that fails, or no card is on file, nothing
   * changes, and in the second case the result has a checkout URL. Throws NOT_FOUND for an unknown
   * user or plan, CONFLICT for a plan that takes no subscribers, REQUEST_INVALID for the user's
   * current plan.
   */
  async function change(app: AppId, request: ChangeRequest, by: Author): Promise<Change> {
    const { externalUserId, planId, openedBy = app } = request
    if (planId.trim() === '') throw new DomainError('REQUEST_INVALID', 'planId is required')
    const timing = parseTiming(request.timing)
    const user = await getChangeable(deps, app, externalUserId)
    const { successUrl, cancelUrl, idempotencyKey: key } = request
    const body = { userId: user.userId, planId, timing, successUrl, cancelUrl }
    const repeatable = { scope: `${by.name}:${openedBy}:subscription-change`, key, body }
    if (by.isOperator)
      return idempotency.once(repeatable, async (db) => {
        const plan = await requireTarget(db, user, { planId, by })
        return move(db, user, { target: { plan, timing, reason: 'change' }, by })
      })
    return idempotency.alone(repeatable, async () => {
      const earlier = await payments.findResult({ user, planId, key: nameOf(repeatable) })
      if (earlier) return idempotency.once(repeatable, async () => earlier)
      const plan = await tx(pool, (db) => requireTarget(db, user, { planId, by }))
      const ordered = needsCard(toSold(plan))
        ? await order(request, { user, plan, timing, by, asksAlways: false }, repeatable)
        : null
      return idempotency.once(
        repeatable,
        async (db) =>
          ordered ?? (await move(db, user, { target: { plan, timing, reason: 'change' }, by })),
      )
    })
  }

  /**
   * Opens the pay page for a plan, also if a card is on file. Throws like `change`, and CONFLICT for
   * a plan that needs no payment.
   */
  async function checkout(app: AppId, request: CheckoutRequest, by: Author): Promise<Change> {
    const { externalUserId, planId } = request
    if (planId.trim() === '' || externalUserId.trim() === '')
      throw new DomainError('REQUEST_INVALID', 'planId and externalUserId are required')
    if (!by.isOperator) await selling.require(pool, { appId: app })
    const user = await getChangeable(deps, app, externalUserId)
    const { successUrl, cancelUrl, idempotencyKey: key } = request
    const body = { userId: user.userId, planId, successUrl, cancelUrl }
    const repeatable = { scope: `${by.name}:${app}:plan-checkout`, key, body }
    return idempotency.alone(repeatable, async () => {
      const plan = await tx(pool, (db) => requireTarget(db, user, { planId, by }))
      const details = { user, plan, timing: undefined, by, asksAlways: true }
      const ordered = needsCard(toSold(plan)) ? await order(request, details, repeatable) : null
      if (!ordered)
        throw new DomainError(
          'CONFLICT',
          'this plan needs no payment; change to it by POST …/subscription/change',
        )
      return idempotency.once(repeatable, async () => ordered)
    })
  }

  const order = (
    {
      openedBy,
      successUrl,
      cancelUrl,
    }: Pick<ChangeRequest, 'openedBy' | 'successUrl' | 'cancelUrl'>,
    details: Pick<PlanRequest, 'user' | 'plan' | 'timing' | 'by' | 'asksAlways'>,
    repeatable: Repeatable,
  ): Promise<Change | null> =>
    payments.order({
      ...details,
      openedBy,
      successUrl,
      cancelUrl,
      key: nameOf(repeatable),
    })

  /** Returns the plan that a user may move to. Throws if the plan takes no subscribers, or is the user's. */
  async function requireTarget(
    db: Db,
    user: SubscribedUser,
    { planId, by }: { readonly planId: string; readonly by: Author },
  ): Promise<Plan> {
    const plan = await getPlan(db, user.appId, planId)
    const isSale = plan.status === 'active' && isPriced(plan.newest) && !plan.isStarterDefault
    if (!by.isOperator && isSale) await selling.require(db, plan)
    requireOpen(plan)
    await requireSynced(db, plan)
    const current = await readCurrent({ clocks, now }, db, user)
    requireOther(current.planId, plan)
    return plan
  }

  /** Throws CONFLICT when the metering backend should have the plan but does not. */
  async function requireSynced(db: Db, plan: Plan): Promise<void> {
    if (await sync.isSynced(db, plan)) return
    throw new DomainError(
      'CONFLICT',
      'the plan is not synced: the metering backend does not have it; sync it, or choose another',
    )
  }

  return { change, checkout }
}

interface Repeatable {
  readonly scope: string
  readonly key: string | undefined
}

/** Names a request among all of the deployment. */
const nameOf = ({ scope, key }: Repeatable): string | undefined =>
  key === undefined ? undefined : `${scope} ${key}`
