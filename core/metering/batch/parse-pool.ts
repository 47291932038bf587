import { setImmediate as yieldToOthers } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { createRowBuffer } from '../../lib/copy-sql.ts'
import type { Log } from '../../lib/log.ts'
import type { SigningLimits } from '../events/parse.ts'
import {
  type Feature,
  type ParsedAt,
  type ParsedBatch,
  type BilledUser,
  type RecordProblem,
  type Session,
  type TicketColumns,
  createBatchParser,
} from './parsed-batch.ts'

/**
 * Parses batches in a worker thread.
 *
 * Gains: parsing, checking and encoding is most of ingest's computation; in a separate thread it
 * runs while this thread writes the previous batch. The `ingest by COPY` row of `npm run bench`
 * shows it. Plain version: `parseHere`, which parses in this thread; it handles small batches, a
 * process without threads and a failed worker. test/core/metering/batch/parse-pool.test.ts compares
 * the worker with it.
 */

/** A parsed batch with the rows of its tickets. */
export interface EncodedBatch {
  readonly batch: ParsedBatch
  /** The first parts of the tickets' rows. */
  readonly rows: Buffer
  /** Call once, when the rows are no longer needed. */
  readonly release: () => void
}

interface RecordBytes {
  readonly bytes: Buffer
}

const yieldEvery = 50
/** Below this size a thread gains nothing, so a quiet service never starts one. */
const minThreadedRecords = 1_000
const maxIdleBuffers = 4
const maxIdleBytes = 32 * 1024 * 1024
/**
 * The worker's garbage is short-lived and its batches are bounded, so more memory would gain
 * nothing.
 */
const workerLimits = { maxYoungGenerationSizeMb: 32, maxOldGenerationSizeMb: 192 }

export interface ParsePoolOptions {
  readonly log: Log
  /** False for a process with little memory that only collects. */
  readonly threads: boolean
  readonly limits: SigningLimits
}

