import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { randomBytes } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { escapeIdentifier, Pool } from 'pg'

/** A PostgreSQL cluster that creates copies of one migrated template database. */
export type Cluster = {
  version: string
  host: string
  create: () => Promise<string>
  drop: (url: string) => Promise<void>
  stop: () => Promise<void>
}

/**
 * Uses the cluster at `url`; its user must be allowed to create databases. `stop` drops the
 * databases created here.
 */
export async function openCluster(url: string): Promise<Cluster> {
  const run = `tollgate_test_${randomBytes(4).toString('hex')}`
  const admin = new Pool({ connectionString: url, max: 2 })
  // The pool's promise resolves before its connections close, so a late error from the server may
  // follow.
  admin.on('error', () => {})
  const names = new Set<string>()
  const at = (name: string) => Object.assign(new URL(url), { pathname: `/${name}` }).href
  const dropNamed = async (name: string) => {
    await admin.query(`drop database if exists ${escapeIdentifier(name)} with (force)`)
    names.delete(name)
  }
  const template = `${run}_template`
  names.add(template)
  await admin.query(`create database ${template}`)
  // Imported here, so that tests without a database do not depend on the migrations.
  const { migrate } = await import('../../../core/db/migrate.ts')
  await migrate(at(template))

  const clone = async () => {
    const name = `${run}_${names.size}_${randomBytes(3).toString('hex')}`
    await copyTemplate({ admin, template, name })
    names.add(name)
    return at(name)
  }
  const { rows } = await admin.query<{ server_version: string }>('show server_version')
  return {
    version: rows[0]?.server_version.split(' ')[0] ?? 'unknown',
    host: new URL(url).host,
    create: oneAtATime(clone),
    drop: (url) => dropNamed(new URL(url).pathname.slice(1)),
    stop: async () => {
      await Promise.allSettled([...names].map(dropNamed))
      await admin.end()
    },
  }
}

/** Returns `copy`, whose calls wait for each other: PostgreSQL copies a database once at a time. */
export function oneAtATime<T>(copy: () => Promise<T>): () => Promise<T> {
  let last: Promise<unknown> = Promise.resolve()
  return () => {
    const next = last.then(copy, copy)
    last = next
    return next
  }
}

/**
 * Starts an embedded PostgreSQL and uses it. Its files are in TOLLGATE_DATABASES, or else in the
 * temporary directory, and are removed afterwards.
 */
export async function embeddedCluster(): Promise<Cluster> {
  const { startEmbeddedPostgres } = await import('../../../core/db/embedded/embedded.ts')
  const { TOLLGATE_DATABASES: folder = tmpdir() } = process.env
  const directory = await mkdtemp(join(folder, 'tollgate-test-'))
  // If this process is root, PostgreSQL runs as another user, which needs access to the directory.
  await chmod(directory, 0o711)
  const postgres = await startEmbeddedPostgres({
    dataDir: join(directory, 'postgres'),
    settings: {
      // Several test files start several cores at once, as on CI's server (.ci/services.sh).
      max_connections: '200',
      // The data does not outlive the run, so no write waits for the disk.
      fsync: 'off',
      synchronous_commit: 'off',
      full_page_writes: 'off',
    },
  })
  const remove = async () => {
    await postgres.stop()
    await rm(directory, { recursive: true, force: true })
  }
  try {
    const cluster = await openCluster(postgres.superuserUrl)
    return {
      ...cluster,
      stop: async () => {
        await cluster.stop()
        await remove()
      },
    }
  } catch (error) {
    await remove()
    throw error
  }
}

type Copy = { admin: Pool; template: string; name: string }

async function copyTemplate({ admin, template, name }: Copy): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await admin.query(`create database ${name} template ${template}`)
      return
    } catch (error) {
      // A connection to the template, such as autovacuum's, closes after a short time.
      if (attempt === 40 || !(error instanceof Error && /being accessed/.test(error.message)))
        throw error
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
}
