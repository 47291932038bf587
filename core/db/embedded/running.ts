import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { serves } from './left-over.ts'
import { serviceRole } from './roles.ts'

/** What `dataDir` of an embedded PostgreSQL holds. */
export interface EmbeddedState {
  /** Whether its cluster exists. */
  readonly isCreated: boolean
  /** Address for the service's role while the server runs; null otherwise. */
  readonly url: string | null
}

/** Finds the server of a running all-in-one service. Starts and changes nothing. */
export async function findEmbedded(dataDir: string): Promise<EmbeddedState> {
  const directory = join(dataDir, 'cluster')
  const read = (path: string): Promise<string | null> => readFile(path, 'utf8').catch(() => null)
  const isCreated = (await read(join(directory, 'PG_VERSION'))) !== null
  const [pid, , , port] = (await read(join(directory, 'postmaster.pid')))?.split('\n') ?? []
  const password = (await read(join(dataDir, 'password')))?.trim()
  const runs = Number(pid) > 1 && (await serves(Number(pid), directory))
  if (!runs || port === undefined || password === undefined) return { isCreated, url: null }
  return { isCreated, url: `postgres://${serviceRole}:${password}@127.0.0.1:${port}/tollgate` }
}
