import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { createDatabase } from '../support/postgres.ts'
import { freePorts } from '../support/processes.ts'

const root = join(import.meta.dirname, '../..')
const startMs = 90_000
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
const { kafkaBrokers, redisUrl } = inject('parts')

let folder: string
let env: Record<string, string>
let blocks: string[]
const shells: ChildProcess[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-apart-'))
  // npx finds the command of an installation in the dependencies of the folder.
  await mkdir(join(folder, 'node_modules/.bin'), { recursive: true })
  await symlink(join(root, 'deploy/tollgate.mjs'), join(folder, 'node_modules/.bin/tollgate'))
  const readme = await readFile(join(root, 'README.md'), 'utf8')
  const [, section = ''] = /\n## Run it apart\n(.*?)\n## /s.exec(readme) ?? []
  blocks = [...section.matchAll(/```sh\n(.*?)```/gs)].map(([, text = '']) => text)
  const ports = await freePorts(portSettings.length)
  env = {
    ...Object.fromEntries(portSettings.map((name, index) => [name, String(ports[index])])),
    PATH: process.env['PATH'] ?? '',
    HOME: folder,
    DATABASE_URL: (await createDatabase()).url,
    ...(redisUrl === null ? {} : { REDIS_URL: redisUrl }),
    RATE_FIXED: '3000',
    ...(kafkaBrokers === null ? {} : { KAFKA_BROKERS: kafkaBrokers.join(','), COLLECTOR: 'off' }),
  }
})

afterAll(async () => {
  for (const { pid } of shells) if (pid) end(pid)
  await rm(folder, { recursive: true, force: true })
})

/** Ends the processes that a shell left in the background. */
function end(group: number): void {
  try {
    process.kill(-group, 'SIGTERM')
  } catch (error) {
    // It left none.
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error
  }
}

/** Runs a block of the README in a shell of its own; resolves when the shell has ended, or what `until` names is up. */
async function run(block: number, until: readonly string[] = []): Promise<string> {
  const shell = spawn('sh', ['-ec', blocks[block] ?? 'exit 99'], {
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
      if (until.length > 0 && until.every((name) => text.includes(`"msg":"${name} is up"`)))
        resolve()
    })
  const ended = once(shell, 'close').then(([code]: unknown[]) => {
    if (code !== 0 || until.length > 0)
      throw new Error(`block ${block} ended with ${String(code)}:\n${text}`)
  })
  const late = AbortSignal.timeout(startMs)
  const lateness = once(late, 'abort').then(() => {
    throw new Error(`block ${block} is not up in time:\n${text}`)
  })
  await Promise.race([ended, promise, lateness])
  return text
}

const status = async (port: string | undefined, path: string) =>
  (await fetch(`http://127.0.0.1:${port}${path}`)).status

// They share the processes that the second block starts, so they run in this order.
describe('the commands of "Run it apart" in the README, as they stand', () => {
  it('are four blocks', () => expect(blocks).toHaveLength(4))

  it('make the settings', async () => {
    await run(0)
    const text = await readFile(join(folder, 'tollgate.env'), 'utf8')
    expect(text).toContain(`DATABASE_URL=${env['DATABASE_URL']}\n`)
    expect(text).toMatch(/^CORE_TOKEN_OPERATOR=[\w+/]{43}=$/m)
  })

  it(
    'start core, gateway and sidecar',
    async () => {
      await run(1, ['core', 'gateway', 'sidecar'])
      for (const name of ['CORE_ADMIN_PORT', 'GATEWAY_ADMIN_PORT', 'SIDECAR_ADMIN_PORT'])
        await expect.poll(() => status(env[name], '/readyz'), { timeout: 20_000 }).toBe(200)
      expect(await status(env['PLATFORM_PORT'], '/api/v1/openapi.json')).toBe(200)
    },
    startMs,
  )

  it(
    'make an app by an operator of that core',
    async () => {
      expect(await run(2)).toMatch(/clientId +app_[^]*No events yet/)
    },
    startMs,
  )

  it.runIf(kafkaBrokers)(
    'start a collector',
    async () => {
      await run(3, ['collector'])
      expect(await status(env['COLLECTOR_ADMIN_PORT'], '/healthz')).toBe(200)
    },
    startMs,
  )
})
