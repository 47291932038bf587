import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createPool } from '../../../core/lib/sql.ts'
import { type TestDatabase, createDatabase } from '../../support/postgres.ts'

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
})
