import { setTimeout as sleep } from 'node:timers/promises'
import { Gauge } from 'prom-client'
import { DomainError } from '../../../../proto/errors.ts'
import { type Backoff, backoffMs } from '../../../lib/loop.ts'
import type { Log } from '../../../lib/log.ts'
import type { Metrics } from '../../../lib/metrics.ts'
import type { Now } from '../../../lib/time.ts'
import type { Destination } from '../../../shared/outbox/types.ts'
import type { MeterQuery, MeterRow, MeteringBackend } from '../backend.ts'
import type { PlanCatalog } from '../plans.ts'
import type { FindSubscriber } from '../subscribers.ts'
import type { OpenMeterConfig } from '../config.ts'
import {
  createCreditsDestination,
  createCustomersDestination,
  createEventsDestination,
  createSubscriptionsDestination,
} from './delivery.ts'
import type { Failure } from './http.ts'
import { createOpenMeterClient } from './client.ts'

export interface OpenMeterDeps {
  readonly config: OpenMeterConfig
  readonly log: Log
  readonly metrics: Metrics
  readonly now: Now
  readonly findSubscriber: FindSubscriber
  /** Pauses between attempts to prepare the meters; shorter in tests. */
  readonly backoff?: Backoff
}

// How long the last known state of the backend is trusted before a caller probes again.
const trustedMs = 5_000
// Short, because a caller waits for the probe.
const probeMs = 2_000

/**
 * OpenMeter as the metering backend: receives events and customers from the outbox, serves queries,
 * and reports its state.
 */
export function createOpenMeter({
  config,
  log,
  metrics,
  now,
  findSubscriber,
  backoff = { firstMs: 1_000, lastMs: 60_000 },
}: OpenMeterDeps): MeteringBackend {
  const client = createOpenMeterClient(config, now)
  const stopping = new AbortController()
  let prepared = false
  let problem: string | null = null
  let notedAt = -Infinity
  let running: Promise<void> = Promise.resolve()
  let probing: Promise<unknown> | null = null
  metrics.registerMetric(
    new Gauge({
      name: 'tollgate_metering_backend_up',
      help: '1 when the metering backend answers and its meters are correct',
      registers: [],
      collect() {
        this.set(prepared && problem === null ? 1 : 0)
      },
    }),
  )

  /**
   * Updates the known state from a request's result. Logs a problem once, and again when it
   * changes.
   */
  function note<T extends Failure | { kind: 'different'; why: string } | null>(result: T): T {
    if (stopping.signal.aborted) return result
    // A refused or broken result concerns only that request; the backend is reachable.
    const bad =
      result !== null &&
      (result.kind === 'away' || result.kind === 'misconfigured' || result.kind === 'different')
    const next = bad ? result.why : null
    if (next !== null && next !== problem)
      log.error(
        { backend: 'openmeter', problem: next },
        'the metering backend cannot be used; deliveries to it wait',
      )
    if (next === null && problem !== null)
      log.info({ backend: 'openmeter' }, 'the metering backend answers again')
    problem = next
    notedAt = performance.now()
    return result
  }

  async function prepare(): Promise<void> {
    for (let failures = 1; !stopping.signal.aborted; failures++) {
      const result = note(await client.provision(stopping.signal))
      if (result === null) {
        prepared = true
        log.info({ backend: 'openmeter' }, 'the meters of the metering backend are ready')
        return
      }
      if (result.kind === 'refused' || result.kind === 'broken')
        log.warn({ problem: result.why }, 'the meters cannot be prepared; retrying')
      const retryAfterMs = 'retryAfterMs' in result ? (result.retryAfterMs ?? 0) : 0
      await sleep(Math.max(backoffMs(failures, backoff), retryAfterMs), undefined, {
        signal: stopping.signal,
        ref: false,
      }).catch(() => {})
    }
  }

  const ready = (): boolean => prepared
  const { batchSize } = config
  const destinations = destinationsOf(client, { batchSize, ready, note, findSubscriber })

  async function query(request: MeterQuery, signal?: AbortSignal): Promise<MeterRow[]> {
    const result = await client.queryMeter(request, signal)
    if (Array.isArray(result)) {
      note(null)
      return result
    }
    // An aborted request gives no information about the backend.
    if (!signal?.aborted) note(result)
    throw unreachable(result.why)
  }

  async function putPlan(...[plan, remote, signal]: Parameters<PlanCatalog['put']>) {
    const result = await client.plans.put(plan, remote, signal)
    if ('id' in result) return result.id
    if (!signal.aborted) note(result)
    throw planFault(result)
  }

  async function withdrawPlan(...[key, signal]: Parameters<PlanCatalog['withdraw']>) {
    const failure = await client.plans.withdraw(key, signal)
    if (failure === null) return
    if (!signal.aborted) note(failure)
    throw planFault(failure)
  }

  async function requireAnswers(): Promise<void> {
    if (performance.now() - notedAt > trustedMs && prepared) await probe()
    if (!prepared || problem !== null)
      throw unreachable(problem ?? 'the meters are not prepared yet')
  }

  // One probe serves all concurrent callers: the smallest possible query, for an app that does not
  // exist.
  function probe(): Promise<unknown> {
    const signal = AbortSignal.any([stopping.signal, AbortSignal.timeout(probeMs)])
    probing ??= client
      .queryMeter(
        {
          meter: 'signed_ticket_count',
          clientId: 'none',
          groupBy: [],
          from: new Date(0),
          to: new Date(60_000),
        },
        signal,
      )
      // If so small a query fails in any way, larger ones will fail, too.
      .then((result) => note(Array.isArray(result) ? null : { ...result, kind: 'away' }))
      .finally(() => {
        probing = null
      })
    return probing
  }

  return {
    name: 'openmeter',
    destinations,
    plans: { put: putPlan, withdraw: withdrawPlan },
    query,
    requireAnswers,
    start: () => {
      running = prepare()
    },
    stop: async () => {
      stopping.abort()
      await running
    },
    ready: () => ({ openmeter: prepared && problem === null }),
  }
}

