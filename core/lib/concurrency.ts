export interface ConcurrencyLimit {
  /** Maximum number of tasks that run at the same time. */
  readonly running: number
  /** Maximum number of tasks in the queue. Another task is rejected with `refusal`. */
  readonly waiting: number
  readonly refusal: () => Error
}

/** Limits how many tasks run at the same time. Throws `refusal` when the queue is full. */
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

  // The task that ended passes its slot to the next waiting task, so `busy` does not change.
  function wait(): Promise<void> {
    if (queue.length >= waiting) throw refusal()
    return new Promise((resolve) => queue.push(resolve))
  }
}

/**
 * Returns a function that runs tasks of the same key one after another, and tasks of different keys
 * concurrently.
 */
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
  /** Maximum number of keys in one look-up. */
  readonly batchMax?: number
  /** Number of concurrent look-ups. Up to three slow ones (50 ms or more) do not count. */
  readonly concurrency?: number
}

interface Waiting<Key, Value> {
  readonly key: Key
  resolve(value: Value): void
  reject(error: unknown): void
}

/**
 * Returns a function that looks up one key. Calls made in the same turn of the event loop share one
 * look-up, so that many callers cost one round trip. `load` takes the keys of a batch and returns a
 * function from key to value.
 *
 * A look-up starts after all the calls that it serves, so no result is older than its call and
 * nothing is cached. A failed look-up rejects every call of its batch, so callers must validate
 * keys first.
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
    // Start one turn later, so that requests that arrived together share a batch.
    if (queue.push({ key, resolve, reject }) === 1) setImmediate(startBatches)
    return promise
  }
}
