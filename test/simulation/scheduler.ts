/** A process of the simulation, with clocks of its own. */
export interface Process {
  readonly name: string
  /** Wall clock less true time, in milliseconds; a jump changes it. */
  skewMs: number
  /** False when it was killed: what it had planned never happens. */
  isAlive: boolean
  /** Frozen until then, by true time: its timers and messages wait. */
  frozenUntil: number
  /** For so long it was suspended with its machine: its monotonic clock stood still. */
  suspendedMs: number
}

export interface Timer {
  at: number
  order: number
  readonly process: Process | null
  /** Null when it was cancelled. */
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
 * True time, which only goes on from one event to the next. Times are milliseconds from the start of the simulation. Between two
 * events all promises settle, so that the whole simulation is deterministic although the code under test is asynchronous.
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

  /** Goes on to the next event, runs it and waits until every promise has settled. False when there is none until `until`. */
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
    /** The process whose event is running. */
    current: () => current,
  }
}

export type Scheduler = ReturnType<typeof createScheduler>

const isBefore = (a: Timer, b: Timer): boolean =>
  a.at < b.at || (a.at === b.at && a.order < b.order)

/** Resolves when no promise is left to settle: Node runs its next ticks only then. */
export const settle = (): Promise<void> => new Promise((resolve) => process.nextTick(resolve))
