import { setTimeout as sleep } from 'node:timers/promises'

interface Attempt {
  readonly startedAt: number
  readonly endedAt: number
  readonly isOk: boolean
}

export interface Recovery {
  /** Milliseconds from the reference instant to the first success of an unbroken series. */
  readonly ms: number
  /** Failed attempts since the outage began. */
  readonly failed: number
}

/** A series is unbroken when it lasts this long and has this many attempts. */
const steadyMs = 3_000
const steadyCount = 4
const giveUpMs = 60_000

/** Attempts of one kind in time, from which the end of an outage is read. */
export function createTimeline() {
  const attempts: Attempt[] = []
  let failures = 0

  /** Makes an attempt and records it. Returns its value; null if it failed. */
  async function attempt<T>(work: () => Promise<T | null>): Promise<T | null> {
    const startedAt = performance.now()
    const value = await work().catch(() => null)
    attempts.push({ startedAt, endedAt: performance.now(), isOk: value !== null })
    if (value === null) failures += 1
    return value
  }

  /**
   * Waits until attempts succeed again. `began` is the start of the outage, `from` the instant from
   * which the time counts. Null if they do not within a minute.
   */
  async function recovery(began: number, from: number): Promise<Recovery | null> {
    for (const until = performance.now() + giveUpMs; performance.now() < until; await sleep(100)) {
      const since = attempts
        .filter(({ endedAt }) => endedAt >= began)
        .sort((a, b) => a.startedAt - b.startedAt)
      const lastFailure = since.findLastIndex(({ isOk }) => !isOk)
      const series = since.slice(lastFailure + 1).filter(({ startedAt }) => startedAt >= from)
      const [first] = series
      const isSteady = first !== undefined && performance.now() - first.endedAt >= steadyMs
      if (!isSteady || series.length < steadyCount) continue
      const failed = since.filter(({ isOk }) => !isOk).length
      return { ms: failed === 0 ? 0 : Math.max(0, first.endedAt - from), failed }
    }
    return null
  }

  return { attempt, recovery, count: () => ({ all: attempts.length, failed: failures }) }
}

export type Timeline = ReturnType<typeof createTimeline>
