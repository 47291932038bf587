import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createPool, prepared, sql } from '../../../core/lib/sql.ts'
import { migrate } from '../../../core/db/migrate.ts'
import { type Pooler, pgbouncer, startPooler } from '../../support/run/pgbouncer.ts'
import { type TestDatabase, createDatabase } from '../../support/run/postgres.ts'
import { atOnce, startTestCore } from '../support.ts'

describe.runIf(pgbouncer)('PgBouncer in transaction mode', () => {
  let database: TestDatabase
  let pooler: Pooler
  beforeAll(async () => {
    database = await createDatabase()
    pooler = await startPooler(database.url, { connections: 2 })
  })
  afterAll(async () => {
    await pooler?.stop()
    await database?.drop()
  })

  it('runs named statements and keeps the time limits on every connection', async () => {
    const pool = createPool({
      url: pooler.url,
      max: 8,
      name: 'pooler-test',
      statementTimeoutMs: 10_000,
      isPooled: true,
    })
    const double = prepared('double')
    const answers = await atOnce(40, async (value) => {
      const { rows } = await pool.query<{ twice: number; limit: string }>(
        double`select ${value}::int * 2 as twice, current_setting('statement_timeout') as limit`,
      )
      return rows[0]
    })
    expect(answers).toEqual(answers.map((_, value) => ({ twice: value * 2, limit: '10s' })))
    const { rows } = await pool.query(sql`select name from pg_prepared_statements`)
    expect(rows).toEqual([])
    await pool.end()
  })

  it('is refused as the direct address, whichever setting names it', async () => {
    await expect(migrate(pooler.url)).rejects.toThrow(
      'DATABASE_URL: a connection pooler such as PgBouncer answers there; set DATABASE_DIRECT_URL',
    )
    const env = { DATABASE_URL: database.url, DATABASE_DIRECT_URL: pooler.url }
    await expect(startTestCore(env)).rejects.toThrow('DATABASE_DIRECT_URL: a connection pooler')
  })

  it('is refused without time limits', async () => {
    const unlimited = await startPooler(database.url, { connections: 2, hasLimits: false })
    const env = { DATABASE_URL: unlimited.url, DATABASE_DIRECT_URL: database.url }
    await expect(startTestCore(env)).rejects.toThrow(
      "DATABASE_URL: the pooler's connections have no idle_in_transaction_session_timeout, lock_timeout, statement_timeout; set them by connect_query",
    )
    await unlimited.stop()
  })
})
