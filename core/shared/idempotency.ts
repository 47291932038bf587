import { createHash, randomUUID } from 'node:crypto'
import { DomainError } from '../../proto/errors.ts'
import { type Db, type Pool, many, prepared, sql, tx } from '../lib/sql.ts'
import { type Now, addSeconds } from '../lib/time.ts'
import type { Reply } from './batch-writer.ts'
import { deleteOldClaims, giveKeyBack, takeKey } from './claim-store.ts'
import { sealedColumn } from './sealing/column-sql.ts'
import type { SealedPlace, Sealing } from './sealing/sealing.ts'
import { deleteInBatches } from './upkeep.ts'

export interface IdempotentRequest {
  /** Caller and operation. Equal keys in different scopes do not collide. */
  readonly scope: string
  /** Result of `parseIdempotencyKey`. */
  readonly key: string | undefined
  /** Content of the request. A repetition must have the same content. */
  readonly body: unknown
  /** Whether the reply holds a secret. Such a reply is kept for only a day (decision 51). */
  readonly holdsSecret?: boolean
}

const keySyntax = /^[\x21-\x7e]{1,255}$/
export const keptDays = 32
const secretHours = 24
/** Longer than any request takes. */
const claimSeconds = 60
const dayMs = 86_400_000
const hourMs = 3_600_000

/**
 * The Idempotency-Key of a request; undefined if it has none. Throws REQUEST_INVALID for a
 * malformed key.
 */
export function parseIdempotencyKey(text: string | undefined): string | undefined {
  if (text !== undefined && !keySyntax.test(text)) {
    throw new DomainError(
      'REQUEST_INVALID',
      'Idempotency-Key must be 1 to 255 visible ASCII characters',
    )
  }
  return text
}

/** A request with the data that identifies a repetition. */
export interface Repeatable {
  readonly idempotency: IdempotentRequest
}

/**
 * Runs `work` once per key and stores its reply in the same transaction. A repetition gets the
 * original reply. Throws IDEMPOTENCY_CONFLICT for another body, and while the first request is
 * running. Replies may hold secrets, so they are stored encrypted. Without a key, `work` runs in a
 * plain transaction.
 */
