import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { DomainError, type ProblemMembers } from '../../../proto/errors.ts'
import type { Log } from '../../lib/log.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { PlanCatalog } from '../../metering/backend/plans.ts'
import { isUuid } from '../../platform/ids.ts'
import type { Plan } from '../offers/plan.ts'
import { findPlans } from '../offers/store.ts'
import { toBackendKey, toBackendPlan } from './backend-plan.ts'
import * as store from './store.ts'

export interface SyncDeps {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  /** Null without a metering backend that has plans. */
  readonly catalog: PlanCatalog | null
  /** Aborts when core stops. */
  readonly stopping: AbortSignal
  /**
   * Time (in milliseconds) that a caller waits for a sync, which then continues in the background.
   * Default is 3500.
   */
  readonly patienceMs?: number
}

export interface SyncResult {
  readonly openmeterPlanId: string | null
  readonly syncedAt: Date
}

/** A plan in the metering backend. */
export interface RemotePlan {
  /** Id of the version written last. */
  readonly id: string
  /** Key of all its versions. */
  readonly key: string
}

const syncMs = 30_000
// Longer than a sync, so that one ends before the next begins.
const leaseMs = 45_000
const leasePauseMs = 50
const usualPatienceMs = 3_500
const firstRetryMs = 60_000
const lastRetryMs = 6 * 3_600_000
const plansAtOnce = 4
const roundMs = 10_000

/** Syncs plans to the metering backend (docs/openmeter.md). */
export function createPlanSync({ patienceMs = usualPatienceMs, ...deps }: SyncDeps) {
  const { pool, now, log, catalog, stopping } = deps

  /**
   * Updates the backend's plan to match ours. Throws NOT_FOUND, CONFLICT while another sync of the
   * plan runs, and PLAN_UNSYNCABLE or backend errors, which plan lists also show as `syncError`.
   */
  async function sync(plan: store.PlanRef): Promise<SyncResult> {
    await requirePlan(plan)
    return awaitSync(run(plan))
  }

  async function awaitSync(running: Promise<SyncResult>): Promise<SyncResult> {
    running.catch(() => {})
    const late = sleep(patienceMs, null, { ref: false })
    const result = await Promise.race([running, late])
    if (result) return result
    throw refusal(
      'METERING_UNREACHABLE',
      'the sync is still running; the list of plans shows its result',
    )
  }

  async function run(ref: store.PlanRef): Promise<SyncResult> {
    const lease = { ...ref, id: randomUUID() }
    const before = await takeLease(lease)
    // Read before the plan: if a change comes between, the stored time is too old and the plan is
    // due again.
    const target = await readTarget(ref)
    const plan = await findSold(target)
    try {
      const openmeterPlanId = plan
        ? await put(plan, { ...target, lease, id: before.openmeterPlanId })
        : await withdraw(target, before)
      const syncedAt = now()
      const success = { openmeterPlanId, at: syncedAt, planUpdatedAt: target.updatedAt }
      await store.saveSuccess(pool, lease, success)
      return { openmeterPlanId, syncedAt }
    } catch (error) {
      const failure = {
        syncError: messageOf(error),
        retryAt:
          plan && isUnsyncable(error) ? null : retryAt({ failures: before.failures, at: now() }),
        planUpdatedAt: target.updatedAt,
      }
      await store.saveFailure(pool, lease, failure)
      log.warn({ err: error, planId: ref.planId }, 'a plan was not synced')
      throw publicOf(error)
    }
  }

  /** Returns null for a plan that the backend should not sell. */
  async function findSold({ appId, planId, isGone }: store.Target): Promise<Plan | null> {
    const [plan] = isGone ? [] : await findPlans(pool, { appId, planId })
    return plan && isSold(plan) ? plan : null
  }

  // Every error of `put` and `withdraw` becomes the plan's `syncError`, so all steps that can fail
  // belong there.
  async function put(
    plan: Plan,
    { clientId, lease, id }: store.Target & { lease: store.Lease; id: string | null },
  ): Promise<string> {
    if (!catalog) throw notConfigured()
    const remote = { id, save: (saved: string | null) => saveId(lease, saved) }
    return catalog.put(toBackendPlan(plan, clientId), remote, timeLimit())
  }

  /** Withdraws the plan from the backend. Returns its id there, which is kept. */
  async function withdraw(
    { appId, planId, clientId }: store.Target,
    { openmeterPlanId, failures }: store.Before,
  ): Promise<string | null> {
    if (openmeterPlanId !== null && !catalog) throw notConfigured()
    // The backend may have a plan although all its syncs failed.
    if (openmeterPlanId !== null || failures > 0)
      await catalog?.withdraw(toBackendKey({ appId, id: planId }, clientId), timeLimit())
    return openmeterPlanId
  }

  const timeLimit = (): AbortSignal => AbortSignal.any([stopping, AbortSignal.timeout(syncMs)])

  async function saveId(lease: store.Lease, id: string | null): Promise<void> {
    if (!(await store.saveRemoteId(pool, lease, id)))
      throw new DomainError('CONFLICT', 'another sync of the plan began meanwhile')
  }

  async function takeLease(lease: store.Lease) {
    // Leaves a fifth of the patience for the response.
    const end = performance.now() + patienceMs * 0.8
    for (;;) {
      const at = now()
      const until = new Date(at.getTime() + leaseMs)
      const before = await store.takeLease(pool, lease, { at, until })
      if (before) return before
      if (performance.now() > end || stopping.aborted)
        throw refusal('CONFLICT', 'the plan is being synced; repeat the request later')
      await sleep(leasePauseMs, undefined, { ref: false })
    }
  }

  /**
   * Syncs after a change, if the plan is active or was synced before. Returns the error as lists
   * show it.
   */
  async function syncChange({
    appId,
    id: planId,
    status,
  }: Pick<Plan, 'appId' | 'id' | 'status'>): Promise<string | undefined> {
    const plan = { appId, planId }
    if (!catalog || (status !== 'active' && !(await store.wasTried(pool, plan)))) return undefined
    try {
      await sync(plan)
      return undefined
    } catch (error) {
      return messageOf(error)
    }
  }

  /** Archives a deleted plan. A failure is retried later and does not undo the deletion. */
  async function syncRemoval(plan: store.PlanRef): Promise<void> {
    if (!catalog || !(await store.wasTried(pool, plan))) return
    await awaitSync(run(plan)).catch(() => {})
  }

  /** Syncs the Starter plan of a new app in the background. A failure is retried later. */
  function syncStarter(app: Plan['appId']): void {
    if (!catalog) return
    const running = store.findStarter(pool, app).then((plan) => plan && run(plan))
    running.catch((error: unknown) => log.debug({ err: error }, 'Starter is synced later'))
  }

  /** Syncs due plans, a few at a time. The next round continues after a minute. */
  async function retry(): Promise<void> {
    if (!catalog) return
    const end = performance.now() + roundMs
    for (;;) {
      const due = await store.findDue(pool, now(), plansAtOnce)
      // A failed plan is due later, so the loop ends.
      await Promise.all(due.map((plan) => run(plan).catch(() => {})))
      if (due.length < plansAtOnce || performance.now() > end || stopping.aborted) return
    }
  }

  async function requirePlan({ appId, planId }: store.PlanRef): Promise<void> {
    const known = isUuid(planId) ? await findPlans(pool, { appId, planId }) : []
    if (known.length === 0) throw refusal('NOT_FOUND', 'Plan not found')
  }

  async function readTarget(plan: store.PlanRef): Promise<store.Target> {
    const target = await store.findTarget(pool, plan)
    if (!target) throw refusal('NOT_FOUND', 'Plan not found')
    return target
  }

  /** Returns those of an app's plans that the backend has, by their ids. */
  async function remotes(
    db: Db,
    app: Plan['appId'],
    planIds: readonly string[],
  ): Promise<Map<string, RemotePlan>> {
    const known = await store.findRemotes(db, app, planIds)
    return new Map(
      known.map(({ planId, openmeterPlanId: id, clientId }) => [
        planId,
        { id, key: toBackendKey({ appId: app, id: planId }, clientId) },
      ]),
    )
  }

  /**
   * Whether the backend has the plan, if it should. Always true for Starter, so that new users do
   * not wait for a sync.
   */
  async function isSynced(db: Db, plan: Plan): Promise<boolean> {
    if (!catalog || plan.isStarterDefault || !isSold(plan)) return true
    return (await store.findRemotes(db, plan.appId, [plan.id])).length > 0
  }

  /**
   * Syncs a plan that the backend does not have, or any plan with `isStale`. Returns false for a
   * plan that the backend does not sell.
   */
  async function offer(ref: store.PlanRef, isStale: boolean): Promise<boolean> {
    if (!(await findSold(await readTarget(ref)))) return false
    const isKnown = (await store.findRemotes(pool, ref.appId, [ref.planId])).length > 0
    if (isStale || !isKnown) await sync(ref)
    return true
  }

  const states = (app: Plan['appId']) => store.findStates(pool, app)

  /** Text that differs whenever one of the app's states may have changed. */
  const version = (app: Plan['appId']) => store.statesVersion(pool, app)

  /** The backend that stores plans; null without one. */
  const target = catalog ? ('openmeter' as const) : null

  return {
    sync,
    syncChange,
    syncRemoval,
    syncStarter,
    retry,
    remotes,
    isSynced,
    offer,
    states,
    version,
    target,
  }
}

