import { createHash } from 'node:crypto'
import { DomainError } from '../../proto/errors.ts'
import { seal, unseal } from '../lib/crypto.ts'
import { type Db, type Pool, maybeOne, sql, tx } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'

export interface IdempotentRequest {
  /** Caller and operation: equal keys of other callers or operations do not collide. */
  readonly scope: string
  /** From `parseIdempotencyKey`. */
  readonly key: string | undefined
  /** The content of the request: a repetition must have the same. */
  readonly body: unknown
}

const keySyntax = /^[\x21-\x7e]{1,255}$/
export const keptDays = 32

/** The Idempotency-Key of a request; undefined when it has none. REQUEST_INVALID for a malformed one. */
export function parseIdempotencyKey(text: string | undefined): string | undefined {
  if (text !== undefined && !keySyntax.test(text)) {
    throw new DomainError(
      'REQUEST_INVALID',
      'Idempotency-Key must be 1 to 255 visible ASCII characters',
    )
  }
  return text
}

/**
 * Runs `work` once for a key and stores its answer, in one transaction. A repetition gets the same answer.
 * IDEMPOTENCY_CONFLICT for another body, and while the first request is running. Answers may hold secrets, so they are
 * stored encrypted. Without a key `work` runs in a plain transaction.
 */
export function createIdempotency({
  pool,
  sealingKey,
  now,
}: {
  pool: Pool
  sealingKey: Buffer
  now: Now
}) {
  async function once<T>(request: IdempotentRequest, work: (db: Db) => Promise<T>): Promise<T> {
    const { scope, key } = request
    if (key === undefined) return tx(pool, work)
    const digest = createHash('sha256').update(JSON.stringify(request.body)).digest()
    return tx(pool, async (db) => {
      await refuseWhileInFlight(db, scope, key)
      const stored = await find(db, scope, key)
      if (stored) return replay<T>(stored, digest, { sealingKey, context: contextOf(scope, key) })
      const reply = await work(db)
      const sealed = seal(Buffer.from(JSON.stringify(reply)), sealingKey, contextOf(scope, key))
      await insert(db, { scope, key, digest, sealed, at: now() })
      return reply
    })
  }

  /** Deletes answers older than 32 days. Returns how many. */
  async function forgetOld(): Promise<number> {
    const { rowCount } = await pool.query(sql`
      delete from idempotency_keys where created_at < ${new Date(now().getTime() - keptDays * 86_400_000)}`)
    return rowCount ?? 0
  }

  return { once, forgetOld }
}

export type Idempotency = ReturnType<typeof createIdempotency>

const contextOf = (scope: string, key: string): string => `idempotency:${scope}:${key}`

async function refuseWhileInFlight(db: Db, scope: string, key: string): Promise<void> {
  const lock = await maybeOne<{ free: boolean }>(
    db,
    sql`
    select pg_try_advisory_xact_lock(hashtextextended(${`${scope} ${key}`}, 0)) as free`,
  )
  if (!lock?.free) {
    throw new DomainError(
      'IDEMPOTENCY_CONFLICT',
      'a request with this Idempotency-Key is still running; try again',
    )
  }
}

interface StoredReply {
  readonly request_hash: Buffer
  readonly sealed_reply: Buffer
}

const find = (db: Db, scope: string, key: string): Promise<StoredReply | null> =>
  maybeOne<StoredReply>(
    db,
    sql`
    select request_hash, sealed_reply from idempotency_keys where scope = ${scope} and key = ${key}`,
  )

async function insert(
  db: Db,
  row: { scope: string; key: string; digest: Buffer; sealed: Buffer; at: Date },
): Promise<void> {
  await db.query(sql`
    insert into idempotency_keys (scope, key, request_hash, sealed_reply, created_at)
    values (${row.scope}, ${row.key}, ${row.digest}, ${row.sealed}, ${row.at})`)
}

// `once` wrote the reply with the same T, under a context that no other operation has.
function replay<T>(
  stored: StoredReply,
  digest: Buffer,
  open: { sealingKey: Buffer; context: string },
): T {
  if (!stored.request_hash.equals(digest)) {
    throw new DomainError(
      'IDEMPOTENCY_CONFLICT',
      'this Idempotency-Key was used with another body; use a new key',
    )
  }
  return JSON.parse(unseal(stored.sealed_reply, open.sealingKey, open.context).toString('utf8'))
}
