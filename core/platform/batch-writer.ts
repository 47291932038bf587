import { createBatchLoader } from '../lib/concurrency.ts'
import { type Db, type Pool, isUnavailable, tx } from '../lib/sql.ts'

/** What one request of a batch is answered: a value, or the error that refuses this request alone. */
export type Reply<Value> = Value | Error

const batchMax = 64
const concurrency = 2

/**
 * Returns a function that writes one request, and writes the requests of the same turn of the event loop in one
 * transaction: a commit and a few statements for all of them instead of a dozen round trips for each, and a lock that
 * they share is waited for once (bench rows `rest-users`, `rest-credits`, `rest-keys`).
 *
 * `write` answers the requests in their order, and has changed nothing for one whose answer is an error. When it throws
 * and the database is well, each request is written again in a transaction of its own, so that none fails for another.
 * It takes its locks in an order that is the same in every batch.
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

  const replyTo = createBatchLoader(
    async (requests: readonly { readonly request: Request }[]) => {
      const replies = await settle(requests.map(({ request }) => request))
      const byRequest = new Map(requests.map((one, index) => [one, replies[index]]))
      return (one) => byRequest.get(one)
    },
    { batchMax, concurrency },
  )

  return async (request) => {
    const reply = await replyTo({ request })
    if (reply === undefined) throw new Error('a request of a batch has no reply')
    if (reply instanceof Error) throw reply
    return reply
  }
}
