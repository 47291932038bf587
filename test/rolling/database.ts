import { randomBytes } from 'node:crypto'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from 'pg'
import { startEmbeddedPostgres } from '../../core/db/embedded/embedded.ts'
import type { Stops } from '../support/deployment/parts.ts'

/**
 * Returns the address of an empty database without a schema: on the PostgreSQL at `server`, or on
 * an embedded one with durable writes.
 */
export async function openDatabase(stops: Stops, server: string | undefined): Promise<string> {
  if (server !== undefined) return createDatabase(stops, server)
  const directory = await mkdtemp(join(tmpdir(), 'tollgate-rolling-'))
  // If this process is root, PostgreSQL runs as another user, which needs access to the directory.
  await chmod(directory, 0o711)
  stops.push(() => rm(directory, { recursive: true, force: true }))
  const postgres = await startEmbeddedPostgres({
    dataDir: join(directory, 'postgres'),
    settings: { max_connections: '150' },
  })
  stops.push(postgres.stop)
  return postgres.url
}

async function createDatabase(stops: Stops, server: string): Promise<string> {
  const name = `tollgate_rolling_${randomBytes(4).toString('hex')}`
  const run = async (statement: string): Promise<void> => {
    const client = new Client({ connectionString: server })
    await client.connect()
    await client.query(statement).finally(() => client.end())
  }
  await run(`create database ${name}`)
  stops.push(() => run(`drop database if exists ${name} with (force)`))
  return Object.assign(new URL(server), { pathname: `/${name}` }).href
}
