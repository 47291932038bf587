import { setTimeout as sleep } from 'node:timers/promises'
import { Counter, Gauge } from 'prom-client'
import type { Log } from './log.ts'
import type { Metrics } from './metrics.ts'

export interface Loop {
  /** Starts the next round now instead of later. */
  wake(): void
  /** Resolves when the running round has ended. No other round starts. */
  stop(): Promise<void>
}

export interface LoopOptions {
  readonly name: string
  readonly log: Log
  readonly metrics: Metrics
  /**
   * Pause between two rounds in milliseconds, varied by up to 10% so that replicas do not run in
   * step.
   */
  readonly pauseMs: number
  /** True if the caller has already run the first round. */
  readonly delayed?: boolean
  readonly round: (signal: AbortSignal) => Promise<unknown>
}

/** Repeats `round` until stopped. A failed round is logged, and the next one follows as usual. */
export function startLoop({ name, log, metrics, pauseMs, delayed, round }: LoopOptions): Loop {
  const meter = createLoopMeter(metrics, { name, pauseMs })
  const stopping = new AbortController()
  let awake = new AbortController()

  async function pause(): Promise<void> {
    const signal = AbortSignal.any([stopping.signal, awake.signal])
    await sleep(pauseMs * (0.9 + Math.random() / 5), undefined, { signal, ref: false }).catch(
      () => {},
    )
    awake = new AbortController()
  }

  async function run(): Promise<void> {
    if (delayed) await pause()
    while (!stopping.signal.aborted) {
      await round(stopping.signal).then(meter.succeeded, (error: unknown) => {
        if (stopping.signal.aborted) return
        meter.failed()
        log.warn({ err: error, loop: name }, 'a round failed; the next round runs as scheduled')
      })
      await pause()
    }
  }

  const running = run()
  return {
    wake: () => awake.abort(),
    stop: () => {
      stopping.abort()
      return running
    },
  }
}

/**
 * Metrics of periodic work. An alert compares the time since the last success with the pause. The
 * start counts as a success.
 */
export function createLoopMeter(
  metrics: Metrics,
  { name: loop, pauseMs }: Pick<LoopOptions, 'name' | 'pauseMs'>,
) {
  const { successes, pauses, failures } = loopMetrics(metrics)
  const succeeded = (): void => successes.set({ loop }, Date.now() / 1000)
  succeeded()
  pauses.set({ loop }, pauseMs / 1000)
  failures.inc({ loop }, 0)
  return { succeeded, failed: (): void => failures.inc({ loop }) }
}

const metricsByRegistry = new WeakMap<Metrics, ReturnType<typeof registerLoopMetrics>>()

/** Returns the metrics that all loops of a process share. */
function loopMetrics(metrics: Metrics) {
  const known = metricsByRegistry.get(metrics)
  if (known) return known
  const registered = registerLoopMetrics(metrics)
  metricsByRegistry.set(metrics, registered)
  return registered
}

function registerLoopMetrics(metrics: Metrics) {
  const options = { labelNames: ['loop'], registers: [metrics] }
  return {
    successes: new Gauge({
      ...options,
      name: 'tollgate_loop_success_timestamp_seconds',
      help: 'Time of the last successful round of periodic work, or of its start, in Unix seconds',
    }),
    pauses: new Gauge({
      ...options,
      name: 'tollgate_loop_pause_seconds',
      help: 'Pause between two rounds of periodic work',
    }),
    failures: new Counter({
      ...options,
      name: 'tollgate_loop_failures_total',
      help: 'Failed rounds of periodic work',
    }),
  }
}

export interface Backoff {
  readonly firstMs: number
  readonly lastMs: number
}

/**
 * The pause in milliseconds before the next attempt, after `failures` failures in a row (1 or
 * more). It doubles from `firstMs` to `lastMs`, less a random part of up to half, so that clients
 * that failed together do not retry together.
 */
export function backoffMs(failures: number, { firstMs, lastMs }: Backoff): number {
  const doubled = firstMs * 2 ** Math.min(Math.max(failures, 1) - 1, 30)
  return Math.min(doubled, lastMs) * (1 - Math.random() / 2)
}
