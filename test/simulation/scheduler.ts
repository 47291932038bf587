/** A process of the simulation, with separate clocks. */
export interface Process {
  readonly name: string
  /** Wall clock minus true time, in milliseconds. A jump changes it. */
  skewMs: number
  /** False after it was killed. Its timers and messages are then dropped. */
  isAlive: boolean
  /** Frozen until this true time: its timers and messages wait. */
  frozenUntil: number
  /** Total time for which it was suspended with its machine and its monotonic clock stopped. */
  suspendedMs: number
}

export interface Timer {
  at: number
  order: number
  readonly process: Process | null
  /** Null if it was cancelled. */
  run: (() => void) | null
}

export const newProcess = (name: string, skewMs = 0): Process => ({
  name,
  skewMs,
  isAlive: true,
  frozenUntil: 0,
  suspendedMs: 0,
})

/**
 * True time, which advances from one event to the next. Times are milliseconds from the start of
 * the simulation. Between two events all promises settle, so that the whole simulation is
 * deterministic although the code under test is asynchronous.
 */
export function createScheduler() {
  const heap: Timer[] = []
  let now = 0
  let order = 0
  let current: Process | null = null

  /** Runs `run` as `process` after `delayMs`. */
  function schedule(process: Process | null, delayMs: number, run: () => void): Timer {
    const timer = { at: now + Math.max(0, delayMs), order: order++, process, run }
    push(timer)
    return timer
  }

  function cancel(timer: Timer): void {
    timer.run = null
  }

  /**
   * Advances to the next event, runs it, and waits until all promises have settled. Returns false
   * if there is no event up to `until`.
   */
  async function step(until: number): Promise<boolean> {
    for (;;) {
      const timer = heap[0]
      if (!timer || timer.at > until) {
        now = Math.max(now, until)
        return false
      }
      pop()
      const { process, run } = timer
      if (!run || (process && !process.isAlive)) continue
      if (process && process.frozenUntil > timer.at) {
        timer.at = process.frozenUntil
        push(timer)
        continue
      }
      now = timer.at
      current = process
      run()
      await settle()
      return true
    }
  }

  function push(timer: Timer): void {
    let place = heap.length
    while (place > 0) {
      const parent = (place - 1) >> 1
      const above = heap[parent]
      if (!above || isBefore(above, timer)) break
      heap[place] = above
      place = parent
    }
    heap[place] = timer
  }

  function pop(): void {
    const last = heap.pop()
    if (!last || heap.length === 0) return
    let place = 0
    for (;;) {
      const child = smallerChild(place)
      const below = heap[child]
      if (!below || isBefore(last, below)) break
      heap[place] = below
      place = child
    }
    heap[place] = last
  }

  function smallerChild(place: number): number {
    const [left, right] = [2 * place + 1, 2 * place + 2]
    const [a, b] = [heap[left], heap[right]]
    return a && b && isBefore(b, a) ? right : left
  }

  return {
    schedule,
    cancel,
    step,
    now: () => now,
    /** The process of the running event. */
    current: () => current,
  }
}

export type Scheduler = ReturnType<typeof createScheduler>

const isBefore = (a: Timer, b: Timer): boolean =>
  a.at < b.at || (a.at === b.at && a.order < b.order)

/** Resolves when all promises have settled, because Node runs its next ticks only then. */
export const settle = (): Promise<void> => new Promise((resolve) => process.nextTick(resolve))
