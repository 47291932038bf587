import { createCallBatcher } from '../lib/concurrency.ts'
import { type Db, type Pool, isUnavailable, tx } from '../lib/sql.ts'

/** The result of one request in a batch: a value, or the error that rejects only this request. */
export type Reply<Value> = Value | Error

/**
 * Returns a function that writes one request. Requests made in the same turn of the event loop are
 * written in one transaction: they share a commit and a few statements instead of a dozen round
 * trips each, and wait only once for a shared lock (bench rows `rest-users`, `rest-credits`,
 * `rest-keys`).
 *
 * `write` returns replies in the order of the requests. It must not have changed anything for a
 * request with an error reply. If it throws while the database works, each request is written again
 * in its own transaction, so that no request fails because of another. `write` must take its locks
 * in the same order in every batch.
 */
export function createBatchWriter<Request, Value>(
  pool: Pool,
  write: (db: Db, requests: readonly Request[]) => Promise<readonly Reply<Value>[]>,
): (request: Request) => Promise<Value> {
  async function settle(requests: readonly Request[]): Promise<readonly Reply<Value>[]> {
    try {
      return await tx(pool, (db) => write(db, requests))
    } catch (error) {
      if (requests.length === 1 || isUnavailable(error)) throw error
      return settleEach(requests)
    }
  }

  async function settleEach(requests: readonly Request[]): Promise<Reply<Value>[]> {
    const replies: Reply<Value>[] = []
    for (const request of requests)
      replies.push(...(await settle([request]).catch((error: Error) => [error])))
    return replies
  }

  const replyTo = createCallBatcher(settle)

  return async (request) => {
    const reply = await replyTo(request)
    if (reply instanceof Error) throw reply
    return reply
  }
}
