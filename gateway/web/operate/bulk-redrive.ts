import { useEffect, useRef, useState } from 'react'
import { type RedriveProgress, redriveReason, useQuarantineRefresh } from '../api/quarantine.ts'

export interface Progress {
  readonly reason: string
  /** Events with the reason at the start. */
  readonly count: number
  readonly redriven: number
  /** Events that stay in quarantine. */
  readonly left: number
  /** Why the first of them stay. */
  readonly problems: RedriveProgress['left']
  readonly isDone: boolean
}

const problemsMax = 5

export type BulkRedrive = ReturnType<typeof useBulkRedrive>

/**
 * Redrives all events with a reason, call by call, so that the number rises. Stopping it or leaving
 * the view ends it within seconds.
 */
export function useBulkRedrive() {
  const refresh = useQuarantineRefresh()
  const [progress, setProgress] = useState<Progress | null>(null)
  const [error, setError] = useState<Error | null>(null)
  const [isRunning, setIsRunning] = useState(false)
  const running = useRef<AbortController>(null)
  useEffect(() => () => running.current?.abort(), [])

  async function run(job: Pick<Progress, 'reason' | 'count'>, signal: AbortSignal): Promise<void> {
    let done: Progress = { ...job, redriven: 0, left: 0, problems: [], isDone: false }
    setProgress(done)
    for (let cursor: string | undefined; !done.isDone && !signal.aborted;) {
      const page = await redriveReason({ reason: job.reason, cursor, signal })
      cursor = page.nextCursor
      done = {
        ...done,
        redriven: done.redriven + page.redriven,
        left: done.left + page.left.length,
        problems: [...done.problems, ...page.left].slice(0, problemsMax),
        isDone: cursor === undefined,
      }
      setProgress(done)
    }
  }

  const start = (reason: string, count: number): void => {
    const controller = new AbortController()
    running.current = controller
    setError(null)
    setIsRunning(true)
    void run({ reason, count }, controller.signal)
      .catch((problem: unknown) => {
        if (controller.signal.aborted) return
        setError(problem instanceof Error ? problem : new Error(String(problem)))
      })
      .finally(() => {
        setIsRunning(false)
        void refresh()
      })
  }
  return { progress, error, isRunning, start, stop: () => running.current?.abort() }
}
