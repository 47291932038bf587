import type { Log } from '../../core/lib/log.ts'
import { settlesWithin } from '../../core/lib/process.ts'

export type Stop = () => Promise<void>
export type Stage = (typeof stages)[number]['name']

/**
 * The stages of stopping, in order: a part stops before the parts that its answers need. A stage
 * that does not finish in time continues to drain while the next one starts, so that everything
 * ends within four seconds.
 */
const stages = [
  { name: 'gateway', untilMs: 1_000 },
  { name: 'sidecar', untilMs: 2_000 },
  { name: 'core', untilMs: 3_200 },
  { name: 'telemetry', untilMs: 3_600 },
  { name: 'database', untilMs: 4_000 },
] as const

/** Collects the stop functions of the parts that have started. */
export function createStopping(log: Log) {
  const parts: { readonly stage: Stage; readonly stop: Stop }[] = []
  const add = (stage: Stage, stop: Stop): void => void parts.push({ stage, stop })

  /**
   * Stops everything; resolves to true when every part has stopped. Rejects, at the end, with the
   * first failure.
   */
  async function stop(): Promise<boolean> {
    const startedAt = performance.now()
    const failures: unknown[] = []
    let running = parts.length
    const stopOne = (part: Stop): Promise<unknown> =>
      part()
        .catch((error: unknown) => failures.push(error))
        .finally(() => {
          running -= 1
        })
    for (const { name, untilMs } of stages) {
      const all = Promise.all(
        parts.filter(({ stage }) => stage === name).map((part) => stopOne(part.stop)),
      )
      const inTime = await settlesWithin(all, startedAt + untilMs - performance.now())
      if (!inTime)
        log.warn({ stage: name }, 'did not stop in time; the process stops without waiting for it')
    }
    if (failures.length > 0) throw failures[0]
    return running === 0
  }

  return { add, stop }
}

export type Stopping = ReturnType<typeof createStopping>
