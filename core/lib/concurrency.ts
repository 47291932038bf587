import { DomainError } from '../../proto/errors.ts'

/** Runs so many at once and lets so many wait; RATE_LIMITED for who comes after those. */
export function createTurns({ running, waiting }: { running: number; waiting: number }) {
  const queue: (() => void)[] = []
  let busy = 0

  return async function inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (busy < running) busy++
    else await wait()
    try {
      return await work()
    } finally {
      const next = queue.shift()
      if (next) next()
      else busy--
    }
  }

  // The turn passes from who is done to who waits, so `busy` stays as it is.
  function wait(): Promise<void> {
    if (queue.length >= waiting)
      throw new DomainError('RATE_LIMITED', 'too many people log in at this moment; try again')
    return new Promise((resolve) => queue.push(resolve))
  }
}
