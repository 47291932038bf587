import type { Log } from '../lib/log.ts'
import { createLoopMeter } from '../lib/loop.ts'
import type { Metrics } from '../lib/metrics.ts'

const minuteMs = 60_000

/**
 * Runs `steps` one after another, every `everyMs`, by default once a minute. A failed step is logged and does not stop the
 * others: credits must expire and keys must rotate even if a deletion fails.
 */
export function startUpkeep(
  steps: readonly (() => Promise<unknown>)[],
  {
    log,
    metrics,
    everyMs = minuteMs,
  }: { readonly log: Log; readonly metrics: Metrics; readonly everyMs?: number | undefined },
) {
  const meter = createLoopMeter(metrics, { name: 'upkeep', pauseMs: everyMs })
  let running: Promise<void> = Promise.resolve()

  async function round(): Promise<void> {
    let failures = 0
    for (const step of steps) {
      await step().catch((error: unknown) => {
        failures++
        log.warn({ err: error }, 'upkeep failed; it runs again in a minute')
      })
    }
    if (failures === 0) meter.succeeded()
    else meter.failed()
  }

  const timer = setInterval(() => void (running = running.then(round)), everyMs)
  timer.unref()

  async function stop(): Promise<void> {
    clearInterval(timer)
    await running
  }

  return { stop }
}

const batchSize = 1_000
const batchesMax = 100
const roundMs = 10_000

/**
 * Deletes in short transactions until nothing is left, to keep pace with new rows. Stops after a
 * hundred thousand rows or ten seconds, so that other steps get their turn; the next minute
 * continues. `deleteBatch` deletes at most `limit` rows and returns their number.
 */
export async function deleteInBatches(
  deleteBatch: (limit: number) => Promise<number>,
): Promise<void> {
  const end = performance.now() + roundMs
  for (let batch = 0; batch < batchesMax && performance.now() < end; batch++)
    if ((await deleteBatch(batchSize)) < batchSize) return
}
