import { setTimeout as sleep } from 'node:timers/promises'
import type { StreamRecord } from '../events/record.ts'

export interface BatcherOptions {
  readonly maxRecords: number
  readonly maxBytes: number
  /** How long the first record of a batch waits for more. */
  readonly lingerMs: number
  /** Called when the backlog fills a whole batch. */
  readonly onFull: () => void
  /** Called after `onFull`, when there is room again. */
  readonly onRoom: () => void
}

/** Gathers single records into batches, and signals when the stream must pause. */
export function createBatcher({ maxRecords, maxBytes, lingerMs, onFull, onRoom }: BatcherOptions) {
  const backlog: StreamRecord[] = []
  let bytes = 0
  let paused = false
  const failures: unknown[] = []
  let changed = Promise.withResolvers<void>()

  const isWhole = (): boolean => backlog.length >= maxRecords || bytes >= maxBytes

  function signalChange(): void {
    changed.resolve()
    changed = Promise.withResolvers()
  }

  function push(record: StreamRecord): void {
    backlog.push(record)
    bytes += record.bytes.length
    if (!paused && (backlog.length >= maxRecords || bytes >= maxBytes)) {
      paused = true
      onFull()
    }
    if (backlog.length === 1 || isWhole()) signalChange()
  }

  /**
   * Makes `next` throw `error` from now on. Drops the backlog, because the stream delivers it
   * again.
   */
  function fail(error: unknown): void {
    if (failures.length > 0) return
    failures.push(error)
    backlog.length = 0
    signalChange()
  }

  /**
   * Returns at least one record, as soon as the batch is whole or its first record has waited
   * `lingerMs`.
   */
  async function next(): Promise<StreamRecord[]> {
    while (backlog.length === 0 && failures.length === 0) await changed.promise
    const lingering = new AbortController()
    const lingered = sleep(lingerMs, undefined, { signal: lingering.signal }).then(
      () => true,
      () => true,
    )
    for (let late = false; !late && !isWhole() && failures.length === 0;) {
      late = await Promise.race([changed.promise.then(() => false), lingered])
    }
    lingering.abort()
    if (failures.length > 0) throw failures[0]
    return shiftBatch()
  }

  function shiftBatch(): StreamRecord[] {
    let count = 0
    for (let size = 0; count < Math.min(backlog.length, maxRecords) && size < maxBytes; count++) {
      size += backlog[count]?.bytes.length ?? 0
    }
    const batch = backlog.splice(0, count)
    for (const record of batch) bytes -= record.bytes.length
    if (paused && backlog.length < maxRecords / 2 && bytes < maxBytes / 2) {
      paused = false
      onRoom()
    }
    return batch
  }

  return { push, fail, next }
}

export type Batcher = ReturnType<typeof createBatcher>
