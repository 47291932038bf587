/** One event, encoded once, so that a duplicate has identical bytes. */
export type EncodedEvent = Readonly<{ id: string; type: string; bytes: string }>

/** Receives events. A rejected send loses the batch, as in go-livepeer. */
export type Sink = Readonly<{
  send: (events: readonly EncodedEvent[]) => Promise<void>
  /** Waits, for a limited time, until the sink has delivered its events. */
  flush: () => Promise<void>
  close: () => Promise<void>
  /** Number of accepted events that are not delivered yet; absent if the sink delivers at once. */
  backlog?: () => number
}>

/** Probabilities in [0, 1]; the delay is the upper bound of a random one, in milliseconds. */
export type Faults = Readonly<{ drop: number; duplicate: number; reorder: number; delayMs: number }>

export const NO_FAULTS: Faults = { drop: 0, duplicate: 0, reorder: 0, delayMs: 0 }

export type QueueOptions = Readonly<{
  sink: Sink
  faults: Faults
  random: () => number
  /** go-livepeer queues 100 events and drops further ones. */
  capacity: number
}>

export type QueueStats = {
  emitted: number
  /** Lost by the configured fault. */
  dropped: number
  /** Lost because the queue was full. */
  overflowed: number
  duplicated: number
  reordered: number
  delivered: number
  /** Passed to a sink that failed. */
  lost: number
}

export type LossyQueue = Readonly<{
  /** Returns false if the event is lost. */
  push: (event: EncodedEvent) => boolean
  /** Sends all queued events without their remaining delay, and waits for the sink. */
  flush: () => Promise<void>
  stop: () => Promise<void>
  stats: () => Readonly<QueueStats>
}>

type Waiting = { readonly event: EncodedEvent; readonly delayMs: number; due: number }

const BATCH = 100
const LONGEST_POSTPONEMENT_MS = 1000

/**
 * The best-effort producer of docs/signer-events.md ("Delivery") with configurable faults. Every
 * event takes the same number of random values, so that its faults depend only on the seed and its
 * position.
 */
export function createLossyQueue({ sink, faults, random, capacity }: QueueOptions): LossyQueue {
  const stats: QueueStats = {
    emitted: 0,
    dropped: 0,
    overflowed: 0,
    duplicated: 0,
    reordered: 0,
    delivered: 0,
    lost: 0,
  }
  let waiting: Waiting[] = []
  // The event that waits until the next one has passed it.
  let postponed: Waiting | undefined
  let timer: NodeJS.Timeout | undefined
  let sending: Promise<void> | undefined

  const space = (): number => capacity - waiting.length - (postponed === undefined ? 0 : 1)

  function takeDue(): EncodedEvent[] {
    const now = performance.now()
    const due = waiting.filter((entry) => entry.due <= now).sort((a, b) => a.due - b.due)
    const batch = new Set(due.slice(0, BATCH))
    waiting = waiting.filter((entry) => !batch.has(entry))
    return [...batch].map(({ event }) => event)
  }

  async function send(batch: readonly EncodedEvent[]): Promise<void> {
    try {
      await sink.send(batch)
      stats.delivered += batch.length
    } catch {
      stats.lost += batch.length
    }
  }

  async function sendAll(): Promise<void> {
    for (let batch = takeDue(); batch.length > 0; batch = takeDue()) await send(batch)
  }

  function startSending(): Promise<void> {
    sending ??= sendAll().finally(() => {
      sending = undefined
      schedule()
    })
    return sending
  }

  function schedule(): void {
    clearTimeout(timer)
    if (sending !== undefined || waiting.length === 0) return
    const next = Math.min(...waiting.map(({ due }) => due))
    timer = setTimeout(startSending, Math.max(0, next - performance.now()))
  }

  function enqueue(entry: Waiting): void {
    waiting.push({ ...entry, due: performance.now() + entry.delayMs })
    schedule()
  }

  function release(): void {
    const entry = postponed
    postponed = undefined
    if (entry !== undefined) enqueue(entry)
  }

  function postpone(entry: Waiting): void {
    postponed = entry
    stats.reordered += 1
    setTimeout(() => {
      if (postponed === entry) release()
    }, LONGEST_POSTPONEMENT_MS).unref()
  }

  function push(event: EncodedEvent): boolean {
    const [drop, duplicate, reorder] = [random(), random(), random()]
    const [delayMs, secondDelayMs] = [random() * faults.delayMs, random() * faults.delayMs]
    stats.emitted += 1
    if (drop < faults.drop) {
      stats.dropped += 1
      return false
    }
    if (space() <= 0) {
      stats.overflowed += 1
      return false
    }
    if (reorder < faults.reorder && postponed === undefined) {
      postpone({ event, delayMs, due: 0 })
    } else {
      enqueue({ event, delayMs, due: 0 })
      release()
    }
    if (duplicate < faults.duplicate && space() > 0) {
      stats.duplicated += 1
      enqueue({ event, delayMs: secondDelayMs, due: 0 })
    }
    return true
  }

  async function flush(): Promise<void> {
    release()
    while (waiting.length > 0 || sending !== undefined) {
      for (const entry of waiting) entry.due = 0
      await startSending()
    }
    await sink.flush()
  }

  async function stop(): Promise<void> {
    await flush()
    clearTimeout(timer)
    await sink.close()
  }

  return {
    push,
    flush,
    stop,
    stats: () => ({ ...stats, delivered: stats.delivered - (sink.backlog?.() ?? 0) }),
  }
}

/** Returns a generator of numbers in [0, 1), the same sequence for the same seed (mulberry32). */
export function createRandom(seed: number): () => number {
  let state = seed | 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
