import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startEmbeddedPostgres } from '../../core/db/embedded/embedded.ts'
import { type Cluster, openCluster } from '../support/run/database-cluster.ts'

export interface Server extends Cluster {
  readonly kind: string
}

/**
 * Uses the PostgreSQL at `databaseUrl`, or else the embedded one exactly as the service configures
 * it, with durable writes. `stop` drops what the run created there.
 */
export async function openServer(databaseUrl: string | undefined): Promise<Server> {
  if (databaseUrl) return { ...(await openCluster(databaseUrl)), kind: 'external' }
  const directory = await mkdtemp(join(tmpdir(), 'tollgate-bench-'))
  // If this process is root, PostgreSQL runs as another user, which needs access to the directory.
  await chmod(directory, 0o711)
  const postgres = await startEmbeddedPostgres({ dataDir: join(directory, 'postgres') })
  const remove = async (): Promise<void> => {
    await postgres.stop()
    await rm(directory, { recursive: true, force: true })
  }
  try {
    const cluster = await openCluster(postgres.superuserUrl)
    return { ...cluster, kind: 'embedded', stop: () => cluster.stop().finally(remove) }
  } catch (error) {
    await remove()
    throw error
  }
}
