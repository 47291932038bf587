import { syncBuiltinESMExports } from 'node:module'
import timersPromises from 'node:timers/promises'
import type { Scheduler, Timer } from './scheduler.ts'

/** Start of the simulation in Unix milliseconds. */
export const epochMs = Date.UTC(2026, 0, 15)

/**
 * Replaces the timers and clocks of this thread by virtual time, permanently. The code under test
 * then waits in the running simulation, as the running process. Must be called before the code
 * under test is imported.
 */
export function installVirtualTime(): {
  run: (scheduler: Scheduler, random: () => number) => void
} {
  let scheduler: Scheduler | null = null

  const running = (): Scheduler => {
    if (!scheduler) throw new Error('no simulation runs')
    return scheduler
  }
  // Modules read it while they load, before a simulation runs.
  const wall = (): number => epochMs + (scheduler?.now() ?? 0) + (scheduler?.current()?.skewMs ?? 0)

  function after(work: () => void, delayMs: number, isRepeated: boolean): object {
    const owner = running()
    const process = owner.current()
    const start = (): Timer => owner.schedule(process, Math.max(1, delayMs), fire)
    let timer = start()
    function fire(): void {
      if (isRepeated) timer = start()
      work()
    }
    const handle = {
      ref: () => handle,
      unref: () => handle,
      hasRef: () => true,
      refresh: () => (owner.cancel(timer), (timer = start()), handle),
      close: () => (owner.cancel(timer), handle),
      [Symbol.dispose]: () => owner.cancel(timer),
    }
    return handle
  }
  const stop = (handle: unknown): void => {
    if (
      typeof handle === 'object' &&
      handle &&
      'close' in handle &&
      typeof handle.close === 'function'
    )
      handle.close()
  }

  type Work = (...values: unknown[]) => void
  const setVirtualTimeout = (work: Work, delayMs = 0, ...values: unknown[]): object =>
    after(() => work(...values), delayMs, false)
  const setVirtualInterval = (work: Work, delayMs = 0, ...values: unknown[]): object =>
    after(() => work(...values), delayMs, true)
  const setVirtualImmediate = (work: Work, ...values: unknown[]): object =>
    after(() => work(...values), 0, false)

  function sleep(delayMs = 0, value?: unknown, options: { signal?: AbortSignal } = {}) {
    const { signal } = options
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason)
      const handle = setVirtualTimeout(() => resolve(value), delayMs)
      signal?.addEventListener('abort', () => (stop(handle), reject(signal.reason)), { once: true })
    })
  }

  Object.assign(globalThis, {
    setTimeout: setVirtualTimeout,
    setInterval: setVirtualInterval,
    setImmediate: setVirtualImmediate,
    clearTimeout: stop,
    clearInterval: stop,
    clearImmediate: stop,
  })
  Object.assign(timersPromises, {
    setTimeout: sleep,
    setImmediate: (value?: unknown) => sleep(0, value),
  })
  Object.assign(Date, { now: wall })
  // A clock that never jumps.
  Object.defineProperty(performance, 'now', { value: () => scheduler?.now() ?? 0 })
  syncBuiltinESMExports()

  /** Makes `next` the running simulation, and `random` its `Math.random`. */
  function run(next: Scheduler, random: () => number): void {
    scheduler = next
    Object.assign(Math, { random })
  }

  return { run }
}

export type VirtualTime = ReturnType<typeof installVirtualTime>
