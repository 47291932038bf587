import { Client, Pool as PgPool, types } from 'pg'
import { withLivePassword } from './settings/database-password.ts'
import { type Reloadable, currentValue } from './settings/reloadable.ts'
import { TracedClient, TracedPool } from './telemetry/traced-client.ts'
import { activeTracing } from './telemetry/tracing.ts'

export type Pool = PgPool
/** A pool, or a client inside a transaction. The first parameter of every store function. */
export type Db = Pick<PgPool, 'query'>

// Parse int8 as a bigint, never as a float. The parser is global to pg, so it is set once, here.
types.setTypeParser(types.builtins.INT8, BigInt)

export interface PoolOptions {
  /** A reload replaces the password in it. */
  readonly url: Reloadable<string>
  readonly max: number
  readonly name: string
  /** 0 lets statements take any time, as in a command. */
  readonly statementTimeoutMs: number
  /**
   * Whether `url` is a pooler that gives each transaction another connection: then no statement is
   * prepared, and the pooler sets the time limits. Default is false.
   */
  readonly isPooled?: boolean
}

/**
 * A statement that the server did not end at its own limit, plus this time, has no server any more:
 * a connection can be lost without a sign, and would then hang for a quarter of an hour.
 */
const silenceMs = 5_000

/** Returns a pool with time limits for statements, lock waits and connection attempts. */
export function createPool(options: PoolOptions): Pool {
  const { url, max, name, statementTimeoutMs, isPooled = false } = options
  const isTraced = activeTracing() !== null
  const settings = {
    connectionString: currentValue(url),
    max,
    application_name: name,
    connectionTimeoutMillis: 5_000,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    ...(statementTimeoutMs > 0 && { query_timeout: statementTimeoutMs + silenceMs }),
    // PgBouncer refuses connections with these parameters.
    ...(!isPooled && {
      statement_timeout: statementTimeoutMs,
      lock_timeout: statementTimeoutMs,
      idle_in_transaction_session_timeout: 30_000,
    }),
  }
  const Base = withLivePassword(isTraced ? TracedClient : Client, url)
  const chosen = { ...settings, Client: isPooled ? withoutNames(Base) : Base }
  const pool = isTraced ? new TracedPool(chosen) : new PgPool(chosen)
  // An 'error' without a listener ends the process. The pool has no listener on a connection in
  // use, whose next query rejects anyway, and reports the errors of idle ones as its own.
  return pool.on('error', ignore).on('connect', (client) => client.on('error', ignore))
}

const ignore = (): void => {}

/** A client that ignores the names of statements, so that none stays prepared. */
const withoutNames = (Base: typeof Client): typeof Client =>
  class extends Base {
    override query(...[first, ...others]: readonly unknown[]): never {
      const statement = isNamed(first) ? { ...first, name: undefined } : first
      // The overloads return a promise, nothing, or what was passed; `never` fits them all.
      return Reflect.apply(super.query, this, [statement, ...others]) as never
    }
  }

const isNamed = (value: unknown): value is Statement =>
  typeof value === 'object' && value !== null && 'text' in value && 'name' in value

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
export const prepared =
  (name: string) =>
  (...statement: Parameters<typeof sql>): Statement => ({ ...sql(...statement), name })

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

/** Lets each statement of the transaction `db` take `limitMs`. */
export async function limitStatements(db: Db, limitMs: number): Promise<void> {
  await db.query(sql`select set_config('statement_timeout', ${String(limitMs)}, true)`)
  if ('connectionParameters' in db) setSilence(db.connectionParameters, limitMs + silenceMs)
}

// The only place from which pg reads the limit of a statement without its own.
function setSilence(parameters: unknown, query_timeout: number | undefined): void {
  if (typeof parameters === 'object' && parameters !== null)
    Object.assign(parameters, { query_timeout })
}

function readSilence(parameters: unknown): number | undefined {
  const limit: unknown = Object(parameters).query_timeout
  return typeof limit === 'number' ? limit : undefined
}

const commits = new WeakMap<Pool, string>()

/** Makes `statement` the last one of each later transaction of the pool. */
export const commitWith = (pool: Pool, statement: string): void =>
  void commits.set(pool, `${statement}; commit`)

async function commit<T>(pool: Pool, work: (db: Db) => Promise<T>): Promise<T> {
  const client = await pool.connect()
  const parameters: unknown = Reflect.get(client, 'connectionParameters')
  const silence = readSilence(parameters)
  try {
    await client.query('begin')
    const result = await work(client)
    await client.query(commits.get(pool) ?? 'commit')
    // Before the release, which starts a statement that waits for the connection.
    setSilence(parameters, silence)
    client.release()
    return result
  } catch (error) {
    // After a failed rollback the connection's state is unknown, so the pool drops it. It also drops
    // a connection to a server that is no longer the primary, or that does not answer.
    const broken =
      isSilent(error) ||
      (await client.query('rollback').then(
        () => isReadOnly(error),
        () => true,
      ))
    setSilence(parameters, silence)
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
    if (isSilent(error)) throw error
    // Release it as well, because it would hide an outer savepoint of the same name.
    await db.query('rollback to savepoint part; release savepoint part')
    throw error
  }
}

const hasCode = (error: unknown, code: string): boolean =>
  error instanceof Error && 'code' in error && error.code === code

/** Whether the error is a violated unique constraint. */
export const isUniqueViolation = (error: unknown): boolean => hasCode(error, '23505')

/** Whether a transaction met a change that its snapshot does not show. */
export const isSerializationFailure = (error: unknown): boolean => hasCode(error, '40001')

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

const readOnly = '25006'

const isReadOnly = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === readOnly

/** Whether the server did not answer in time; its connection is of no use. */
const isSilent = (error: unknown): boolean =>
  error instanceof Error && error.message === 'Query read timeout'

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
  // A standby, or a primary that is not promoted yet.
  readOnly,
  // The server ended a transaction whose next statement did not arrive.
  '25P03',
  // PgBouncer reports every failure of its own with this code, such as a full queue.
  '08P01',
])

/** Whether Postgres, not the statement, is at fault, so that a later attempt may succeed. */
export function isUnavailable(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const code = 'code' in error && typeof error.code === 'string' ? error.code : ''
  // PostgreSQL reports wrong parameters with PgBouncer's code.
  if (error.message.startsWith('bind message')) return false
  return (
    unavailable.has(code) ||
    isSilent(error) ||
    /^(ECONN|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_)/.test(code) ||
    /connection (terminated|timeout|error)|timeout exceeded when trying to connect|^timeout expired$/i.test(
      error.message,
    )
  )
}
