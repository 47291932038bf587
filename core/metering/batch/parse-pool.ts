import { setImmediate as nextTurn } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { createRowBuffer } from '../../lib/copy-sql.ts'
import type { Log } from '../../lib/log.ts'
import { type Batch, createBatch } from './batch.ts'
import { type SortReply, type SortRequest, unpackBatch } from './parse-message.ts'
import type { StreamRecord } from '../types.ts'

export interface Sorted {
  readonly batch: Batch
  /** The first parts of the rows of its tickets. */
  readonly rows: Buffer
  /** To be called once, when the rows are not needed any more. */
  readonly release: () => void
}

const breath = 50
/** From here on a batch is worth another thread; a quiet service never has one. */
const manyRecords = 1_000
const keptMemory = 4
const maxKeptBytes = 32 * 1024 * 1024
/** Its garbage is young and its batches are bounded: more would only be memory. */
const limits = { maxYoungGenerationSizeMb: 32, maxOldGenerationSizeMb: 192 }

/**
 * Parses, checks and encodes records: the larger part of what ingest computes. Large batches are sorted in a thread of
 * their own while this one writes the batch before; should that thread fail, this one does its work. `threads: false`
 * for a process that has little memory and nothing else to do.
 */
export function createSorting({ log, threads }: { log: Log; threads: boolean }) {
  let worker: Worker | null = null
  let turn: Promise<unknown> = Promise.resolve()
  let stopped = false
  const idle: ArrayBuffer[] = []

  async function sort(records: readonly StreamRecord[], at: Date): Promise<Sorted> {
    if (!threads || stopped || records.length < manyRecords) return sortHere(records, at)
    const sorted = turn.then(() => sortThere(records, at))
    turn = sorted.catch(() => {})
    return sorted.catch((error: unknown) => {
      if (!stopped) log.warn({ err: error }, 'the sorting thread failed; sorting here')
      return sortHere(records, at)
    })
  }

  async function sortHere(records: readonly StreamRecord[], at: Date): Promise<Sorted> {
    const rows = createRowBuffer(idle.pop())
    const sorting = createBatch(rows, at, records.length)
    for (const [index, { bytes }] of records.entries()) {
      sorting.add(index, bytes)
      // The process has others to answer, too.
      if (index % breath === breath - 1) await nextTurn()
    }
    return {
      batch: sorting.read(),
      rows: rows.slice(0, rows.end()),
      release: () => keep(rows.memory()),
    }
  }

  async function sortThere(records: readonly StreamRecord[], at: Date): Promise<Sorted> {
    const request = pack(records, at)
    const reply = await ask(request)
    keep(reply.bytes)
    return {
      batch: unpackBatch(reply),
      rows: Buffer.from(reply.memory),
      release: () => keep(reply.memory),
    }
  }

  function pack(records: readonly StreamRecord[], at: Date): SortRequest {
    const ends = new Float64Array(records.length)
    const length = records.reduce((sum, { bytes }, index) => (ends[index] = sum + bytes.length), 0)
    const bytes = memoryOf(length)
    const target = new Uint8Array(bytes)
    records.forEach((record, index) =>
      target.set(record.bytes, (ends[index] ?? 0) - record.bytes.length),
    )
    return { bytes, ends, at, memory: idle.pop() ?? null }
  }

  function memoryOf(length: number): ArrayBuffer {
    const place = idle.findIndex((memory) => memory.byteLength >= length)
    return (place >= 0 && idle.splice(place, 1)[0]) || new ArrayBuffer(Math.ceil(length * 1.25))
  }

  function keep(memory: ArrayBuffer): void {
    if (idle.length < keptMemory && memory.byteLength <= maxKeptBytes) idle.push(memory)
  }

  function ask(request: SortRequest): Promise<SortReply> {
    const asked = (worker ??= start())
    return new Promise((resolve, reject) => {
      const fail = (error: unknown): void => {
        asked.removeAllListeners()
        asked.on('error', () => {})
        if (worker === asked) worker = null
        reject(
          error instanceof Error
            ? error
            : new Error(`the sorting thread ended with ${String(error)}`),
        )
      }
      asked.once('message', (reply: SortReply) => {
        asked.removeListener('error', fail)
        asked.removeListener('exit', fail)
        resolve(reply)
      })
      asked.once('error', fail)
      asked.once('exit', fail)
      asked.postMessage(request, [
        request.bytes,
        request.ends.buffer,
        ...(request.memory ? [request.memory] : []),
      ])
    })
  }

  async function stop(): Promise<void> {
    stopped = true
    await worker?.terminate()
  }

  return { sort, stop }
}

export type Sorting = ReturnType<typeof createSorting>

function start(): Worker {
  const worker = new Worker(new URL('./parse-worker.ts', import.meta.url), {
    resourceLimits: limits,
  })
  worker.unref()
  return worker
}
