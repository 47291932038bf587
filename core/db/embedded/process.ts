import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { open, readFile, rename, stat, type FileHandle } from 'node:fs/promises'
import type { Binaries } from './binaries.ts'

export type Cluster = {
  readonly directory: string
  /** The user that root runs the server as; null if this process is not root. */
  readonly user: { readonly uid: number; readonly gid: number } | null
  readonly binaries: Binaries
  readonly serverLog: ServerLog
}

/** Log file of the server and initdb. `from` is the offset of this start's first line. */
export type ServerLog = {
  readonly path: string
  readonly file: FileHandle
  readonly from: number
}

export type PostgresProcess = {
  /** Returns the reason why the process ended; null while it runs. */
  ended: () => string | null
  onUnexpectedExit: (callback: (reason: string) => void) => void
  stop: () => Promise<void>
}

const NOBODY = { uid: 65534, gid: 65534 }
const LOG_BYTES = 1024 * 1024
const INITDB_TIMEOUT_MS = 60_000

/**
 * The parent's environment is not passed on, because it could redirect the server (PGDATA, PGPORT).
 */
const ENVIRONMENT = { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' }

/** PostgreSQL's fast and immediate shutdown, then SIGKILL, each with its time limit. */
const SHUTDOWN = [
  ['SIGINT', 10_000],
  ['SIGQUIT', 5_000],
  ['SIGKILL', 5_000],
] as const

/**
 * The user to run as. PostgreSQL refuses to run as root, so root runs it as the cluster's owner, or
 * as `nobody`. Throws if the cluster belongs to another user and this process is not root.
 */
export async function runsAs(directory: string): Promise<Cluster['user']> {
  const uid = process.getuid?.()
  const owner = await stat(directory).catch(() => null)
  if (uid === 0) return owner && owner.uid !== 0 ? { uid: owner.uid, gid: owner.gid } : NOBODY
  if (owner && owner.uid !== uid) {
    throw new Error(
      `${directory} belongs to user ${owner.uid}: start tollgate as that user or as root`,
    )
  }
  return null
}

/** Opens the server's log. If it exceeds 1 MiB, starts a new file and keeps the previous one. */
export async function openServerLog(path: string): Promise<ServerLog> {
  const size = await stat(path).then(
    (file) => file.size,
    () => 0,
  )
  if (size > LOG_BYTES) await rename(path, `${path}.1`)
  return { path, file: await open(path, 'a', 0o600), from: size > LOG_BYTES ? 0 : size }
}

/** The last error line that the server logged during this start. */
export async function complaint({ path, from }: ServerLog): Promise<string> {
  const lines = (await readFile(path)).subarray(from).toString('utf8').trim().split('\n')
  const line = lines.findLast((line) => /FATAL|PANIC|error:/.test(line)) ?? lines.at(-1) ?? ''
  const cure = /No space left on device/.test(line)
    ? '; free space, or set TOLLGATE_DATA_DIR to a folder on another disk'
    : ''
  return `${line.slice(0, 500) || 'no reason given'} (${path})${cure}`
}

/** Fills the cluster's empty directory. Reads the superuser's password from `passwordFd`. */
export async function runInitdb(
  cluster: Cluster,
  passwordFd: number,
  sync: boolean,
): Promise<void> {
  const options = [
    `--pgdata=${reachable(cluster)}`,
    '--username=tollgate',
    '--pwfile=/dev/fd/3',
    '--auth=scram-sha-256',
    '--encoding=UTF8',
    '--locale=C',
    '--locale-provider=builtin',
    '--builtin-locale=C.UTF-8',
    ...(sync ? [] : ['--no-sync']),
  ]
  const { fd } = cluster.serverLog.file
  const child = spawn(cluster.binaries.initdb, options, {
    ...surroundings(cluster),
    stdio: ['ignore', fd, fd, passwordFd],
    timeout: INITDB_TIMEOUT_MS,
  })
  const [code] = await once(child, 'exit')
  if (code === 0) return
  throw new Error(`embedded PostgreSQL's initdb failed: ${await complaint(cluster.serverLog)}`)
}

/**
 * Starts the server and a watcher, which reads a pipe from this process and stops the server when
 * the pipe closes. Thus the server also ends when this process is killed.
 */
export function spawnPostgres(cluster: Cluster, settings: Record<string, string>): PostgresProcess {
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  // Fork twice, because the server restarts its sessions when an unknown child of it is killed.
  const script = '( { read -r _ <&3 || kill -INT $$; } & ); exec "$@" 3<&-'
  const command = [cluster.binaries.postgres, '-D', reachable(cluster), ...flags]
  const { fd } = cluster.serverLog.file
  const child = spawn('/bin/sh', ['-c', script, 'postgres', ...command], {
    ...surroundings(cluster),
    stdio: ['ignore', fd, fd, 'pipe'],
    // A separate session, so that Ctrl-C in the terminal reaches only this process, which then
    // stops the server.
    detached: true,
  })
  const [, , , watcher] = child.stdio
  let reason: string | null = null
  let stopping: Promise<void> | undefined
  let report: (reason: string) => void = () => {}
  const exited = new Promise<void>((resolve) => {
    const ended = (why: string) => {
      reason ??= why
      // The watcher has nothing left to stop.
      if (watcher && 'end' in watcher) watcher.end('\n')
      process.off('exit', interrupt)
      resolve()
      if (stopping === undefined) report(why)
    }
    child.once('error', (error) => ended(error.message))
    child.once('exit', (code, signal) => ended(`exited with ${signal ?? `code ${code}`}`))
  })
  const interrupt = () => child.kill('SIGINT')
  process.once('exit', interrupt)
  watcher?.on('error', () => {})
  child.unref()
  if (watcher && 'unref' in watcher && typeof watcher.unref === 'function') watcher.unref()
  return {
    ended: () => reason,
    onUnexpectedExit: (callback) => {
      report = callback
      if (reason !== null) callback(reason)
    },
    stop: () => (stopping ??= shutDown((signal) => child.kill(signal), exited)),
  }
}

type Send = (signal: NodeJS.Signals) => unknown

/** Sends the shutdown signals in turn until `exited` resolves. */
export async function shutDown(send: Send, exited: Promise<void>): Promise<void> {
  for (const [signal, patienceMs] of SHUTDOWN) {
    send(signal)
    let timer: NodeJS.Timeout | undefined
    const timeout = new Promise<'late'>((resolve) => {
      timer = setTimeout(resolve, patienceMs, 'late')
    })
    const outcome = await Promise.race([exited, timeout])
    clearTimeout(timer)
    if (outcome !== 'late') return
  }
}

function surroundings({ directory, user }: Cluster) {
  return { cwd: directory, env: ENVIRONMENT, ...user }
}

/**
 * The directory's path for the server. If root starts it as another user, that user may be unable
 * to enter a parent directory (a project under /root). It can use the working directory that it was
 * started in, and all PostgreSQL processes stay there.
 */
function reachable({ directory, user }: Cluster): string {
  return user !== null && process.platform === 'linux' ? '/proc/self/cwd' : directory
}