type Note = <T extends Failure | null>(result: T) => T

/** Destinations of the outbox: events, customers, credits and subscriptions. */
const destinationsOf = (
  client: ReturnType<typeof createOpenMeterClient>,
  {
    batchSize,
    ready,
    note,
    findSubscriber,
  }: {
    readonly batchSize: number
    readonly ready: () => boolean
    readonly note: Note
    readonly findSubscriber: FindSubscriber
  },
): Destination[] => [
  createEventsDestination({
    batchSize,
    ready,
    ingest: async (events, signal) => note(await client.ingest(events, signal)),
  }),
  createCustomersDestination({
    ready,
    ensureCustomer: async (customer, signal) => note(await client.ensureCustomer(customer, signal)),
  }),
  createCreditsDestination({
    ready,
    createCredit: async (credit, signal) => note(await client.grantCredit(credit, signal)),
  }),
  createSubscriptionsDestination({
    ready,
    findSubscriber,
    subscribe: async (customer, subscriber, signal) =>
      note(await client.subscribe(customer, subscriber, signal)),
  }),
]

/** Hides the reason from callers: it is the cause, for operators. */
const unreachable = (why: string): DomainError =>
  new DomainError('METERING_UNREACHABLE', 'the metering backend does not answer now', {
    cause: new Error(why),
  })

/**
 * A plan that the backend rejects is its owner's responsibility; all other failures are the
 * operator's.
 */
function planFault({ kind, why }: Failure): DomainError {
  const cause = new Error(why)
  if (kind === 'refused')
    return new DomainError('PLAN_UNSYNCABLE', `the metering backend refuses the plan: it ${why}`, {
      cause,
    })
  return kind === 'broken'
    ? new DomainError('METERING_FAILED', 'the metering backend failed to process the plan', {
        cause,
      })
    : unreachable(why)
}