export function createIdempotency({
  pool,
  sealing,
  now,
}: {
  pool: Pool
  sealing: Sealing
  now: Now
}) {
  async function once<T>(request: IdempotentRequest, work: (db: Db) => Promise<T>): Promise<T> {
    return tx(pool, async (db) => {
      const [reply] = await each<Repeatable, T>(db, [{ idempotency: request }], async (requests) =>
        requests.length === 0 ? [] : [await work(db)],
      )
      if (reply === undefined) throw new Error('a request has no reply')
      if (reply instanceof Error) throw reply
      return reply
    })
  }

  /**
   * Runs `work` for at most one request per key at a time, across processes. Use it if `work`
   * changes another system before it calls `each`. Returns a stored reply without running `work`.
   * Throws IDEMPOTENCY_CONFLICT for another body, and while the first request is running. A process
   * that dies holds its key for a minute.
   */
  async function alone<T>(request: IdempotentRequest, work: () => Promise<T>): Promise<T> {
    const { scope, key } = request
    if (key === undefined) return work()
    const earlierReply = () => replyTo<T>(request, { scope, key })
    const earlier = await earlierReply()
    if (earlier !== undefined) return earlier
    const own = { scope, key, claim: randomUUID() }
    const at = now()
    if (!(await takeKey(pool, own, { at, until: addSeconds(at, claimSeconds) }))) throw inFlight()
    try {
      // Another request may have ended since, and released the key.
      return (await earlierReply()) ?? (await work())
    } finally {
      // If this fails, the claim expires by itself.
      await giveKeyBack(pool, own).catch(() => undefined)
    }
  }

  /**
   * The stored reply for the key; undefined without a stored reply. Throws IDEMPOTENCY_CONFLICT for
   * another body.
   */
  async function replyTo<T>(
    request: IdempotentRequest,
    claim: { readonly scope: string; readonly key: string },
  ): Promise<T | undefined> {
    const [stored] = await find(pool, [claim])
    const reply = stored && replay<T>(stored, request)
    if (reply instanceof Error) throw reply
    return reply
  }

  /**
   * Like `once`, for a batch of requests inside its transaction. `work` gets the requests that are
   * not repetitions, and returns replies in their order. An error reply is not stored.
   */
  async function each<Request extends Repeatable, T>(
    db: Db,
    requests: readonly Request[],
    work: (requests: readonly Request[]) => Promise<readonly Reply<T>[]>,
  ): Promise<Reply<T>[]> {
    const replies = await earlierReplies<Request, T>(db, requests)
    const fresh = requests.filter((request) => !replies.has(request))
    const answers = fresh.length === 0 ? [] : await work(fresh)
    for (const [index, request] of fresh.entries())
      replies.set(request, answers[index] ?? new Error('a request has no reply'))
    await insert(
      db,
      fresh.flatMap((request) => rowOf(request.idempotency, replies.get(request))),
      now(),
    )
    return requests.map((request) => replies.get(request) ?? new Error('a request has no reply'))
  }

  /** Replies to repetitions, and errors for requests whose first attempt is still running. */
  async function earlierReplies<Request extends Repeatable, T>(
    db: Db,
    requests: readonly Request[],
  ): Promise<Map<Request, Reply<T>>> {
    const replies = new Map<Request, Reply<T>>()
    const claims = new Map<string, { request: Request; scope: string; key: string }>()
    for (const request of requests) {
      const { scope, key } = request.idempotency
      if (key === undefined) continue
      const name = `${scope} ${key}`
      if (claims.has(name)) replies.set(request, inFlight())
      else claims.set(name, { request, scope, key })
    }
    if (claims.size === 0) return replies
    const locked = await lockNames(db, [...claims.keys()])
    const own = [...claims].flatMap(([name, claim]) => (locked.has(name) ? [claim] : []))
    for (const [name, { request }] of claims)
      if (!locked.has(name)) replies.set(request, inFlight())
    for (const stored of await find(db, own)) {
      const claim = claims.get(`${stored.scope} ${stored.key}`)
      if (claim) replies.set(claim.request, replay<T>(stored, claim.request.idempotency))
    }
    return replies
  }

  // `each` wrote the reply with the same T, in a scope that no other operation uses.
  function replay<T>(stored: StoredReply, request: IdempotentRequest): Reply<T> {
    if (!stored.request_hash.equals(digestOf(request))) {
      return new DomainError(
        'IDEMPOTENCY_CONFLICT',
        'this Idempotency-Key was used with another body; use a new key',
      )
    }
    const { sealed_reply: sealed, created_at: createdAt } = stored
    const isOver =
      stored.holds_secret && createdAt.getTime() + secretHours * hourMs <= now().getTime()
    if (sealed === null || isOver) {
      return new DomainError(
        'IDEMPOTENCY_CONFLICT',
        `this Idempotency-Key was used more than ${secretHours} hours ago; its response contained a secret and was deleted, so use a new key`,
      )
    }
    return JSON.parse(sealing.unseal(sealed, placeOf(stored.scope, stored.key)).toString('utf8'))
  }

  function rowOf(request: IdempotentRequest, reply: unknown): NewReply[] {
    const { scope, key, holdsSecret = false } = request
    if (key === undefined || reply instanceof Error) return []
    const sealed = sealing.seal(Buffer.from(JSON.stringify(reply)), placeOf(scope, key))
    return [{ scope, key, digest: digestOf(request), sealed, holdsSecret }]
  }

  /** Deletes requests older than 32 days, and erases replies with secrets after a day. */
  async function forgetOld(): Promise<void> {
    const at = now().getTime()
    const secretsBefore = new Date(at - secretHours * hourMs)
    await deleteInBatches((limit) => eraseSecrets(pool, secretsBefore, limit))
    const before = new Date(at - keptDays * dayMs)
    await deleteInBatches((limit) => deleteOld(pool, before, limit))
    await deleteInBatches((limit) => deleteOldClaims(pool, now(), limit))
  }

  return { once, each, alone, forgetOld }
}

