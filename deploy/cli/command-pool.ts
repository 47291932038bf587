import { type Pool, createPool } from '../../core/lib/sql.ts'

interface CommandPool {
  readonly url: string
  /** Name of the connections at the server. */
  readonly name: string
}

/** Runs `work` of a command that uses the database itself. Its statements may take any time. */
export async function withPool<T>(
  { url, name }: CommandPool,
  work: (pool: Pool) => Promise<T>,
): Promise<T> {
  const pool = createPool({ url, max: 2, name, statementTimeoutMs: 0 })
  try {
    return await work(pool)
  } finally {
    await pool.end()
  }
}
