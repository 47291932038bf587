import { Client, Pool } from 'pg'
import { afterAll, describe, expect, it } from 'vitest'
import { createDatabase } from '../run/postgres.ts'

const pools: Pool[] = []
afterAll(() => Promise.all(pools.map((pool) => pool.end())))

function connect(url: string): Pool {
  const pool = new Pool({ connectionString: url, max: 1 })
  pools.push(pool)
  return pool
}

describe('createDatabase', () => {
  it('gives concurrent callers a migrated database each', async () => {
    const databases = await Promise.all([createDatabase(), createDatabase(), createDatabase()])
    expect(new Set(databases.map(({ url }) => url)).size).toBe(3)
    for (const { url } of databases) {
      const { rows } = await connect(url).query('select count(*)::int as applied from migrations')
      expect(rows[0].applied).toBeGreaterThan(0)
    }
  })

  it('drops a database that is in use', async () => {
    const { url, drop } = await createDatabase()
    const client = new Client({ connectionString: url })
    const cut = new Promise((resolve) => client.on('error', resolve))
    await client.connect()
    await drop()
    await cut
    await expect(new Client({ connectionString: url }).connect()).rejects.toThrow('does not exist')
  })
})
