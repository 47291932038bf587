import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Quickstart, readQuickstart } from '../../deploy/local/data-dir.ts'
import type { Bench } from './row.ts'

const root = join(import.meta.dirname, '../..')
/** The command behind `npm start`, without npm, so that the process is our direct child. */
export const startCommand = [process.execPath, 'deploy/tollgate.mjs', 'start']
const readyMs = 60_000
const stopMs = 15_000

export interface Running {
  readonly pid: number
  /** Seconds from the command until every part was ready. */
  readonly readySeconds: number
  readonly quickstart: Quickstart
  stop(): Promise<void>
}

/** Creates a data directory for the all-in-one service; the end of the run removes it. */
export async function newDataDir(bench: Bench): Promise<string> {
  const dataDir = await mkdtemp(join(tmpdir(), 'tollgate-bench-'))
  bench.defer(() => rm(dataDir, { recursive: true, force: true }))
  return dataDir
}

export interface ServiceParts {
  readonly dataDir: string
  /** An embedded PostgreSQL if absent. */
  readonly databaseUrl?: string
}

/** Runs `command` in the project on free ports and embedded parts, and waits until it is ready. */
export async function startService(
  bench: Bench,
  command: readonly string[],
  { dataDir, databaseUrl }: ServiceParts,
): Promise<Running> {
  const started = performance.now()
  const [program = '', ...args] = command
  // A separate process group, so that signals also reach the children of npm.
  const child = spawn(program, args, {
    cwd: root,
    env: environment(dataDir, databaseUrl),
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  const stop = stopper(child)
  bench.defer(stop)
  await greeted(child)
  const quickstart = await readQuickstart(dataDir)
  if (!quickstart) throw new Error('the service left no quickstart file')
  const admin = quickstart.adminUrl
  for (;;) {
    const response = await fetch(`${admin}/readyz`, { signal: AbortSignal.timeout(readyMs) })
    if (response.ok) break
    await sleep(10)
  }
  const readySeconds = (performance.now() - started) / 1000
  return { pid: child.pid ?? 0, readySeconds, quickstart, stop }
}

function environment(dataDir: string, databaseUrl: string | undefined): Record<string, string> {
  const { PATH = '', HOME = '' } = process.env
  return {
    PATH,
    HOME,
    TOLLGATE_DATA_DIR: dataDir,
    ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }),
    RATE_FIXED: '3000',
    RATE_LIMITS: 'off',
    CORE_PORT: '0',
    PLATFORM_PORT: '0',
    BUILDER_PORT: '0',
    SIDECAR_PORT: '0',
    ADMIN_PORT: '0',
  }
}

/**
 * Waits for the first output of the welcome. Rejects with the error output if the program exits
 * before.
 */
async function greeted({ stdout, stderr }: ChildProcess): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  let complaint = ''
  stderr?.on('data', (chunk: Buffer) => void (complaint += chunk.toString()))
  stdout?.once('data', () => resolve())
  stdout?.resume().once('close', () => reject(new Error(`the service did not start: ${complaint}`)))
  const timer = setTimeout(
    () => reject(new Error(`the service was not ready in ${readyMs / 1000} s`)),
    readyMs,
  )
  await promise.finally(() => clearTimeout(timer))
}

function stopper(child: ChildProcess): () => Promise<void> {
  const ended = once(child, 'close')
  const signal = (name: NodeJS.Signals): void => {
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null)
      process.kill(-child.pid, name)
  }
  let stopping: Promise<void> | null = null
  const stop = async (): Promise<void> => {
    signal('SIGINT')
    const timer = setTimeout(() => signal('SIGKILL'), stopMs)
    await ended
    clearTimeout(timer)
  }
  return () => (stopping ??= stop())
}
