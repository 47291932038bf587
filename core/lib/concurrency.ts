import { setImmediate as nextTurn } from 'node:timers/promises'

export interface SemaphoreOptions {
  /** Maximum number of holders of one key. */
  readonly running: number
  /** Maximum number of waiters for one key. Another one is rejected with `refusal`. */
  readonly waiting?: number
  readonly refusal?: () => Error
}

/** Limits the concurrent holders of each key; others wait in order of arrival. */
export function createKeyedSemaphore({
  running,
  waiting = Infinity,
  refusal = () => new Error('the queue is full'),
}: SemaphoreOptions) {
  const places = new Map<string, { holders: number; readonly queue: (() => void)[] }>()

  /** Resolves with the function that leaves. Rejects with `refusal` when the queue is full. */
  async function enter(key: string): Promise<() => void> {
    const place = places.get(key) ?? { holders: 0, queue: [] }
    places.set(key, place)
    if (place.holders < running) place.holders++
    else if (place.queue.length >= waiting) throw refusal()
    else await new Promise<void>((resolve) => place.queue.push(resolve))
    // A holder that leaves passes its place to the next waiter, so `holders` does not change.
    return () => {
      const next = place.queue.shift()
      if (next) return next()
      place.holders--
      if (place.holders === 0) places.delete(key)
    }
  }

  /** Runs `work` as a holder of `key`. */
  async function run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const leave = await enter(key)
    try {
      return await work()
    } finally {
      leave()
    }
  }

  return { enter, run }
}

const slowMs = 50

export interface BatchLoaderOptions {
  /** Maximum number of keys in one look-up. */
  readonly batchMax?: number
  /** Number of concurrent look-ups. */
  readonly concurrency?: number
  /** Number of slow look-ups (50 ms or more) that do not count as concurrent. */
  readonly slowMax?: number
  /**
   * Waits for further calls before a look-up; `queued` returns their number. Null starts the
   * look-up immediately. Default is one turn of the event loop.
   */
  readonly pause?: (running: number, queued: () => number) => Promise<unknown> | null
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
  {
    batchMax = 64,
    concurrency = 2,
    slowMax = 3,
    pause = () => nextTurn(),
  }: BatchLoaderOptions = {},
): (key: Key) => Promise<Value> {
  const queue: Waiting<Key, Value>[] = []
  let running = 0
  let slow = 0
  let isPaused = false

  const canStart = (): boolean =>
    queue.length > 0 && running - Math.min(slow, slowMax) < concurrency

  function start(): void {
    if (isPaused || !canStart()) return
    const paused = pause(running, () => queue.length)
    if (paused === null) return void runBatch()
    isPaused = true
    void paused.then(() => {
      isPaused = false
      while (canStart()) void runBatch()
    })
  }

  async function runBatch(): Promise<void> {
    const batch = queue.splice(0, batchMax)
    let isSlow = false
    const timer = setTimeout(() => {
      isSlow = true
      slow++
      start()
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
    start()
  }

  return (key) => {
    const { promise, resolve, reject } = Promise.withResolvers<Value>()
    queue.push({ key, resolve, reject })
    start()
    return promise
  }
}

/**
 * The same for calls that are answered in order: `send` returns one answer for each call. Equal
 * calls stay separate.
 */
export function createCallBatcher<Call, Answer>(
  send: (calls: Call[]) => Promise<readonly Answer[]>,
  options?: BatchLoaderOptions,
): (call: Call) => Promise<Answer> {
  const answerTo = createBatchLoader(async (boxed: readonly { readonly call: Call }[]) => {
    const answers = await send(boxed.map(({ call }) => call))
    if (answers.length !== boxed.length)
      throw new Error('a batch has a different number of calls and answers')
    const places = new Map(boxed.map((box, index) => [box, index]))
    return (box) => answers[places.get(box) ?? 0] as Answer
  }, options)
  return (call) => answerTo({ call })
}