export type Idempotency = ReturnType<typeof createIdempotency>

const placeOf = (scope: string, key: string): SealedPlace => ({
  purpose: 'reply',
  context: `idempotency:${scope}:${key}`,
})

const digestOf = ({ body }: IdempotentRequest): Buffer =>
  createHash('sha256').update(JSON.stringify(body)).digest()

const inFlight = (): DomainError =>
  new DomainError(
    'IDEMPOTENCY_CONFLICT',
    'a request with this Idempotency-Key is still running; try again',
  )

/**
 * Locks those names that no other transaction has locked, until this transaction ends. Returns
 * them.
 */
async function lockNames(db: Db, names: readonly string[]): Promise<Set<string>> {
  const rows = await many<{ name: string }>(
    db,
    prepared('idempotency-locks')`
    select name
    from unnest(${names}::text[]) as name
    where pg_try_advisory_xact_lock(hashtextextended(name, 0))`,
  )
  return new Set(rows.map(({ name }) => name))
}

interface StoredReply {
  readonly scope: string
  readonly key: string
  readonly request_hash: Buffer
  readonly sealed_reply: Buffer | null
  readonly holds_secret: boolean
  readonly created_at: Date
}

// A separate statement, because it must see rows committed before the locks were released.
const find = (db: Db, claims: readonly { scope: string; key: string }[]): Promise<StoredReply[]> =>
  many<StoredReply>(
    db,
    prepared('idempotency-replies')`
    select k.scope, k.key, k.request_hash, k.sealed_reply, k.holds_secret, k.created_at
    from unnest(${claims.map(({ scope }) => scope)}::text[], ${claims.map(({ key }) => key)}::text[]) as c (scope, key)
    join idempotency_keys k on k.scope = c.scope and k.key = c.key`,
  )

interface NewReply {
  readonly scope: string
  readonly key: string
  readonly digest: Buffer
  readonly sealed: Buffer
  readonly holdsSecret: boolean
}

async function insert(db: Db, rows: readonly NewReply[], at: Date): Promise<void> {
  if (rows.length === 0) return
  await db.query(
    prepared('idempotency-insert')`
    insert into idempotency_keys (scope, key, request_hash, sealed_reply, holds_secret, created_at)
    select scope, key, request_hash, sealed_reply, holds_secret, ${at}::timestamptz
    from unnest(${rows.map(({ scope }) => scope)}::text[], ${rows.map(({ key }) => key)}::text[],
                ${rows.map(({ digest }) => digest)}::bytea[], ${rows.map(({ sealed }) => sealed)}::bytea[],
                ${rows.map(({ holdsSecret }) => holdsSecret)}::boolean[])
      as r (scope, key, request_hash, sealed_reply, holds_secret)`,
  )
}

/**
 * The stored replies, for re-encryption under another key-encryption key. A row's name is its scope
 * and key.
 */
export const sealedReplies = sealedColumn({
  table: 'idempotency_keys',
  column: 'sealed_reply',
  // Neither part holds a space.
  key: ['scope', 'key'],
  placeOf,
})

/**
 * Erases at most `limit` replies with secrets. Returns their number. The rows stay, so that no
 * request runs twice.
 */
async function eraseSecrets(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    update idempotency_keys set sealed_reply = null
    where ctid in (
      select ctid from idempotency_keys
      where holds_secret and sealed_reply is not null and created_at < ${before}
      limit ${limit} for update skip locked)`)
  return rowCount ?? 0
}

async function deleteOld(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from idempotency_keys
    where ctid in (
      select ctid from idempotency_keys where created_at < ${before} order by created_at limit ${limit}
      for update skip locked)`)
  return rowCount ?? 0
}
