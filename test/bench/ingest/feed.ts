import type { EventSession, EventSource } from '../../../core/metering/collector/collector.ts'
import type { StreamRecord } from '../../../core/metering/events/record.ts'

type Batches = Iterator<StreamRecord[]>

/** A stream that delivers prepared batches as fast as the collector consumes them. */
export function createFeed() {
  let pending = Promise.withResolvers<Batches>()
  let current: Batches | null = null
  let left = 0
  let consumed = Promise.withResolvers<void>()
  let opened = false

  /** Returns after the collector has committed all `count` records of `batches`. */
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
    // This feed does not deliver a failed batch again, so later figures would be meaningless.
    if (opened) consumed.reject(new Error('the collector broke off'))
    opened = true
    return { next, committed, close }
  }

  // Rejects the promise itself. A race with another promise would keep every batch reachable, so
  // garbage collection would slow down with the length of the bench.
  async function close(): Promise<void> {
    pending.promise.catch(() => undefined)
    pending.reject(new Error('the session is closed'))
  }

  const source: EventSource = { name: 'bench', open }
  return { source, take }
}
