import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { DomainError, type ProblemMembers } from '../../../proto/errors.ts'
import type { Log } from '../../lib/log.ts'
import type { Pool } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { PlanCatalog } from '../../metering/backend/plans.ts'
import { isUuid } from '../../platform/ids.ts'
import type { Plan } from '../offers/plan.ts'
import { findPlans } from '../offers/store.ts'
import { toBackendPlan } from './backend-plan.ts'
import * as store from './store.ts'

export interface SyncDeps {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  /** Null without a metering backend that has plans. */
  readonly catalog: PlanCatalog | null
  /** Aborts when core stops. */
  readonly stopping: AbortSignal
  /** How long a caller waits for a sync, which goes on without it. */
  readonly patienceMs?: number
}

export interface SyncResult {
  readonly openmeterPlanId: string | null
  readonly syncedAt: Date
}

const syncMs = 30_000
// Longer than a sync, so that it ends before another one begins.
const leaseMs = 45_000
const leasePauseMs = 50
const usualPatienceMs = 3_500
const firstRetryMs = 60_000
const lastRetryMs = 6 * 3_600_000
const plansAtOnce = 4
const roundMs = 10_000

/** Plans in the metering backend (docs/plans.md). */
export function createPlanSync({ patienceMs = usualPatienceMs, ...deps }: SyncDeps) {
  const { pool, now, log, catalog, stopping } = deps

  /**
   * Makes the backend's plan what the plan says. NOT_FOUND; CONFLICT while another sync of it runs; PLAN_UNSYNCABLE and the
   * faults of the backend, which the lists show as `syncError`, too.
   */
  async function sync(plan: store.PlanRef): Promise<SyncResult> {
    await requirePlan(plan)
    const running = run(plan)
    running.catch(() => {})
    const late = sleep(patienceMs, null, { ref: false })
    const result = await Promise.race([running, late])
    if (result) return result
    throw refusal(
      'METERING_UNREACHABLE',
      'the sync is not at its end yet; it goes on, and the list of plans shows how it ends',
    )
  }

  async function run(ref: store.PlanRef): Promise<SyncResult> {
    const lease = { ...ref, id: randomUUID() }
    const before = await takeLease(lease)
    const plan = await readPlan(ref)
    try {
      const openmeterPlanId = await put(plan, lease, before.openmeterPlanId)
      const syncedAt = now()
      const success = { openmeterPlanId, at: syncedAt, planUpdatedAt: plan.updatedAt }
      await store.saveSuccess(pool, lease, success)
      return { openmeterPlanId, syncedAt }
    } catch (error) {
      const failure = {
        syncError: messageOf(error),
        retryAt: retryAt(error, { failures: before.failures, at: now() }),
        planUpdatedAt: plan.updatedAt,
      }
      await store.saveFailure(pool, lease, failure)
      log.warn({ err: error, planId: plan.id }, 'a plan was not synced')
      throw publicOf(error)
    }
  }

  // All that can fail is in here, so that it becomes the plan's syncError.
  async function put(plan: Plan, lease: store.Lease, id: string | null): Promise<string | null> {
    if (!isForBackend(plan)) return null
    if (!catalog) throw notConfigured()
    const clientId = await store.findClientId(pool, plan.appId)
    const signal = AbortSignal.any([stopping, AbortSignal.timeout(syncMs)])
    const remote = { id, save: (saved: string | null) => saveId(lease, saved) }
    return catalog.put(toBackendPlan(plan, clientId ?? ''), remote, signal)
  }

  async function saveId(lease: store.Lease, id: string | null): Promise<void> {
    if (!(await store.saveRemoteId(pool, lease, id)))
      throw new DomainError('CONFLICT', 'another sync of the plan began meanwhile')
  }

  async function takeLease(lease: store.Lease) {
    // What is left of the patience is for the answer.
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

  /** As `sync`, after a change, where the backend is to have the plan. The error as the lists show it. */
  async function syncChange(plan: Plan): Promise<string | undefined> {
    if (!catalog || plan.status !== 'active') return undefined
    try {
      await sync({ appId: plan.appId, planId: plan.id })
      return undefined
    } catch (error) {
      return messageOf(error)
    }
  }

  /** Syncs what is due, a few plans at a time; the next minute goes on. */
  async function retry(): Promise<void> {
    if (!catalog) return
    const end = performance.now() + roundMs
    for (;;) {
      const due = await store.findDue(pool, now(), plansAtOnce)
      // What fails is due later, so that a round comes to its end.
      await Promise.all(due.map((plan) => run(plan).catch(() => {})))
      if (due.length < plansAtOnce || performance.now() > end || stopping.aborted) return
    }
  }

  async function requirePlan({ appId, planId }: store.PlanRef): Promise<void> {
    const known = isUuid(planId) ? await findPlans(pool, { appId, planId }) : []
    if (known.length === 0) throw refusal('NOT_FOUND', 'Plan not found')
  }

  async function readPlan({ appId, planId }: store.PlanRef): Promise<Plan> {
    const [plan] = await findPlans(pool, { appId, planId })
    if (!plan) throw refusal('NOT_FOUND', 'Plan not found')
    return plan
  }

  const states = (app: Plan['appId']) => store.findStates(pool, app)

  /** Another text whenever one of the app's states may have changed. */
  const version = (app: Plan['appId']) => store.statesVersion(pool, app)

  return { sync, syncChange, retry, states, version }
}

export type PlanSync = ReturnType<typeof createPlanSync>

/** Free plans and Network Price are nothing to a metering backend. */
const isForBackend = ({ isNetworkDefault, newest }: Plan): boolean =>
  !isNetworkDefault && newest.type !== 'free'

const notConfigured = (): DomainError =>
  new DomainError('METERING_NOT_CONFIGURED', 'no metering backend that has plans is configured')

const messageOf = (error: unknown): string =>
  error instanceof DomainError ? error.message : 'the sync failed inside the service'

/** With the members that the route of syncs answers beside those of a problem. */
function publicOf(error: unknown): unknown {
  if (!(error instanceof DomainError)) return error
  const { reason, message } = error
  return new DomainError(reason, message, { cause: error.cause, members: membersOf(message) })
}

const refusal = (reason: DomainError['reason'], message: string): DomainError =>
  new DomainError(reason, message, { members: membersOf(message) })

const membersOf = (syncError: string): ProblemMembers => ({ success: false, syncError })

/** Doubles with each failure. Null where only a change of the plan helps. */
function retryAt(
  error: unknown,
  { failures, at }: { readonly failures: number; readonly at: Date },
): Date | null {
  if (error instanceof DomainError && error.reason === 'PLAN_UNSYNCABLE') return null
  const delayMs = Math.min(firstRetryMs * 2 ** Math.min(failures, 20), lastRetryMs)
  return new Date(at.getTime() + delayMs)
}
