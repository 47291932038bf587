export interface ConcurrencyLimit {
  /** The most tasks that run at the same time. */
  readonly running: number
  /** The most tasks that wait for one to end; one more is refused. */
  readonly waiting: number
  readonly refusal: () => Error
}

/** Limits how many tasks run at the same time. Throws `refusal` when too many wait already. */
export function limitConcurrency({ running, waiting, refusal }: ConcurrencyLimit) {
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

  // The task that ended passes its place to the one that waits, so `busy` does not change.
  function wait(): Promise<void> {
    if (queue.length >= waiting) throw refusal()
    return new Promise((resolve) => queue.push(resolve))
  }
}

/** Returns a function that runs the tasks of one key one after the other, and those of different keys at the same time. */
export function createKeyedLock() {
  const lasts = new Map<string, Promise<unknown>>()

  return async function locked<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = lasts.get(key) ?? Promise.resolve()
    const running = before.then(work, work)
    lasts.set(key, running)
    try {
      return await running
    } finally {
      if (lasts.get(key) === running) lasts.delete(key)
    }
  }
}

const slowMs = 50
const slowMax = 3

export interface BatchLoaderOptions {
  /** Most keys of one look-up. */
  readonly batchMax?: number
  /** Look-ups under way at the same time; up to three slow ones (50 ms and more) do not count. */
  readonly concurrency?: number
}

interface Waiting<Key, Value> {
  readonly key: Key
  resolve(value: Value): void
  reject(error: unknown): void
}

/**
 * Returns a function that looks up one key, and answers the calls of the same turn of the event loop
 * by one look-up: a round trip for many callers instead of one for each. `load` takes the keys of a
 * batch and returns a function from key to value.
 *
 * A look-up starts after all calls that it answers, so no answer is older than its call and nothing
 * is cached. A look-up that fails rejects every call of its batch, so callers check keys before.
 */
export function createBatchLoader<Key, Value>(
  load: (keys: readonly Key[]) => Promise<(key: Key) => Value>,
  { batchMax = 64, concurrency = 2 }: BatchLoaderOptions = {},
): (key: Key) => Promise<Value> {
  const queue: Waiting<Key, Value>[] = []
  let running = 0
  let slow = 0

  function startBatches(): void {
    while (queue.length > 0 && running - Math.min(slow, slowMax) < concurrency)
      void runBatch(queue.splice(0, batchMax))
  }

  async function runBatch(batch: readonly Waiting<Key, Value>[]): Promise<void> {
    let isSlow = false
    const timer = setTimeout(() => {
      isSlow = true
      slow++
      startBatches()
    }, slowMs)
    running++
    try {
      const valueOf = await load(batch.map(({ key }) => key))
      for (const { key, resolve } of batch) resolve(valueOf(key))
    } catch (error) {
      for (const { reject } of batch) reject(error)
    }
    clearTimeout(timer)
    running--
    if (isSlow) slow--
    setImmediate(startBatches)
  }

  return (key) => {
    const { promise, resolve, reject } = Promise.withResolvers<Value>()
    // Starts one turn later, so that the requests that arrived with this one are in the same batch.
    if (queue.push({ key, resolve, reject }) === 1) setImmediate(startBatches)
    return promise
  }
}
