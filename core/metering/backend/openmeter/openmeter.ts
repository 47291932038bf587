import { setTimeout as sleep } from 'node:timers/promises'
import { Gauge } from 'prom-client'
import { DomainError } from '../../../../proto/errors.ts'
import type { Log } from '../../../lib/log.ts'
import type { Metrics } from '../../../lib/metrics.ts'
import type { MeterQuery, MeterRow, MeteringBackend } from '../backend.ts'
import type { OpenMeterConfig } from '../config.ts'
import { createCustomersDestination } from '../deliver-customers.ts'
import { createEventsDestination } from '../deliver-events.ts'
import type { Failure } from './http.ts'
import { createOpenMeterClient } from './client.ts'

export interface OpenMeterDeps {
  readonly config: OpenMeterConfig
  readonly log: Log
  readonly metrics: Metrics
  /** First and longest pause between two tries to prepare the meters; shorter in tests. */
  readonly pauseMs?: { readonly first: number; readonly last: number }
}

// How long what was last seen of the backend is believed before somebody who needs to know asks again.
const believedMs = 5_000
// Somebody waits for the answer to something else meanwhile.
const askMs = 2_000

/** OpenMeter as the backend: events and customers from the outbox, sums for whoever asks, and whether it answers. */
export function createOpenMeter({
  config,
  log,
  metrics,
  pauseMs = { first: 1_000, last: 60_000 },
}: OpenMeterDeps): MeteringBackend {
  const client = createOpenMeterClient(config)
  const stopping = new AbortController()
  let prepared = false
  let problem: string | null = null
  let seenAt = -Infinity
  let running: Promise<void> = Promise.resolve()
  let asking: Promise<unknown> | null = null
  metrics.registerMetric(
    new Gauge({
      name: 'metering_backend_up',
      help: '1 when the metering backend answers and its meters are as they should be',
      registers: [],
      collect() {
        this.set(prepared && problem === null ? 1 : 0)
      },
    }),
  )

  /** Remembers what a request showed; a problem is told once, and again when it has changed. */
  function seen<T extends Failure | { kind: 'different'; why: string } | null>(result: T): T {
    if (stopping.signal.aborted) return result
    // What is refused or broken is the matter of one request; the backend is there.
    const bad =
      result !== null &&
      (result.kind === 'away' || result.kind === 'misconfigured' || result.kind === 'different')
    const next = bad ? result.why : null
    if (next !== null && next !== problem)
      log.error(
        { backend: 'openmeter', problem: next },
        'the metering backend cannot be used; what is for it waits',
      )
    if (next === null && problem !== null)
      log.info({ backend: 'openmeter' }, 'the metering backend answers again')
    problem = next
    seenAt = performance.now()
    return result
  }

  async function prepare(): Promise<void> {
    for (let failures = 0; !stopping.signal.aborted; failures++) {
      const result = seen(await client.provision(stopping.signal))
      if (result === null) {
        prepared = true
        log.info({ backend: 'openmeter' }, 'the meters of the metering backend are ready')
        return
      }
      if (result.kind === 'refused' || result.kind === 'broken')
        log.warn({ problem: result.why }, 'the meters cannot be prepared; they are tried again')
      const pause =
        Math.min(pauseMs.last, pauseMs.first * 2 ** Math.min(failures, 16)) *
        (0.5 + Math.random() / 2)
      await sleep(
        Math.max(pause, 'retryAfterMs' in result ? (result.retryAfterMs ?? 0) : 0),
        undefined,
        { signal: stopping.signal, ref: false },
      ).catch(() => {})
    }
  }

  const ready = (): boolean => prepared
  const destinations = [
    createEventsDestination({
      batchSize: config.batchSize,
      ready,
      ingest: async (events, signal) => seen(await client.ingest(events, signal)),
    }),
    createCustomersDestination({
      ready,
      ensureCustomer: async (customer, signal) =>
        seen(await client.ensureCustomer(customer, signal)),
    }),
  ]

  async function query(asked: MeterQuery, signal?: AbortSignal): Promise<MeterRow[]> {
    const result = await client.queryMeter(asked, signal)
    if (Array.isArray(result)) {
      seen(null)
      return result
    }
    // A caller who has gone says nothing about the backend.
    if (!signal?.aborted) seen(result)
    throw unreachable(result.why)
  }

  async function requireAnswers(): Promise<void> {
    if (performance.now() - seenAt > believedMs && prepared) await ask()
    if (!prepared || problem !== null)
      throw unreachable(problem ?? 'the meters are not prepared yet')
  }

  // One question for all who want to know at once: the smallest sum there is, of nobody's usage.
  function ask(): Promise<unknown> {
    const signal = AbortSignal.any([stopping.signal, AbortSignal.timeout(askMs)])
    asking ??= client
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
      // Whatever is wrong with so small a question, greater ones will not be answered.
      .then((result) => seen(Array.isArray(result) ? null : { ...result, kind: 'away' }))
      .finally(() => {
        asking = null
      })
    return asking
  }

  return {
    name: 'openmeter',
    destinations,
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

/** What went wrong is for operators; a caller hears only that it did. */
const unreachable = (why: string): DomainError =>
  new DomainError('METERING_UNREACHABLE', 'the metering backend does not answer now', {
    cause: new Error(why),
  })
