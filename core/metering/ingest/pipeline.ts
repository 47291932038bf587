import type { Log } from '../../lib/log.ts'
import { messageOf } from '../../lib/process.ts'
import type { Begun, Ingest, Ingested, Prepared } from './ingest.ts'

/**
 * Writes the batches of a stream one after the other; while one is finished, the next has begun. Each has a transaction
 * and a connection of its own, and they are committed in their order.
 */
export function createRelay({ begin, commit }: Pick<Ingest, 'begin' | 'commit'>, log: Log) {
  let current: Begun | null = null
  /** Begun before its turn. */
  let ahead: Begun | null = null

  /** Begins `next` as soon as it is prepared, and `prepared` has all the ids of its own. */
  async function write(prepared: Prepared, next: Promise<Prepared> | undefined): Promise<Ingested> {
    const begun = ahead?.prepared === prepared ? ahead : begin(prepared)
    ahead = null
    current = begun
    if (begun === null) return commit(prepared)
    if (next) follow(begun, next)
    try {
      return await begun.finish()
    } catch (error) {
      log.debug(
        { reason: messageOf(error) },
        'a batch that was begun before its turn is written in one go',
      )
      // What has begun after it may hold what it waits for. If it cannot be written at all, it says so now.
      await stop()
      return commit(prepared)
    }
  }

  function follow(begun: Begun, next: Promise<Prepared>): void {
    Promise.all([next, begun.waiting]).then(
      ([prepared]) => {
        if (current === begun) ahead ??= begin(prepared)
      },
      () => {},
    )
  }

  /** Abandons what has begun before its turn. */
  async function stop(): Promise<void> {
    const left = ahead
    ahead = null
    current = null
    await left?.abandon()
  }

  return { write, stop }
}

export type Relay = ReturnType<typeof createRelay>
