import { backoffMs, startLoop } from '../lib/loop.ts'
import { type Pool, tx } from '../lib/sql.ts'
import { addSeconds } from '../lib/time.ts'
import { enqueueNotice } from '../shared/events.ts'
import { audit } from '../shared/audit.ts'
import type { Shared } from '../shared/shared.ts'
import { type Attempt, type AttemptDeps, type Target, attempt } from './attempts.ts'
import * as deliveryStore from './delivery-store.ts'
import * as store from './endpoint-store.ts'
import type { WebhookMetrics } from './metrics.ts'
import { endpointMs, endpointPauses, failuresMax } from './schedule.ts'
import { listSecrets, placeOfSecret } from './secret-store.ts'

export type DelivererDeps = Pick<Shared, 'pool' | 'log' | 'metrics' | 'now' | 'sealing'> &
  Pick<AttemptDeps, 'outbound'> & {
    readonly meters: WebhookMetrics
    /** Pause between two look-ups of due endpoints. For tests. */
    readonly idleMs?: number
  }

/** Endpoints to which one process delivers at the same time. */
const endpointsAtOnce = 64
/** Concurrent requests to one endpoint. */
const requestsAtOnce = 4
/** An endpoint with a backlog lets others go first after this time. */
const turnMs = 5_000
/** Longer than a turn with its last request, so that no other core takes the endpoint meanwhile. */
const leaseSeconds = 60
const idleMsDefault = 1_000
const drainMs = 1_500

/**
 * Delivers due rows to endpoints. Any number of cores share the endpoints; one core at a time has
 * an endpoint. Each endpoint has its own few requests, so a slow one delays no other. An endpoint
 * that fails repeatedly gets one request at a time, with growing pauses.
 */
