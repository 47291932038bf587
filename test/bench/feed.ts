import type { EventSession, EventSource } from '../../core/metering/collector/collector.ts'
import type { StreamRecord } from '../../core/metering/ingest/position-store.ts'

type Batches = Iterator<StreamRecord[]>

/** A stream that delivers prepared batches as fast as the collector consumes them. */
export function createFeed() {
  let pending = Promise.withResolvers<Batches>()
  let current: Batches | null = null
  let left = 0
  let consumed = Promise.withResolvers<void>()
  let opened = false

  /** Returns when the collector has committed all `count` records of `batches`. */
  function take(batches: Iterable<StreamRecord[]>, count: number): Promise<void> {
    left = count
    consumed = Promise.withResolvers()
    pending.resolve(batches[Symbol.iterator]())
    return consumed.promise
  }

  async function next(): Promise<StreamRecord[]> {
    for (;;) {
      current ??= await pending.promise
      const batch = current.next()
      if (!batch.done) return batch.value
      current = null
      pending = Promise.withResolvers()
    }
  }

  function committed(records: readonly StreamRecord[]): void {
    left -= records.length
    if (left === 0) consumed.resolve()
  }

  async function open(): Promise<EventSession> {
    // A batch that failed is not delivered again here, so that no figure after it would mean anything.
    if (opened) consumed.reject(new Error('the collector broke off'))
    opened = true
    return { next, committed, close }
  }

  // Rejects the promise itself. A race with another promise would keep every batch reachable, and the
  // garbage collector would take longer the longer the bench runs.
  async function close(): Promise<void> {
    pending.promise.catch(() => undefined)
    pending.reject(new Error('the session is closed'))
  }

  const source: EventSource = { name: 'bench', open }
  return { source, take }
}
