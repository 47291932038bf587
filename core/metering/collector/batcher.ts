import { setTimeout as sleep } from 'node:timers/promises'
import type { StreamRecord } from '../types.ts'

export interface BatcherOptions {
  readonly maxRecords: number
  readonly maxBytes: number
  /** How long the first record of a batch waits for others. */
  readonly lingerMs: number
  /** Called when a whole batch is waiting, and again when there is room. */
  readonly onFull: () => void
  readonly onRoom: () => void
}

/** Gathers records that come one by one into batches, and holds back the stream when they are not taken. */
export function createBatcher({ maxRecords, maxBytes, lingerMs, onFull, onRoom }: BatcherOptions) {
  const waiting: StreamRecord[] = []
  let bytes = 0
  let held = false
  const failures: unknown[] = []
  let changed = Promise.withResolvers<void>()

  const isWhole = (): boolean => waiting.length >= maxRecords || bytes >= maxBytes

  function signalChange(): void {
    changed.resolve()
    changed = Promise.withResolvers()
  }

  function push(record: StreamRecord): void {
    waiting.push(record)
    bytes += record.bytes.length
    if (!held && (waiting.length >= maxRecords || bytes >= maxBytes)) {
      held = true
      onFull()
    }
    if (waiting.length === 1 || isWhole()) signalChange()
  }

  /** From now on `next` throws `error`. What was not taken is dropped: the stream will deliver it again. */
  function fail(error: unknown): void {
    if (failures.length > 0) return
    failures.push(error)
    waiting.length = 0
    signalChange()
  }

  /** A batch of at least one record, as soon as it is whole or its first record has waited long enough. */
  async function next(): Promise<StreamRecord[]> {
    while (waiting.length === 0 && failures.length === 0) await changed.promise
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
    return take()
  }

  function take(): StreamRecord[] {
    let count = 0
    for (let size = 0; count < Math.min(waiting.length, maxRecords) && size < maxBytes; count++) {
      size += waiting[count]?.bytes.length ?? 0
    }
    const batch = waiting.splice(0, count)
    for (const record of batch) bytes -= record.bytes.length
    if (held && waiting.length < maxRecords / 2 && bytes < maxBytes / 2) {
      held = false
      onRoom()
    }
    return batch
  }

  return { push, fail, next }
}

export type Batcher = ReturnType<typeof createBatcher>