export type PlanSync = ReturnType<typeof createPlanSync>

/**
 * The backend does not need free plans and Network Price, and inactive plans take no subscribers.
 */
const isSold = ({ status, isNetworkDefault, newest }: Plan): boolean =>
  status === 'active' && !isNetworkDefault && newest.type !== 'free'

const notConfigured = (): DomainError =>
  new DomainError('METERING_NOT_CONFIGURED', 'no metering backend with plans is configured')

const messageOf = (error: unknown): string =>
  error instanceof DomainError ? error.message : 'the sync failed inside the service'

/** Adds the members that the sync route returns with a problem. */
function publicOf(error: unknown): unknown {
  if (!(error instanceof DomainError)) return error
  const { reason, message } = error
  return new DomainError(reason, message, { cause: error.cause, members: membersOf(message) })
}

const refusal = (reason: DomainError['reason'], message: string): DomainError =>
  new DomainError(reason, message, { members: membersOf(message) })

const membersOf = (syncError: string): ProblemMembers => ({ success: false, syncError })

/** A retry cannot help; only a change of the plan can. */
const isUnsyncable = (error: unknown): boolean =>
  error instanceof DomainError && error.reason === 'PLAN_UNSYNCABLE'

/** Doubles the delay with each failure. */
function retryAt({ failures, at }: { readonly failures: number; readonly at: Date }): Date {
  const delayMs = Math.min(firstRetryMs * 2 ** Math.min(failures, 20), lastRetryMs)
  return new Date(at.getTime() + delayMs)
}
