import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { createPool } from '../../../core/lib/sql.ts'
import { observeDatabase } from '../../../core/shared/database/metrics.ts'
import { type TestDatabase, createDatabase } from '../../support/run/postgres.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createDatabase()
})
afterAll(() => database.drop())

describe('observeDatabase', () => {
  it('shows used and waiting connections, the longest transaction and the time of use', async () => {
    const options = { url: database.url, name: 'observed', statementTimeoutMs: 10_000 }
    const pool = createPool({ ...options, max: 2 })
    const metrics = createMetrics('test')
    observeDatabase(pool, metrics)
    const read = async (name: string): Promise<number> => {
      const text = await metrics.metrics()
      return Number(new RegExp(`^tollgate_database_${name}\\{[^}]*\\} (\\S+)`, 'm').exec(text)?.[1])
    }
    const long = await pool.connect()
    await long.query('begin')
    await long.query('select pg_sleep(0.2)')
    expect(await read('longest_transaction_seconds')).toBeGreaterThan(0.15)
    expect(await read('connections')).toBeGreaterThanOrEqual(2)
    expect(await read('connections_max')).toBeGreaterThan(10)
    expect(await read('size_bytes')).toBeGreaterThan(1_000_000)
    expect([await read('pool_used'), await read('pool_max'), await read('pool_waiting')]).toEqual([
      1, 2, 0,
    ])

    const other = await pool.connect()
    const waiting = pool.query('select 1')
    // The server's figures wait for a connection, too, and the scrape waits for them.
    const scraped = read('pool_waiting')
    await long.query('commit')
    long.release()
    await waiting
    expect(await scraped).toBeGreaterThanOrEqual(1)
    other.release()
    const text = await metrics.getSingleMetricAsString('tollgate_database_use_duration_seconds')
    const [, fast] = /_bucket\{le="0.1"[^}]*\} (\d+)/.exec(text) ?? []
    const [, all] = /_count\S* (\d+)/.exec(text) ?? []
    expect(Number(all) - Number(fast)).toBeGreaterThanOrEqual(1)
    await pool.end()
  })

  it('keeps its values while the database does not answer', async () => {
    const options = { url: 'postgres://nobody@127.0.0.1:1/none', name: 'observed' }
    const pool = createPool({ ...options, max: 1, statementTimeoutMs: 1_000 })
    const metrics = createMetrics('test')
    observeDatabase(pool, metrics)
    expect(await metrics.metrics()).toMatch(/^tollgate_database_pool_max\S* 1$/m)
    await pool.end()
  })
})
