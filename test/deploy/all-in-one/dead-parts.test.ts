import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { type Server, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { bareEnv } from '../../support/deployment/processes.ts'

const program = join(import.meta.dirname, '../../../deploy/all-in-one/main.ts')
let dataDir: string
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'tollgate-dead-'))
})
afterEach(() => rm(dataDir, { recursive: true, force: true }))

/** Starts the service; ends it once `until` was printed. */
async function start(env: Record<string, string>, until: RegExp) {
  const ports = ['CORE_PORT', 'PLATFORM_PORT', 'BUILDER_PORT', 'SIDECAR_PORT', 'ADMIN_PORT']
  const child = spawn(process.execPath, [program], {
    env: {
      ...bareEnv(),
      TOLLGATE_DATA_DIR: dataDir,
      ...Object.fromEntries(ports.map((name) => [name, '0'])),
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let text = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      text += chunk.toString()
      if (until.test(text)) child.kill('SIGTERM')
    })
  const [code] = await once(child, 'close')
  return { code, text }
}

/** Listens on two ports whose numbers differ by `distance`; returns the lower one. */
async function listenApart([low, high]: Server[], distance: number): Promise<number> {
  for (let port = 23_400; port < 23_900; port += 10) {
    const opened = await Promise.all(
      [low, high].map((server, index) => tryListen(server, port + index * distance)),
    )
    if (opened.every(Boolean)) return port
    for (const server of [low, high]) server?.close()
  }
  throw new Error('no two ports are free')
}

async function tryListen(server: Server | undefined, port: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>()
  server?.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true))
  return promise
}

describe('npm start', () => {
  it('prints the setting and the address of an unreachable database, but not its password', async () => {
    const { code, text } = await start(
      { DATABASE_URL: 'postgres://ada:pass-word@127.0.0.1:9/books' },
      /never/,
    )
    expect(code).toBe(1)
    expect(text).toMatch(/DATABASE_URL: .*postgres:\/\/127\.0\.0\.1:9\/books.*ECONNREFUSED/)
    expect(text).not.toContain('pass-word')
  }, 60_000)

  it('reports all taken ports in one message before it starts a database; PORT_BASE moves all', async () => {
    const servers = [createServer(), createServer()]
    const base = await listenApart(servers, 4)
    const based = ['CORE_PORT', 'PLATFORM_PORT', 'BUILDER_PORT', 'SIDECAR_PORT', 'ADMIN_PORT']
    const unset = Object.fromEntries(based.map((name) => [name, '']))
    const ports = { ...unset, PORT_BASE: String(base) }
    const taken = await start(ports, /never/)
    const single = await start({ ...ports, ADMIN_PORT: '0' }, /never/)
    for (const server of servers) server.close()
    expect([taken.code, single.code]).toEqual([1, 1])
    expect(taken.text).toBe(
      `tollgate: ports ${base} (PLATFORM_PORT), ${base + 4} (ADMIN_PORT) cannot be opened, most likely because they are in use; set PORT_BASE to move all ports, or set each port\n`,
    )
    expect(single.text).toBe(
      `tollgate: port ${base} on 127.0.0.1 is already in use; set PLATFORM_PORT to another port\n`,
    )
    expect((await readdir(dataDir)).includes('postgres')).toBe(false)
  }, 60_000)

  it.each(['0', '70000', '65532', 'x'])('refuses PORT_BASE=%s', async (base) => {
    const { code, text } = await start({ PORT_BASE: base }, /never/)
    expect([code, text]).toEqual([1, expect.stringContaining('PORT_BASE must be a whole number')])
  })

  it('warns of an unreachable Redis and a missing ETH price, and continues', async () => {
    const { text } = await start(
      {
        REDIS_URL: 'redis://:pass-word@127.0.0.1:9',
        CORE_TOKN: 'pass-word',
        RATE_URLS: 'http://127.0.0.1:9',
      },
      /no ETH price is usable/,
    )
    expect(text).toContain('Rates: NONE usable now')
    expect(text).toContain('./tollgate rate set USD_PER_ETH, or start with RATE_FIXED=3000')
    expect(text).toContain('tollgate is up')
    expect(text).toContain('REDIS_URL: Redis does not answer at redis://127.0.0.1:9')
    expect(text).toContain('CORE_TOKN (environment) is not a setting; did you mean CORE_TOKEN?')
    expect(text).not.toContain('pass-word')
  }, 90_000)
})