export function createDeliverer(deps: DelivererDeps) {
  const { pool, log, metrics, now, meters, idleMs = idleMsDefault } = deps
  const stopping = new AbortController()
  const giveUp = new AbortController()
  const running = new Set<Promise<void>>()
  let loop: ReturnType<typeof startLoop> | undefined

  /** Leases as many due endpoints as there is room for, and begins their running. */
  async function round(): Promise<void> {
    for (;;) {
      const limit = endpointsAtOnce - running.size
      if (limit <= 0 || stopping.signal.aborted) return
      const at = now()
      const until = addSeconds(at, leaseSeconds)
      const leases = await store.leaseDue(pool, { at, until, limit })
      for (const lease of leases) begin(lease)
      if (leases.length < limit) return
    }
  }

  function begin(lease: store.EndpointLease): void {
    const turn = serve(lease)
      .catch((error: unknown) =>
        log.warn({ err: error, endpointId: lease.id }, 'a turn of a webhook endpoint failed'),
      )
      .finally(() => {
        running.delete(turn)
        loop?.wake()
      })
    running.add(turn)
  }

  async function serve(lease: store.EndpointLease): Promise<void> {
    const end = performance.now() + turnMs
    let failures = lease.failures
    while (performance.now() < end && !stopping.signal.aborted) {
      const limit = failures < failuresMax ? requestsAtOnce : 1
      const attempts = await sendDue(lease, limit)
      if (attempts.length === 0) break
      const after = await settle(lease, { attempts, failures })
      if (after === null) return
      failures = after
      if (failures >= failuresMax) break
    }
    await release(lease, failures)
  }

  /** Sends at most `limit` due deliveries at the same time. Returns the recorded attempts. */
  async function sendDue(lease: store.EndpointLease, limit: number): Promise<Attempt[]> {
    const target = await findTarget(lease)
    if (!target) return []
    const claim = { at: now(), until: lease.until, limit }
    const rows = await deliveryStore.claimDeliveries(pool, lease, claim)
    const attempts = await Promise.all(
      rows.map(async (row) => {
        const result = await attempt(deps, target, row)
        if (result === null) return null
        meters.attempted(outcomeOf(result))
        await deliveryStore.recordAttempt(pool, lease.appId, result)
        return result
      }),
    )
    return attempts.filter((result) => result !== null)
  }

  async function findTarget(lease: store.EndpointLease): Promise<Target | null> {
    const endpoint = await store.findLeased(pool, lease)
    if (!endpoint) return null
    const secrets = (await listSecrets(pool, lease, now())).map(({ id, signing, sealed }) => ({
      signing,
      bytes: deps.sealing.unseal(sealed, placeOfSecret(id)),
    }))
    return { url: endpoint.url, secrets, signal: giveUp.signal }
  }

  /**
   * Records the endpoint's health after attempts. Returns its failures in a row; null if the
   * endpoint is disabled now.
   */
  async function settle(
    endpoint: store.EndpointKey,
    { attempts, failures }: { attempts: readonly Attempt[]; failures: number },
  ): Promise<number | null> {
    if (attempts.some(({ isGone }) => isGone)) {
      await disable(deps, endpoint, 'gone')
      return null
    }
    const delivered = attempts.filter(({ status }) => status === 'delivered').length
    if (failures === 0 && delivered === attempts.length) return 0
    const at = now()
    const failed = attempts.length - delivered
    const health = await store.recordHealth(pool, endpoint, {
      at,
      failed,
      isHealthy: delivered > 0,
    })
    const since = health?.failingSince?.getTime() ?? at.getTime()
    if (at.getTime() - since < endpointMs) return health?.failures ?? 0
    await disable(deps, endpoint, 'failing')
    return null
  }

  /** Ends the lease. The endpoint is due again with its next delivery, after its pause. */
  async function release(lease: store.EndpointLease, failures: number): Promise<void> {
    await tx(pool, async (db) => {
      // The lock comes first, so that deliveries written before it are counted.
      if (!(await store.lockEndpoint(db, lease))) return
      const next = await deliveryStore.nextDue(db, lease)
      const at = now().getTime()
      const pauseMs =
        failures < failuresMax ? 0 : backoffMs(failures - failuresMax + 1, endpointPauses)
      const dueAt = next && new Date(Math.max(next.getTime(), at + pauseMs))
      await store.endLease(db, lease, dueAt)
    })
  }

  function start(): void {
    loop = startLoop({ name: 'webhooks', log, metrics, pauseMs: idleMs, round })
  }

  async function stop(): Promise<void> {
    stopping.abort()
    const timer = setTimeout(() => giveUp.abort(), drainMs)
    await loop?.stop()
    await Promise.all(running)
    clearTimeout(timer)
  }

  /** Runs one round and waits for its turns, for tests. */
  async function pass(): Promise<void> {
    await round()
    await Promise.all(running)
  }

  return { start, stop, pass, wake: () => loop?.wake() }
}

export type Deliverer = ReturnType<typeof createDeliverer>

const outcomeOf = ({ status, httpStatus }: Attempt) =>
  status === 'delivered' ? 'delivered' : httpStatus === null ? 'failed' : 'refused'

/** Disables an endpoint and records it in the audit log of the app. */
export async function disable(
  {
    pool,
    log,
    now,
    meters,
  }: Pick<Shared, 'log' | 'now'> & {
    readonly pool: Pool
    readonly meters: WebhookMetrics
  },
  endpoint: store.EndpointKey,
  reason: store.DisabledReason,
): Promise<void> {
  const { appId, id } = endpoint
  await tx(pool, async (db) => {
    const at = now()
    if (!(await store.disableEndpoint(db, endpoint, { at, reason }))) return
    await audit(db, {
      appId,
      actor: 'webhooks',
      action: 'webhook_endpoint_disabled',
      status: 'success',
      details: { endpointId: id, reason },
      at,
    })
    const data = { endpointId: id, reason }
    await enqueueNotice(db, { appId, type: 'webhook_endpoint.disabled', data, at })
    meters.disabled(reason)
    log.warn({ appId, endpointId: id, reason }, 'a webhook endpoint was disabled')
  })
}
