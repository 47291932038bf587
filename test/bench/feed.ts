import type { EventSession, EventSource } from '../../core/metering/collector/collector.ts'
import type { StreamRecord } from '../../core/metering/ingest/position-store.ts'

type Batches = Iterator<StreamRecord[]>

/** A stream that brings what it is given, batch by batch, as fast as the collector takes it. */
export function createFeed() {
  let given = Promise.withResolvers<Batches>()
  let current: Batches | null = null
  let left = 0
  let taken = Promise.withResolvers<void>()
  let opened = false

  /** Returns when the collector has committed all `count` records of `batches`. */
  function take(batches: Iterable<StreamRecord[]>, count: number): Promise<void> {
    left = count
    taken = Promise.withResolvers()
    given.resolve(batches[Symbol.iterator]())
    return taken.promise
  }

  async function next(): Promise<StreamRecord[]> {
    for (;;) {
      current ??= await given.promise
      const batch = current.next()
      if (!batch.done) return batch.value
      current = null
      given = Promise.withResolvers()
    }
  }

  function committed(records: readonly StreamRecord[]): void {
    left -= records.length
    if (left === 0) taken.resolve()
  }

  async function open(): Promise<EventSession> {
    // A batch that failed is not brought again here, so nothing measured after it would mean
    // anything.
    if (opened) taken.reject(new Error('the collector broke off'))
    opened = true
    return { next, committed, close }
  }

  // Not by a race with a promise of its own: that would hold on to all that was ever given, and
  // what is collected around it costs the more the longer the bench runs.
  async function close(): Promise<void> {
    given.promise.catch(() => undefined)
    given.reject(new Error('the session is closed'))
  }

  const source: EventSource = { name: 'bench', open }
  return { source, take }
}
