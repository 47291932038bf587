import { setTimeout as sleep } from 'node:timers/promises'
import type { Log } from './log.ts'

export interface Loop {
  /** Starts the next round now instead of later. */
  wake(): void
  /** Resolves when the running round has ended. No other round starts. */
  stop(): Promise<void>
}

export interface LoopOptions {
  readonly name: string
  readonly log: Log
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
export function startLoop({ name, log, pauseMs, delayed, round }: LoopOptions): Loop {
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
      await round(stopping.signal).catch((error: unknown) => {
        if (!stopping.signal.aborted)
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
