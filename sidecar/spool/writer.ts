import type { Now } from '../../core/lib/time.ts'
import { frame } from './records.ts'
import type { Room } from './room.ts'

export interface WriterOptions {
  /** Returns when the bytes are on disk. */
  readonly write: (bytes: Buffer, events: number) => Promise<void>
  readonly room: Room
  readonly onWritten: (ms: number) => void
  readonly now: Now
}

interface Waiting {
  readonly bytes: Buffer
  readonly events: number
  readonly written: PromiseWithResolvers<void>
}

const groupBytes = 8 * 1024 * 1024

/**
 * Group commit: while one group is forced to disk the next gathers, so that one fsync serves
 * everybody who waits.
 */
export function createSpoolWriter({ write, room, onWritten, now }: WriterOptions) {
  const waiting: Waiting[] = []
  let working: Promise<void> | null = null

  /** Returns when all of them are on disk; throws SPOOL_UNAVAILABLE when that is not certain. */
  function keep(envelopes: readonly Buffer[]): Promise<void> {
    const bytes = frame(envelopes, now().getTime())
    room.reserve(bytes.length)
    const written = Promise.withResolvers<void>()
    waiting.push({ bytes, events: envelopes.length, written })
    working ??= work()
    return written.promise
  }

  async function work(): Promise<void> {
    while (waiting.length > 0) await writeGroup(nextGroup(waiting))
    // At once, not by a promise: whoever has just been answered may already be back.
    working = null
  }

  async function writeGroup(group: readonly Waiting[]): Promise<void> {
    const bytes = Buffer.concat(group.map(({ bytes }) => bytes))
    const started = performance.now()
    try {
      await write(
        bytes,
        group.reduce((sum, { events }) => sum + events, 0),
      )
      onWritten(performance.now() - started)
      for (const { written } of group) written.resolve()
    } catch (error) {
      const why = room.failed(error)
      for (const { written } of group) written.reject(why)
    } finally {
      room.settle(bytes.length)
    }
  }

  /** Returns when nothing waits any more. */
  const settled = async (): Promise<void> => working ?? undefined

  return { keep, settled }
}

/** Takes what fits from the front; one at least. */
function nextGroup(waiting: Waiting[]): Waiting[] {
  let size = 0
  const end = waiting.findIndex(({ bytes }, i) => {
    size += bytes.length
    return i > 0 && size > groupBytes
  })
  return waiting.splice(0, end === -1 ? waiting.length : end)
}
