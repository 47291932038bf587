import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { inject } from 'vitest'
import { createDatabase } from '../support/run/postgres.ts'
import { freePorts } from '../support/deployment/processes.ts'

const root = join(import.meta.dirname, '../..')
const portSettings = [
  'CORE_PORT',
  'PLATFORM_PORT',
  'BUILDER_PORT',
  'SIDECAR_PORT',
  'CORE_ADMIN_PORT',
  'GATEWAY_ADMIN_PORT',
  'SIDECAR_ADMIN_PORT',
  'COLLECTOR_ADMIN_PORT',
]
export const startMs = 90_000

/** Returns the shell blocks of a section of a page, in order. */
export async function blocksOf(page: string, section: string): Promise<string[]> {
  const text = await readFile(join(root, page), 'utf8')
  const part = text.split(/\n(?=## )/).find((each) => each.startsWith(`## ${section}\n`)) ?? ''
  return [...part.matchAll(/```sh\n(.*?)```/gs)].map(([, block = '']) => block)
}

const versionOf = (folder: string): number => {
  try {
    const text = execFileSync(join(folder, 'node'), ['--version'], { encoding: 'utf8' })
    return Number(/^v(\d+)/.exec(text)?.[1] ?? Number.NaN)
  } catch {
    return Number.NaN
  }
}

/**
 * Returns a PATH with a Node that is too old to run the sources, as on a newcomer's machine; null
 * if none is installed.
 */
export function oldNodePath(): string | null {
  const folders = (process.env['PATH'] ?? '').split(delimiter)
  const own = [...new Set([...folders, '/usr/local/bin', '/usr/bin'])].filter(
    (folder) => !folder.includes('node_modules'),
  )
  const old = own.find((folder) => versionOf(folder) >= 20 && versionOf(folder) < 24)
  return old === undefined ? null : [old, ...own.filter((each) => each !== old)].join(delimiter)
}

/**
 * Creates a folder with `npx tollgate`, a new database and free ports, to run separate processes.
 */
export async function startApart(path = process.env['PATH'] ?? '') {
  const { kafkaBrokers, redisUrl } = inject('parts')
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-apart-'))
  // npx finds the command of an installation in the dependencies of the folder.
  await mkdir(join(folder, 'node_modules/.bin'), { recursive: true })
  for (const name of ['tollgate', 'node_modules/.bin/tollgate'])
    await symlink(join(root, 'deploy/tollgate.mjs'), join(folder, name))
  const ports = await freePorts(portSettings.length)
  const env: Record<string, string> = {
    ...Object.fromEntries(portSettings.map((name, index) => [name, String(ports[index])])),
    PATH: path,
    HOME: folder,
    DATABASE_URL: (await createDatabase()).url,
    ...(redisUrl === null ? {} : { REDIS_URL: redisUrl }),
    RATE_FIXED: '3000',
    ...(kafkaBrokers === null ? {} : { KAFKA_BROKERS: kafkaBrokers.join(','), COLLECTOR: 'off' }),
  }
  const shells: ChildProcess[] = []

  /**
   * Runs a script in a separate shell. Resolves when the shell has ended, or when all processes in
   * `until` are up.
   */
  async function run(script: string, until: readonly string[] = []): Promise<string> {
    return runUntil(
      script,
      until.map((name) => `"msg":"${name} is up"`),
    )
  }

  /** Like `run`, until all these texts are printed; until the end of the script without texts. */
  async function runUntil(script: string, texts: readonly string[]): Promise<string> {
    const shell = spawn('sh', ['-ec', script], {
      cwd: folder,
      env,
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    shells.push(shell)
    let text = ''
    const { promise, resolve } = Promise.withResolvers<void>()
    for (const stream of [shell.stdout, shell.stderr])
      stream.on('data', (chunk: Buffer) => {
        text += chunk.toString()
        if (texts.length > 0 && texts.every((each) => text.includes(each))) resolve()
      })
    const ended = once(shell, 'close').then(([code]: unknown[]) => {
      if (code !== 0 || texts.length > 0)
        throw new Error(`the script ended with ${String(code)}:\n${script}\n${text}`)
    })
    const late = AbortSignal.timeout(startMs)
    const lateness = once(late, 'abort').then(() => {
      throw new Error(`not up in time:\n${script}\n${text}`)
    })
    await Promise.race([ended, promise, lateness])
    return text
  }

  const status = async (port: string, route: string): Promise<number> =>
    (await fetch(`http://127.0.0.1:${env[port]}${route}`)).status

  async function stop(): Promise<void> {
    for (const { pid } of shells) if (pid) end(pid)
    // Retry, because the processes may still write.
    await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 })
  }

  return { folder, env, run, runUntil, status, stop }
}

/** Ends the processes that a shell left in the background. */
function end(group: number): void {
  try {
    process.kill(-group, 'SIGTERM')
  } catch (error) {
    // The group has no processes left.
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error
  }
}
