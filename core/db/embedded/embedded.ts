import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chown, mkdir, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join, resolve } from 'node:path'
import type { Log } from '../../lib/log.ts'
import { silentLog } from '../../lib/log.ts'
import { lockDirectory } from '../../lib/directory-lock.ts'
import { prepareDatabase, serviceRole } from './roles.ts'
import { locatePostgres } from './binaries.ts'
import { stopLeftOver } from './left-over.ts'
import {
  complaint,
  openServerLog,
  runInitdb,
  runsAs,
  spawnPostgres,
  type Cluster,
  type PostgresProcess,
} from './process.ts'

export type EmbeddedPostgresOptions = {
  /**
   * Directory of the cluster, its password and its log. Created if missing; used by one process at
   * a time.
   */
  readonly dataDir: string
  /** Default is a free port. */
  readonly port?: number
  readonly log?: Log
  /** Additional server settings, by their postgresql.conf names. */
  readonly settings?: Readonly<Record<string, string>>
  /** Called if the server ends before `stop`. */
  readonly onUnexpectedExit?: (reason: string) => void
}

export type EmbeddedPostgres = {
  /** For the service: a role that owns the database and has no rights outside it. */
  readonly url: string
  /** For administration of the server. */
  readonly superuserUrl: string
  stop: () => Promise<void>
}

const DATABASE = 'tollgate'
const SUPERUSER = 'tollgate'
const START_ATTEMPTS = 5
const READY_TIMEOUT_MS = 60_000

/** Settings for low memory use with full durability. */
const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  shared_buffers: '128MB',
  max_connections: '60',
  max_wal_size: '1GB',
  fsync: 'on',
  jit: 'off',
  timezone: 'UTC',
  log_timezone: 'UTC',
  log_checkpoints: 'off',
}

/**
 * Starts PostgreSQL from the dependencies on `dataDir`, listening only on loopback, and creates the
 * database `tollgate` with its owner, a role that is not a superuser. First stops a server that a
 * killed process left running on the directory. `stop` waits for a clean shutdown and may be called
 * again. Rejects with one clear line if another process uses the directory or this platform has no
 * binaries.
 */
export async function startEmbeddedPostgres(
  options: EmbeddedPostgresOptions,
): Promise<EmbeddedPostgres> {
  const dataDir = resolve(options.dataDir)
  await mkdir(dataDir, { recursive: true, mode: 0o711 })
  const unlock = await lockDirectory(dataDir, 'TOLLGATE_DATA_DIR')
  try {
    const { stop, ...urls } = await startLocked({ ...options, dataDir })
    let stopping: Promise<void> | undefined
    return { ...urls, stop: () => (stopping ??= stop().finally(unlock)) }
  } catch (error) {
    await unlock()
    throw error
  }
}

async function startLocked(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const log = options.log ?? silentLog()
  const directory = join(options.dataDir, 'cluster')
  const cluster: Cluster = {
    directory,
    user: await runsAs(directory),
    binaries: await locatePostgres(),
    serverLog: await openServerLog(join(options.dataDir, 'postgres.log')),
  }
  try {
    await stopLeftOver(directory, log)
    const settings = { ...SETTINGS, ...options.settings }
    const password = await initialise(cluster, options.dataDir, settings.fsync !== 'off')
    const server = await startServer({ cluster, password, settings, port: options.port })
    server.process.onUnexpectedExit((reason) => {
      log.error({ reason }, 'embedded PostgreSQL ended unexpectedly')
      options.onUnexpectedExit?.(reason)
    })
    const { url, superuserUrl } = server
    return { url, superuserUrl, stop: server.process.stop }
  } finally {
    await cluster.serverLog.file.close()
  }
}

/**
 * Creates the cluster unless it exists, and returns its password. Creates it in another directory
 * and renames that, so that a killed start leaves no incomplete cluster.
 */
async function initialise(cluster: Cluster, dataDir: string, sync: boolean): Promise<string> {
  const passwordFile = join(dataDir, 'password')
  if (await exists(join(cluster.directory, 'PG_VERSION'))) {
    return (await readFile(passwordFile, 'utf8')).trim()
  }
  const password = randomBytes(24).toString('base64url')
  await writeFile(passwordFile, `${password}\n`, { mode: 0o600 })
  const unfinished = { ...cluster, directory: `${cluster.directory}.new` }
  await rm(unfinished.directory, { recursive: true, force: true })
  await mkdir(unfinished.directory, { mode: 0o700 })
  if (cluster.user) await chown(unfinished.directory, cluster.user.uid, cluster.user.gid)

  const handover = join(dataDir, 'password.new')
  await writeFile(handover, password, { mode: 0o600 })
  if (cluster.user) await chown(handover, cluster.user.uid, cluster.user.gid)
  const opened = await open(handover, 'r')
  try {
    await rm(handover)
    await runInitdb(unfinished, opened.fd, sync)
  } finally {
    await opened.close()
  }
  await rename(unfinished.directory, cluster.directory)
  return password
}

type ServerOptions = {
  cluster: Cluster
  password: string
  settings: Record<string, string>
  port: number | undefined
}

async function startServer({ cluster, password, settings, port: fixedPort }: ServerOptions) {
  for (let attempt = 1; ; attempt++) {
    const port = fixedPort ?? (await freePort())
    const process = spawnPostgres(cluster, { ...settings, port: String(port) })
    const urlOf = (role: string) => `postgres://${role}:${password}@127.0.0.1:${port}/${DATABASE}`
    const superuserUrl = urlOf(SUPERUSER)
    const problem = await ready(process, () => prepareDatabase(superuserUrl, password))
    if (problem === null) return { process, url: urlOf(serviceRole), superuserUrl }
    await process.stop()
    const failure = `${problem}: ${await complaint(cluster.serverLog)}`
    // Another process took the port meanwhile, or children of a killed process have not ended yet.
    const passing = /Address already in use|pre-existing shared memory block/.test(failure)
    if (attempt === START_ATTEMPTS || !passing) {
      throw new Error(`embedded PostgreSQL did not start: ${failure}`)
    }
    await delay(200 * attempt)
  }
}

/**
 * Waits for the server. Returns null when the database exists and answers, otherwise why the server
 * did not start.
 */
async function ready(
  process: PostgresProcess,
  prepare: () => Promise<void>,
): Promise<string | null> {
  const deadline = Date.now() + READY_TIMEOUT_MS
  for (;;) {
    const problem = await prepare().then(
      () => null,
      (error: Error) => error.message,
    )
    if (problem === null) return null
    const ended = process.ended()
    if (ended !== null) return ended
    // Retry while the server is not listening yet, starts up or recovers. Other errors are
    // permanent.
    if (!/ECONNREFUSED|starting up|shutting down|not yet accepting|in recovery/.test(problem))
      return problem
    if (Date.now() > deadline) return `no answer within ${READY_TIMEOUT_MS / 1000} s`
    await delay(20)
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  if (address === null || typeof address === 'string') throw new Error('no free port')
  return address.port
}

function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  )
}

function delay(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms))
}
