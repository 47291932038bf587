import { inject } from 'vitest'
import './parts.ts'

export type TestDatabase = { url: string; drop: () => Promise<void> }

/**
 * Creates a migrated, empty database for one test file, on the PostgreSQL of this vitest project.
 * The first call of a run starts the cluster and migrates the template; later calls take about 40
 * ms. Databases that are not dropped are removed after the run.
 */
export async function createDatabase(): Promise<TestDatabase> {
  const cluster = inject('parts').databaseUrl === null ? 'embedded' : 'external'
  const { url } = await ask(`/create?cluster=${cluster}`)
  return {
    url,
    drop: async () => {
      await ask(`/drop?cluster=${cluster}&url=${encodeURIComponent(url)}`)
    },
  }
}

async function ask(path: string): Promise<{ url: string }> {
  const response = await fetch(`${inject('databases')}${path}`, {
    method: 'POST',
    signal: AbortSignal.timeout(60_000),
  })
  const answer: { url: string; error?: string } = JSON.parse(await response.text())
  if (answer.error !== undefined) throw new Error(`no test database: ${answer.error}`)
  return answer
}
