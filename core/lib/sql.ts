import { Pool as PgPool, types } from 'pg'

export type Pool = PgPool
/** A pool, or a client inside a transaction. The first parameter of every store function. */
export type Db = Pick<PgPool, 'query'>

// Parse int8 as a bigint, never as a float. The parser is global to pg, so it is set once, here.
types.setTypeParser(types.builtins.INT8, BigInt)

export interface PoolOptions {
  readonly url: string
  readonly max: number
  readonly name: string
  readonly statementTimeoutMs: number
}

/** Returns a pool with time limits for statements, lock waits and connection attempts. */
export function createPool({ url, max, name, statementTimeoutMs }: PoolOptions): Pool {
  const pool = new PgPool({
    connectionString: url,
    max,
    application_name: name,
    connectionTimeoutMillis: 5_000,
    idleTimeoutMillis: 30_000,
    statement_timeout: statementTimeoutMs,
    lock_timeout: statementTimeoutMs,
    idle_in_transaction_session_timeout: 30_000,
    keepAlive: true,
  })
  // While a connection is in use, the pool has no 'error' listener on it, and an unhandled 'error'
  // would end the process. The next query rejects anyway.
  return pool.on('connect', (client) => client.on('error', ignore))
}

const ignore = (): void => {}

/** True when the database answers. */
export const databaseAnswers = (pool: Pool): Promise<boolean> =>
  pool.query('select 1').then(
    () => true,
    () => false,
  )

/** The database's clock. */
export async function databaseTime(pool: Pool): Promise<Date> {
  const { at } = await one<{ at: Date }>(pool, sql`select clock_timestamp() as at`)
  return at
}

export interface Statement {
  readonly text: string
  readonly values: unknown[]
  /** Set when the server prepares the statement once for each connection. */
  readonly name?: string
}

/** Returns a statement whose `${}` values are parameters, never part of its text. */
export function sql(parts: TemplateStringsArray, ...values: unknown[]): Statement {
  let text = parts[0] ?? ''
  for (let i = 1; i < parts.length; i++) text += `$${i}${parts[i]}`
  return { text, values }
}

/**
 * Gives the statement a unique name, so that it is prepared once per connection. Use it for the few
 * statements that every request runs.
 */
export const prepared = (name: string, statement: Statement): Statement => ({ ...statement, name })

// Steps to run after the commit of each running transaction.
const afterCommits = new WeakMap<Db, (() => Promise<void>)[]>()

/**
 * Runs `step` after the transaction `db` commits; never if it rolls back; at once if `db` is not a
 * transaction.
 */
export async function afterCommit(db: Db, step: () => Promise<void>): Promise<void> {
  const steps = afterCommits.get(db)
  if (steps) steps.push(step)
  else await step()
}

/**
 * Runs `work` in one transaction, and rolls back if it throws. Resolves after the `afterCommit`
 * steps.
 */
export async function tx<T>(pool: Pool, work: (db: Db) => Promise<T>): Promise<T> {
  const steps: (() => Promise<void>)[] = []
  const result = await commit(pool, (db) => {
    afterCommits.set(db, steps)
    return work(db).finally(() => void afterCommits.delete(db))
  })
  // Run the steps concurrently: if Redis hangs, they all wait only once.
  await Promise.all(steps.map((step) => step()))
  return result
}

async function commit<T>(pool: Pool, work: (db: Db) => Promise<T>): Promise<T> {
  const client = await pool.connect()
  try {
    await client.query('begin')
    const result = await work(client)
    await client.query('commit')
    client.release()
    return result
  } catch (error) {
    // After a failed rollback the connection's state is unknown, so the pool drops it.
    const broken = await client.query('rollback').then(
      () => undefined,
      (failure: Error) => failure,
    )
    client.release(broken)
    throw error
  }
}

/**
 * Runs `work` in a transaction that is always rolled back, for checks that write while they read.
 */
export async function rollbackAfter<T>(pool: Pool, work: (db: Db) => Promise<T>): Promise<T> {
  const undo = new Error('rolled back')
  const results: T[] = []
  await commit(pool, async (db) => {
    results.push(await work(db))
    throw undo
  }).catch((error: unknown) => {
    if (error !== undo) throw error
  })
  const [result] = results
  if (result === undefined) throw undo
  return result
}

/** Runs `work` behind a savepoint. If it throws, only its own changes are rolled back. */
export async function savepoint<T>(db: Db, work: () => Promise<T>): Promise<T> {
  await db.query('savepoint part')
  try {
    const result = await work()
    await db.query('release savepoint part')
    return result
  } catch (error) {
    // Release it as well, because it would hide an outer savepoint of the same name.
    await db.query('rollback to savepoint part; release savepoint part')
    throw error
  }
}

/** Whether the error is a violated unique constraint. */
export const isUniqueViolation = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === '23505'

export async function one<Row extends object>(db: Db, statement: Statement): Promise<Row> {
  const row = await maybeOne<Row>(db, statement)
  if (!row) throw new Error(`expected a row from: ${statement.text}`)
  return row
}

export async function maybeOne<Row extends object>(
  db: Db,
  statement: Statement,
): Promise<Row | null> {
  const { rows } = await db.query<Row>(statement)
  return rows[0] ?? null
}

export async function many<Row extends object>(db: Db, statement: Statement): Promise<Row[]> {
  const { rows } = await db.query<Row>(statement)
  return rows
}

const unavailable = new Set([
  '57P01',
  '57P02',
  '57P03',
  '53300',
  '08000',
  '08003',
  '08006',
  '08001',
  '57014',
  '55P03',
])

/** Whether Postgres, not the statement, is at fault, so that a later attempt may succeed. */
export function isUnavailable(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const code = 'code' in error && typeof error.code === 'string' ? error.code : ''
  return (
    unavailable.has(code) ||
    /^(ECONN|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_)/.test(code) ||
    /connection (terminated|timeout|error)|timeout exceeded when trying to connect/i.test(
      error.message,
    )
  )
}
