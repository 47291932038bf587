import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { bareEnv } from '../../support/processes.ts'

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

describe('npm start', () => {
  it('names the setting and the address of a dead database, and not its password', async () => {
    const { code, text } = await start(
      { DATABASE_URL: 'postgres://ada:pass-word@127.0.0.1:9/books' },
      /never/,
    )
    expect(code).toBe(1)
    expect(text).toMatch(/DATABASE_URL: .*postgres:\/\/127\.0\.0\.1:9\/books.*ECONNREFUSED/)
    expect(text).not.toContain('pass-word')
  }, 60_000)

  it('names a dead Redis by its setting and address, and a missing ETH price, and goes on', async () => {
    const { text } = await start(
      {
        REDIS_URL: 'redis://:pass-word@127.0.0.1:9',
        CORE_TOKN: 'pass-word',
        RATE_URLS: 'http://127.0.0.1:9',
      },
      /no ETH price is usable/,
    )
    expect(text).toContain('Rates: NONE usable now')
    expect(text).toContain('npx tollgate rate set USD_PER_ETH, or start with RATE_FIXED=3000')
    expect(text).toContain('tollgate is up')
    expect(text).toContain('REDIS_URL: Redis does not answer at redis://127.0.0.1:9')
    expect(text).toContain('CORE_TOKN (environment) is not a setting; did you mean CORE_TOKEN?')
    expect(text).not.toContain('pass-word')
  }, 90_000)
})
