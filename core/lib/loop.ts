import { setTimeout as sleep } from 'node:timers/promises'
import type { Log } from './log.ts'

export interface Loop {
  /** Starts the next round now instead of later. */
  wake(): void
  /** Ends after the running round. */
  stop(): Promise<void>
}

export interface LoopOptions {
  readonly name: string
  readonly log: Log
  /** Pause between two rounds in milliseconds, varied by a tenth so that replicas part. */
  readonly pauseMs: number
  /** True when the first round was already done by whoever starts the loop. */
  readonly delayed?: boolean
  readonly round: (signal: AbortSignal) => Promise<unknown>
}

/** Repeats `round` until stopped. A round that fails is logged and the next one comes. */
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
          log.warn({ err: error, loop: name }, 'a round failed; the next one comes')
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
