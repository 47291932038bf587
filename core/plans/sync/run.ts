import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { DomainError, type ProblemMembers } from '../../../proto/errors.ts'
import type { PlanCatalog } from '../../metering/backend/plans.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Plan } from '../offers/plan.ts'
import { findPlans } from '../offers/store.ts'
import { toBackendKey, toBackendPlan } from './backend-plan.ts'
import * as store from './store.ts'

export interface SyncDeps extends Pick<Shared, 'pool' | 'now' | 'log'> {
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

const syncMs = 30_000
// Longer than a sync, so that one ends before the next begins.
const leaseMs = 45_000
const leasePauseMs = 50
const firstRetryMs = 60_000
const lastRetryMs = 6 * 3_600_000

/** Writes one plan to the metering backend, or withdraws it, under a lease. */
export function createSyncRun({
  pool,
  now,
  log,
  catalog,
  stopping,
  patienceMs,
}: Required<SyncDeps>) {
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
        syncError: describeSyncError(error),
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

  async function readTarget(plan: store.PlanRef): Promise<store.Target> {
    const target = await store.findTarget(pool, plan)
    if (!target) throw refusal('NOT_FOUND', 'Plan not found')
    return target
  }

  return { run, findSold, readTarget }
}

/**
 * The backend does not need free plans and Network Price, and inactive plans take no subscribers.
 */
export const isSold = ({ status, isNetworkDefault, newest }: Plan): boolean =>
  status === 'active' && !isNetworkDefault && newest.type !== 'free'

const notConfigured = (): DomainError =>
  new DomainError('METERING_NOT_CONFIGURED', 'no metering backend with plans is configured')

export const describeSyncError = (error: unknown): string =>
  error instanceof DomainError ? error.message : 'the sync failed inside the service'

/** Adds the members that the sync route returns with a problem. */
function publicOf(error: unknown): unknown {
  if (!(error instanceof DomainError)) return error
  const { reason, message } = error
  return new DomainError(reason, message, { cause: error.cause, members: membersOf(message) })
}

export const refusal = (reason: DomainError['reason'], message: string): DomainError =>
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