export function createParsePool({ log, threads, limits }: ParsePoolOptions) {
  let worker: Worker | null = null
  let queue: Promise<unknown> = Promise.resolve()
  let stopped = false
  const idle: ArrayBuffer[] = []

  /** Parses records; `at` and the limits bound their signing times. */
  async function parse(records: readonly RecordBytes[], at: Date): Promise<EncodedBatch> {
    if (!threads || stopped || records.length < minThreadedRecords) return parseHere(records, at)
    const parsed = queue.then(() => parseInWorker(records, at))
    queue = parsed.catch(() => {})
    return parsed.catch((error: unknown) => {
      if (!stopped) log.warn({ err: error }, 'the parsing thread failed; parsing here')
      return parseHere(records, at)
    })
  }

  async function parseHere(records: readonly RecordBytes[], at: Date): Promise<EncodedBatch> {
    const rows = createRowBuffer(idle.pop())
    const parser = createBatchParser(rows, { at, limits }, records.length)
    for (const [index, { bytes }] of records.entries()) {
      parser.add(index, bytes)
      if (index % yieldEvery === yieldEvery - 1) await yieldToOthers()
    }
    return {
      batch: parser.read(),
      rows: rows.slice(0, rows.end()),
      release: () => recycle(rows.memory()),
    }
  }

  async function parseInWorker(records: readonly RecordBytes[], at: Date): Promise<EncodedBatch> {
    const reply = await post(packRecords(records, at))
    recycle(reply.bytes)
    return {
      batch: unpackBatch(reply),
      rows: Buffer.from(reply.memory),
      release: () => recycle(reply.memory),
    }
  }

  function packRecords(records: readonly RecordBytes[], at: Date): ParseRequest {
    const ends = new Float64Array(records.length)
    const length = records.reduce((sum, { bytes }, index) => (ends[index] = sum + bytes.length), 0)
    const bytes = takeMemory(length)
    const target = new Uint8Array(bytes)
    records.forEach((record, index) =>
      target.set(record.bytes, (ends[index] ?? 0) - record.bytes.length),
    )
    return { bytes, ends, window: { at, limits }, memory: idle.pop() ?? null }
  }

  function takeMemory(length: number): ArrayBuffer {
    const position = idle.findIndex((memory) => memory.byteLength >= length)
    return (
      (position >= 0 && idle.splice(position, 1)[0]) || new ArrayBuffer(Math.ceil(length * 1.25))
    )
  }

  function recycle(memory: ArrayBuffer): void {
    if (idle.length < maxIdleBuffers && memory.byteLength <= maxIdleBytes) idle.push(memory)
  }

  /** Sends a request to the worker, starting it if necessary, and waits for the reply. */
  function post(request: ParseRequest): Promise<ParseReply> {
    const current = (worker ??= startWorker())
    return new Promise((resolve, reject) => {
      const fail = (error: unknown): void => {
        current.removeAllListeners()
        current.on('error', () => {})
        if (worker === current) worker = null
        reject(
          error instanceof Error
            ? error
            : new Error(`the parsing thread ended with ${String(error)}`),
        )
      }
      current.once('message', (reply: ParseReply) => {
        current.removeListener('error', fail)
        current.removeListener('exit', fail)
        resolve(reply)
      })
      current.once('error', fail)
      current.once('exit', fail)
      current.postMessage(request, [
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

  return { parse, stop }
}

export type ParsePool = ReturnType<typeof createParsePool>

function startWorker(): Worker {
  const worker = new Worker(new URL('./parse-worker.ts', import.meta.url), {
    resourceLimits: workerLimits,
  })
  worker.unref()
  return worker
}

/**
 * The request to the worker. Memory is transferred: copying a batch object by object would cost
 * more than the thread gains.
 */
export interface ParseRequest {
  readonly bytes: ArrayBuffer
  /** Where each record ends in `bytes`. */
  readonly ends: Float64Array<ArrayBuffer>
  readonly window: ParsedAt
  /** Memory of an earlier batch, to reuse for the rows. */
  readonly memory: ArrayBuffer | null
}

/** The reply of the worker: the batch without object references between its parts. */
export interface ParseReply {
  /** The memory of the request, for reuse. */
  readonly bytes: ArrayBuffer
  /** The memory of the rows. */
  readonly memory: ArrayBuffer
  readonly tickets: TicketColumns
  readonly features: readonly Feature[]
  readonly payers: readonly (readonly [key: string, clientId: string, externalUserId: string])[]
  readonly sessions: readonly PackedSession[]
  readonly problems: readonly RecordProblem[]
  readonly ignored: readonly number[]
}

/** A session with its payer and feature as positions in the lists of the reply. */
interface PackedSession extends Pick<Session, 'sessionId' | 'manifestId' | 'appName'> {
  readonly payer: number
  readonly feature: number
}

/** Called by the worker. Builds the reply from a batch and the memory to return. */
export function packBatch(
  { tickets, sessions, features, problems, ignored, payers }: ParsedBatch,
  memory: Pick<ParseReply, 'bytes' | 'memory'>,
): ParseReply {
  const payerPositions = new Map([...payers.values()].map((payer, position) => [payer, position]))
  const featurePositions = new Map(features.map((feature, position) => [feature, position]))
  return {
    ...memory,
    tickets,
    features,
    problems,
    ignored,
    payers: [...payers].map(([key, { clientId, externalUserId }]) => [
      key,
      clientId,
      externalUserId,
    ]),
    sessions: sessions.map(({ payer, feature, sessionId, manifestId, appName }) => ({
      payer: payerPositions.get(payer) ?? 0,
      feature: featurePositions.get(feature) ?? 0,
      sessionId,
      manifestId,
      appName,
    })),
  }
}

function unpackBatch({ tickets, features, problems, ignored, ...reply }: ParseReply): ParsedBatch {
  const payers = new Map(
    reply.payers.map(([key, clientId, externalUserId]): [string, BilledUser] => [
      key,
      { clientId, externalUserId, sessions: new Map(), subject: null },
    ]),
  )
  const payerList = [...payers.values()]
  const sessions = reply.sessions.map(
    ({ payer: payerPosition, feature, sessionId, ...names }, position): Session => {
      const payer = itemAt(payerList, payerPosition)
      payer.sessions.set(sessionId, position)
      return { payer, sessionId, ...names, feature: itemAt(features, feature) }
    },
  )
  return { tickets, sessions, features, problems, ignored, payers }
}

function itemAt<T>(list: readonly T[], position: number): T {
  const item = list[position]
  if (item === undefined) throw new Error(`there is no item ${position}`)
  return item
}
