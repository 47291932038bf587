import { setTimeout as sleep } from 'node:timers/promises'
import type { Db } from '../../lib/sql.ts'
import { isUuid } from '../../shared/ids.ts'
import type { Plan } from '../offers/plan.ts'
import { findPlans } from '../offers/store.ts'
import { toBackendKey } from './backend-plan.ts'
import {
  type SyncDeps,
  type SyncResult,
  createSyncRun,
  isSold,
  describeSyncError,
  refusal,
} from './run.ts'
import * as store from './store.ts'

/** A plan in the metering backend. */
export interface RemotePlan {
  /** Id of the version written last. */
  readonly id: string
  /** Key of all its versions. */
  readonly key: string
}

const usualPatienceMs = 3_500
const plansAtOnce = 4
const roundMs = 10_000

/** Syncs plans to the metering backend (docs/openmeter.md). */
export function createPlanSync({ patienceMs = usualPatienceMs, ...deps }: SyncDeps) {
  const { pool, now, log, catalog, stopping } = deps
  const { run, findSold, readTarget } = createSyncRun({ ...deps, patienceMs })

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
      return describeSyncError(error)
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
