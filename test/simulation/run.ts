import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import type { Failure, SeedsAnswer, SeedsRequest } from './worker.ts'

export interface RunOptions {
  readonly from: number
  readonly seeds: number
  readonly workers: number
  /** The name of a defect to find (`mutations.ts`, `source-mutations.ts`). */
  readonly mutation?: string
  /** Whether the history of a failure is shortened. Default is true. */
  readonly shrinks?: boolean
  readonly onProgress?: (run: RunSums) => void
}

export interface RunSums {
  readonly seeds: number
  readonly events: number
  readonly allowed: number
}

export interface Run extends RunSums {
  readonly failures: readonly Failure[]
}

const chunk = 100

/** Runs seeds in several threads until one fails or all are done. */
export async function runSeeds({
  from,
  seeds,
  workers,
  mutation = '',
  shrinks = true,
  onProgress = () => {},
}: RunOptions): Promise<Run> {
  const sums = { seeds: 0, events: 0, allowed: 0 }
  const failures: Failure[] = []
  let next = from

  async function work(): Promise<void> {
    const worker = new Worker(new URL('./worker.ts', import.meta.url), { workerData: mutation })
    try {
      while (next < from + seeds && failures.length === 0) {
        const count = Math.min(chunk, from + seeds - next)
        const request: SeedsRequest = { from: next, count, shrinks }
        next += request.count
        worker.postMessage(request, [])
        const [answer]: SeedsAnswer[] = await once(worker, 'message')
        if (!answer) throw new Error('a worker answers nothing')
        sums.seeds += answer.count
        sums.events += answer.events
        sums.allowed += answer.allowed
        if (answer.failure) failures.push(answer.failure)
        onProgress(sums)
      }
    } finally {
      await worker.terminate()
    }
  }

  await Promise.all(Array.from({ length: workers }, work))
  return { ...sums, failures: failures.toSorted((a, b) => a.seed - b.seed) }
}

/** Formats a failure: its history, and the command to repeat it. */
export const failureText = ({ seed, lines }: Failure): string =>
  [`seed ${seed} (npm run simulate -- --from ${seed} --seeds 1):`, ...lines].join('\n')
