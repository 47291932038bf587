import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startEmbeddedPostgres } from '../../core/db/embedded/embedded.ts'
import { type Cluster, openCluster } from '../support/database-cluster.ts'

export interface Server extends Cluster {
  readonly kind: string
}

/**
 * The PostgreSQL of `databaseUrl`, or the embedded one exactly as the service configures it, durable
 * writes and all. What the run creates there is dropped by `stop`.
 */
export async function openServer(databaseUrl: string | undefined): Promise<Server> {
  if (databaseUrl) return { ...(await openCluster(databaseUrl)), kind: 'external' }
  const directory = await mkdtemp(join(tmpdir(), 'tollgate-bench-'))
  // Root's PostgreSQL runs as another user, who must be able to enter.
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
