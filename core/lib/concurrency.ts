import { DomainError } from '../../proto/errors.ts'

export interface ConcurrencyLimit {
  /** Works that run at the same time. */
  readonly running: number
  /** Works that wait for their turn; one more is refused. */
  readonly waiting: number
}

/** Limits how many works run at once; RATE_LIMITED when too many wait already. */
export function limitConcurrency({ running, waiting }: ConcurrencyLimit) {
  const queue: (() => void)[] = []
  let busy = 0

  return async function limited<T>(work: () => Promise<T>): Promise<T> {
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

  // The place passes from the work that ended to the one that waits, so `busy` stays as it is.
  function wait(): Promise<void> {
    if (queue.length >= waiting)
      throw new DomainError('RATE_LIMITED', 'too many people log in at this moment; try again')
    return new Promise((resolve) => queue.push(resolve))
  }
}
