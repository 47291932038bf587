import { setTimeout as sleep } from 'node:timers/promises'
import type { EncodedEvent, Sink } from './lossy-queue.ts'

export type DirectOptions = Readonly<{
  /** The sidecar's base address; events are sent to `{url}/events`. */
  url: string
  secret: string
  /** Maximum number of events without a 202; further ones are refused. */
  capacity?: number
  /** Maximum time that a flush, and so a stop, waits for the queue to empty. */
  flushMs?: number
}>

const MAX_BATCH = 1000
const MAX_BATCH_BYTES = 512 * 1024
const FIRST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 5000
const REQUEST_MS = 10_000

/** Returns the first events of the queue that fit into one request; at least one. */
function nextBatch(queue: readonly EncodedEvent[]): readonly EncodedEvent[] {
  let size = 0
  const end = queue.slice(0, MAX_BATCH).findIndex(({ bytes }, i) => {
    size += Buffer.byteLength(bytes) + 1
    return i > 0 && size > MAX_BATCH_BYTES
  })
  return queue.slice(0, end === -1 ? MAX_BATCH : end)
}

/**
 * Pushes envelopes as NDJSON and repeats each batch, with back-off, until the sidecar answers 202:
 * no accepted event is lost while the process lives.
 */
export function directSink(options: DirectOptions): Sink {
  const { url, secret, capacity = 10_000, flushMs = 10_000 } = options
  const address = `${url.replace(/\/+$/, '')}/events`
  const queue: EncodedEvent[] = []
  const stopped = new AbortController()
  let pumping: Promise<void> | undefined

  async function accepted(batch: readonly EncodedEvent[]): Promise<boolean> {
    const response = await fetch(address, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/x-ndjson' },
      body: batch.map(({ bytes }) => `${bytes}\n`).join(''),
      redirect: 'manual',
      signal: AbortSignal.any([stopped.signal, AbortSignal.timeout(REQUEST_MS)]),
    })
    await response.body?.cancel()
    return response.status === 202
  }

  async function pump(): Promise<void> {
    let pauseMs = FIRST_PAUSE_MS
    while (queue.length > 0 && !stopped.signal.aborted) {
      const batch = nextBatch(queue)
      if (await accepted(batch).catch(() => false)) {
        queue.splice(0, batch.length)
        pauseMs = FIRST_PAUSE_MS
        continue
      }
      await sleep(pauseMs, undefined, { signal: stopped.signal }).catch(() => undefined)
      pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)
    }
  }

  async function send(events: readonly EncodedEvent[]): Promise<void> {
    if (queue.length + events.length > capacity) throw new RangeError('too many events wait')
    queue.push(...events)
    pumping ??= pump().finally(() => {
      pumping = undefined
    })
  }

  async function flush(): Promise<void> {
    const deadline = performance.now() + flushMs
    while (queue.length > 0 && performance.now() < deadline) await sleep(10)
  }

  // The caller has flushed before, so one wait is enough.
  async function close(): Promise<void> {
    stopped.abort()
    await pumping
  }

  return { send, flush, close, backlog: () => queue.length }
}
