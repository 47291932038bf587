import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { startProxy } from '../../chaos/proxy.ts'
import type { Stops } from '../../support/deployment/parts.ts'
import { createPool, isUnavailable, limitStatements, tx } from '../../../core/lib/sql.ts'
import { type TestDatabase, createDatabase } from '../../support/run/postgres.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createDatabase()
})
afterAll(() => database.drop())

describe('createPool', () => {
  it('survives the end of a connection that is in use and runs no statement', async () => {
    const options = { url: database.url, name: 'pool-test', statementTimeoutMs: 10_000 }
    const [pool, killer] = [createPool({ ...options, max: 1 }), createPool({ ...options, max: 1 })]
    const client = await pool.connect()
    const ended = new Promise<void>((resolve) => client.once('end', () => resolve()))
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
    await killer.query('select pg_terminate_backend($1)', [rows[0]?.pid])
    await ended
    await expect(client.query('select 1')).rejects.toThrow(/connection/i)
    client.release(true)
    expect((await pool.query('select 1 as one')).rows).toEqual([{ one: 1 }])
    await Promise.all([pool.end(), killer.end()])
  })

  it('survives the end of an idle connection', async () => {
    const options = { url: database.url, name: 'pool-test', statementTimeoutMs: 10_000 }
    const [pool, killer] = [createPool({ ...options, max: 1 }), createPool({ ...options, max: 1 })]
    const { rows } = await pool.query<{ pid: number }>('select pg_backend_pid() as pid')
    const removed = new Promise<void>((resolve) => pool.once('remove', () => resolve()))
    await killer.query('select pg_terminate_backend($1)', [rows[0]?.pid])
    await removed
    expect((await pool.query('select 1 as one')).rows).toEqual([{ one: 1 }])
    await Promise.all([pool.end(), killer.end()])
  })

  it('prepares named statements only without a pooler', async () => {
    const prepared = async (isPooled: boolean): Promise<unknown[]> => {
      const options = { url: database.url, name: 'pool-test', statementTimeoutMs: 10_000 }
      const pool = createPool({ ...options, max: 1, isPooled })
      await pool.query({ name: 'answer', text: 'select $1::int as answer', values: [42] })
      const { rows } = await pool.query<{ name: string }>('select name from pg_prepared_statements')
      await pool.end()
      return rows.map(({ name }) => name)
    }
    expect(await prepared(false)).toEqual(['answer'])
    expect(await prepared(true)).toEqual([])
  })
})

describe('a pool whose statements may take any time', () => {
  it('has no limit at the server nor at the client', async () => {
    const pool = createPool({ url: database.url, name: 'pool-test', statementTimeoutMs: 0, max: 1 })
    expect(pool.options.query_timeout).toBeUndefined()
    const { rows } = await pool.query<{ statement_timeout: string }>('show statement_timeout')
    expect(rows).toEqual([{ statement_timeout: '0' }])
    await pool.end()
  })
})

describe('an address without a password', () => {
  it('leaves the password to PGPASSWORD, also if it can be reloaded', async () => {
    const url = new URL(database.url)
    const { password } = url
    url.password = ''
    vi.stubEnv('PGPASSWORD', decodeURIComponent(password))
    const options = { name: 'pool-test', statementTimeoutMs: 1_000, max: 1 }
    const pool = createPool({ ...options, url: () => url.href })
    expect((await pool.query('select 1 as one')).rows).toEqual([{ one: 1 }])
    await pool.end()
  })
})

describe('a transaction', () => {
  it('gives its connection back with the usual limit', async () => {
    const options = { url: database.url, name: 'pool-test', statementTimeoutMs: 300, max: 1 }
    const pool = createPool(options)
    const limitOf = (client: object): unknown =>
      Object(Reflect.get(client, 'connectionParameters')).query_timeout
    const limits: unknown[] = []
    pool.on('release', (_error, client) => limits.push(limitOf(client)))
    await tx(pool, (db) => limitStatements(db, 60_000))
    await tx(pool, async (db) => {
      await limitStatements(db, 60_000)
      throw new Error('given up')
    }).catch(() => {})
    expect(limits).toEqual([5_300, 5_300])
    await pool.end()
  })

  it('leaves the connection of a server that has become read-only', async () => {
    const options = { url: database.url, name: 'pool-test', statementTimeoutMs: 10_000, max: 1 }
    const pool = createPool(options)
    const write = () => tx(pool, (db) => db.query('create temporary table written (id int)'))
    await pool.query('set session characteristics as transaction read only')
    await expect(write()).rejects.toMatchObject({ code: '25006' })
    await expect(write()).resolves.toBeDefined()
    await pool.end()
  })
})

describe('a connection that is lost without a sign', () => {
  it('ends its transaction as unavailable, and the next one uses another', async () => {
    const stops: Stops = []
    const url = new URL(database.url)
    const proxy = await startProxy(stops, Number(url.port))
    url.port = String(proxy.port)
    const pool = createPool({ url: url.href, name: 'pool-test', statementTimeoutMs: 100, max: 1 })
    const read = () => tx(pool, (db) => db.query('select 1'))
    await read()
    proxy.interrupt('lose')
    const error = await read().catch((thrown: unknown) => thrown)
    expect(isUnavailable(error)).toBe(true)
    proxy.heal()
    await expect(read()).resolves.toMatchObject({ rowCount: 1 })
    await pool.end()
    for (const stop of stops) await stop()
  }, 15_000)

  it('may be silent for longer where a statement may take longer', async () => {
    const options = { url: database.url, name: 'pool-test', statementTimeoutMs: 100, max: 1 }
    const pool = createPool(options)
    const limitOf = (db: object): unknown =>
      Object(Reflect.get(db, 'connectionParameters')).query_timeout
    const limits = await tx(pool, async (db) => {
      const before = limitOf(db)
      await limitStatements(db, 900_000)
      await db.query('select pg_sleep(0.2)')
      return [before, limitOf(db)]
    })
    expect(limits).toEqual([5_100, 905_000])
    expect(await tx(pool, async (db) => limitOf(db))).toBe(5_100)
    await pool.end()
  })
})

describe('isUnavailable', () => {
  const failure = (code: string, message: string): Error =>
    Object.assign(new Error(message), { code })

  it.each([
    ['a full queue of PgBouncer', failure('08P01', 'query_wait_timeout'), true],
    ['a statement without its parameters', failure('08P01', 'bind message supplies 0'), false],
    ['a statement out of time', failure('57014', 'canceling statement'), true],
    ['a standby', failure('25006', 'cannot execute INSERT in a read-only transaction'), true],
    ['a transaction that waited too long', failure('25P03', 'terminating connection'), true],
    ['a unique violation', failure('23505', 'duplicate key'), false],
  ])('of %s', (_, error, expected) => {
    expect(isUnavailable(error)).toBe(expected)
  })

  it('is false for what PostgreSQL answers to wrong parameters', async () => {
    const options = { url: database.url, name: 'pool-test', statementTimeoutMs: 10_000, max: 1 }
    const pool = createPool(options)
    const error = await pool
      .query('select $1::int, $2::int', [1])
      .catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ code: '08P01' })
    expect(isUnavailable(error)).toBe(false)
    await pool.end()
  })
})
