import type { Log } from '../lib/log.ts'

const everyMs = 60_000

/** Runs `steps` one after the other once a minute. A step that fails ends the round; the next round begins anew. */
export function startUpkeep(steps: readonly (() => Promise<unknown>)[], log: Log) {
  let running: Promise<void> = Promise.resolve()

  async function round(): Promise<void> {
    for (const step of steps) await step()
  }

  const timer = setInterval(() => {
    running = running
      .then(round)
      .catch((error: unknown) =>
        log.warn({ err: error }, 'upkeep failed; it runs again in a minute'),
      )
  }, everyMs)
  timer.unref()

  async function stop(): Promise<void> {
    clearInterval(timer)
    await running
  }

  return { stop }
}
