import { execFileSync } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { blocksOf, oldNodePath, startApart, startMs } from './apart-support.ts'

const { kafkaBrokers } = inject('parts')
/**
 * A PATH with a Node that is too old, if installed: the first block runs with it, the others with
 * the Node of the tests.
 */
const path = oldNodePath() ?? undefined

// The tests share the processes that the second block starts, so they run in this order.
describe('the README\'s "Run it apart"', () => {
  let apart: Awaited<ReturnType<typeof startApart>>
  let blocks: string[]
  beforeAll(async () => {
    apart = await startApart(path)
    blocks = await blocksOf('README.md', 'Run it apart')
  })
  afterAll(() => apart.stop())
  const run = (block: number, until: readonly string[] = []) =>
    apart.run(blocks[block] ?? 'exit 99', until)

  it('has four blocks', () => expect(blocks).toHaveLength(4))

  it('starts with the Node of the machine', () => {
    const version = execFileSync('node', ['--version'], { env: apart.env, encoding: 'utf8' })
    expect(version).toMatch(path === undefined ? /^v2[4-9]\./ : /^v2[0-3]\./)
  })

  it('creates the settings', async () => {
    await run(0)
    const text = await readFile(join(apart.folder, 'tollgate.env'), 'utf8')
    expect(text).toContain(`DATABASE_URL=${apart.env['DATABASE_URL']}\n`)
    expect(text).toMatch(/^CORE_TOKEN_OPERATOR=[\w+/]{43}=$/m)
  })

  it(
    'starts core, gateway and sidecar',
    async () => {
      await run(1, ['core', 'gateway', 'sidecar'])
      for (const name of ['CORE_ADMIN_PORT', 'GATEWAY_ADMIN_PORT', 'SIDECAR_ADMIN_PORT'])
        await expect.poll(() => apart.status(name, '/readyz'), { timeout: 20_000 }).toBe(200)
      expect(await apart.status('PLATFORM_PORT', '/api/v1/openapi.json')).toBe(200)
    },
    startMs,
  )

  it(
    'creates an app as an operator of that core',
    async () => {
      expect(await run(2)).toMatch(/clientId +app_[^]*No events yet/)
    },
    startMs,
  )

  it.runIf(kafkaBrokers)(
    'starts a collector',
    async () => {
      await run(3, ['collector'])
      expect(await apart.status('COLLECTOR_ADMIN_PORT', '/healthz')).toBe(200)
    },
    startMs,
  )
})

describe('"TLS" of docs/tls.md, with one certificate each', () => {
  let apart: Awaited<ReturnType<typeof startApart>>
  let authority: string
  let start: string[]
  beforeAll(async () => {
    apart = await startApart()
    apart.env['CORE_TARGET'] = `127.0.0.1:${apart.env['CORE_PORT']}`
    const [block = ''] = await blocksOf('docs/tls.md', 'TLS')
    const at = block.indexOf('CORE_TLS_CERT=')
    authority = block.slice(0, at)
    // Replace the host of the page.
    start = block
      .slice(at)
      .replace('core:50051', '$CORE_TARGET')
      .trim()
      .split(/ *&?\n/)
    const [settings = ''] = await blocksOf('README.md', 'Run it apart')
    await apart.run(settings)
  })
  afterAll(() => apart.stop())
  const settings = 'set -a; . ./tollgate.env; set +a'
  const as = (name: string) =>
    `CORE_TLS_CERT=${name}.pem CORE_TLS_KEY=${name}.key CORE_TLS_CA=ca.pem`

  it('creates an authority', async () => {
    expect(await apart.run(`${authority}\nls ca.pem core.pem gateway.pem sidecar.pem`)).toContain(
      'sidecar.pem',
    )
  })

  it(
    'starts core, gateway and sidecar',
    async () => {
      const sidecar = `${as('sidecar')} WEBHOOK_SECRET=$SIDECAR_SECRET SPOOL_DIR=./spool npx tollgate sidecar`
      const lines = [settings, ...[...start, sidecar].map((line) => `${line} &`), 'wait']
      expect(start).toHaveLength(2)
      await apart.run(lines.join('\n'), ['core', 'gateway', 'sidecar'])
      for (const name of ['CORE_ADMIN_PORT', 'GATEWAY_ADMIN_PORT', 'SIDECAR_ADMIN_PORT'])
        await expect.poll(() => apart.status(name, '/readyz'), { timeout: 20_000 }).toBe(200)
      // The gateway fetches it from core.
      expect(await apart.status('PLATFORM_PORT', '/api/v1/oidc/jwks')).toBe(200)
    },
    startMs,
  )

  it(
    'answers a command with a certificate, and fails clearly without one',
    async () => {
      const list = 'npx tollgate app list --target $CORE_TARGET'
      expect(await apart.run(`${settings}\n${as('gateway')} ${list}`)).toContain('No apps yet')
      const refused = await apart.run(`${settings}\nCORE_TLS_CA=ca.pem ${list} || echo "exit $?"`)
      expect(refused).toMatch(/core does not answer[^]*exit 1\n$/)
      const plain = await apart.run(`${settings}\n${list} || echo "exit $?"`)
      expect(plain).toMatch(/core does not answer[^]*exit 1\n$/)
    },
    startMs,
  )
})
