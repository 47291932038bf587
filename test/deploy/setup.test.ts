import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, cp, mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

const deploy = join(import.meta.dirname, '../../deploy')
const oldNode = `data:text/javascript,Object.defineProperty(process, 'versions', {
  value: { ...process.versions, node: '20.1.0' } })`
let root: string

/**
 * Creates a project whose npm and buf only record that they ran, and write the files of the real
 * ones.
 */
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'tollgate-setup-'))
  await cp(join(deploy, 'setup.mjs'), join(root, 'deploy/setup.mjs'))
  await write('package-lock.json', lock({ left: '1.0.0' }))
  await write('proto/buf.gen.yaml', 'version: v2')
  await write('proto/tollgate/a/v1/a.proto', 'syntax = "proto3";')
  const buf = '#!/bin/sh\\necho buf >>ran; mkdir -p proto/gen/es proto/gen/ts-proto\\n'
  const vite =
    "const { appendFileSync, mkdirSync } = require('fs'); appendFileSync('ran', 'vite ' + process.argv[2] + String.fromCharCode(10)); mkdirSync('gateway/web/dist', { recursive: true })"
  await script(
    'bin/npm',
    `echo npm "$@" >>ran; sleep 0.3
     if [ "$1" = prune ]; then rm -r node_modules/.bin/buf node_modules/vite; exit; fi; rm -rf node_modules
     mkdir -p node_modules/.bin node_modules/vite/bin
     echo "${vite}" >node_modules/vite/bin/vite.js
     cp package-lock.json node_modules/.package-lock.json
     printf '${buf}' >node_modules/.bin/buf; chmod +x node_modules/.bin/buf
     printf '#!/bin/sh\\nexec ${process.execPath} "$@"\\n' >node_modules/.bin/node; chmod +x node_modules/.bin/node`,
  )
})

afterEach(() => rm(root, { recursive: true, force: true }))

async function write(path: string, content: string): Promise<void> {
  await mkdir(dirname(join(root, path)), { recursive: true })
  await writeFile(join(root, path), content)
}

async function script(path: string, body: string): Promise<void> {
  await write(path, `#!/bin/sh\n${body}\n`)
  await chmod(join(root, path), 0o755)
}

function lock(versions: Record<string, string>): string {
  const named = Object.entries(versions).map(([name, version]) => {
    const optional = name.startsWith('other-platform')
    return [`node_modules/${name}`, { version, optional, dev: name.startsWith('generator') }]
  })
  return JSON.stringify({ packages: { '': {}, ...Object.fromEntries(named) } })
}

/** Leaves the same files as `npm prune --omit=dev`. */
async function prune(): Promise<void> {
  await write('node_modules/.package-lock.json', lock({ left: '1.0.0' }))
  await rm(join(root, 'node_modules/.bin/buf'))
  await rm(join(root, 'node_modules/vite'), { recursive: true })
}

const setup = (...nodeOptions: string[]) => setupIn({}, ...nodeOptions)

async function setupIn(
  env: Readonly<Record<string, string>>,
  ...nodeOptions: string[]
): Promise<{ code: number; stderr: string }> {
  const child = spawn(process.execPath, [...nodeOptions, 'deploy/setup.mjs'], {
    cwd: root,
    env: { PATH: `${join(root, 'bin')}:/usr/bin:/bin`, ...env },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let stderr = ''
  child.stderr.on('data', (chunk) => (stderr += String(chunk)))
  const [code] = await once(child, 'close')
  return { code, stderr }
}

async function ran(): Promise<string[]> {
  const text = await readFile(join(root, 'ran'), 'utf8').catch(() => '')
  await rm(join(root, 'ran'), { force: true })
  return text.split('\n').filter(Boolean)
}

describe('setup', () => {
  it('installs, then generates, and does and prints nothing the second time', async () => {
    const first = await setup()
    expect(first).toEqual({ code: 0, stderr: expect.stringContaining('installing') })
    expect(await ran()).toEqual(['npm ci --no-audit --no-fund', 'buf'])
    expect(await setup()).toEqual({ code: 0, stderr: '' })
    expect(await ran()).toEqual([])
  })

  it('installs again when the lock file has another version', async () => {
    await setup()
    await ran()
    await write('package-lock.json', lock({ left: '1.0.1' }))
    await setup()
    expect(await ran()).toContain('npm ci --no-audit --no-fund')
  })

  it('ignores a missing optional package of another platform', async () => {
    await setup()
    await ran()
    await write('package-lock.json', lock({ left: '1.0.0', 'other-platform': '1.0.0' }))
    await setup()
    expect(await ran()).toEqual([])
  })

  it('generates again only when the contract changed', async () => {
    await setup()
    await ran()
    await write('proto/tollgate/a/v1/a.proto', 'syntax = "proto3"; package a;')
    await setup()
    expect(await ran()).toEqual(['buf'])
  })

  it('needs no generators if the code was generated before they were removed', async () => {
    await write('package-lock.json', lock({ left: '1.0.0', generator: '1.0.0' }))
    await setup()
    await prune()
    await ran()
    expect(await setup()).toEqual({ code: 0, stderr: '' })
    expect(await ran()).toEqual([])
  })

  it.each([{ NODE_ENV: 'production' }, { npm_config_omit: 'dev' }])(
    'installs the generators only as long as needed, with %o',
    async (env) => {
      expect((await setupIn(env)).code).toBe(0)
      const install = 'npm ci --include=dev --no-audit --no-fund'
      expect(await ran()).toEqual([install, 'buf', 'npm prune --omit=dev --no-audit --no-fund'])
      expect(await setupIn(env)).toEqual({ code: 0, stderr: '' })
      await write('package-lock.json', lock({ left: '1.0.1' }))
      await setupIn(env)
      expect(await ran()).toEqual(['npm ci --no-audit --no-fund'])
    },
  )

  it('explains how to build when the generators are removed and proto/gen is outdated', async () => {
    await write('package-lock.json', lock({ left: '1.0.0', generator: '1.0.0' }))
    await setup()
    await prune()
    await ran()
    await write('proto/tollgate/a/v1/a.proto', 'syntax = "proto3"; package a;')
    const { code, stderr } = await setup()
    expect(code).toBe(1)
    expect(stderr).toMatch(/^tollgate: .*npm run build.*\n$/)
    expect(await ran()).toEqual([])
  })

  it('prints the reason of a failed installation in a few lines', async () => {
    await script('bin/npm', 'echo "npm error code ENOSPC" >&2; exit 1')
    const { code, stderr } = await setup()
    expect(code).toBe(1)
    expect(stderr).toMatch(/npm ci failed: exit code 1\n {2}npm error code ENOSPC\n$/)
  })

  it('gives advice when the registry is unreachable', async () => {
    await script('bin/npm', 'echo "npm error code EAI_AGAIN" >&2; exit 1')
    const { code, stderr } = await setup()
    expect(code).toBe(1)
    expect(stderr).toMatch(/registry cannot be reached: check the network.*npm config get/)
  })

  it('reports progress every few seconds, and the duration', async () => {
    const install = await readFile(join(root, 'bin/npm'), 'utf8')
    await script('bin/npm', `sleep 4\n${install.split('\n').slice(1).join('\n')}`)
    const { code, stderr } = await setup()
    expect(code).toBe(0)
    expect(stderr).toMatch(/still installing, \d+ s so far\n/)
    expect(stderr).toMatch(/done installing in \d+ s\n/)
  })

  it('installs once when started twice at the same time', async () => {
    const both = await Promise.all([setup(), setup()])
    expect(both.map(({ code }) => code)).toEqual([0, 0])
    expect(await ran()).toEqual(['npm ci --no-audit --no-fund', 'buf'])
  })

  it('takes over from a killed setup', async () => {
    await write('.tollgate/setup.lock', '4194303')
    expect(await setup()).toMatchObject({ code: 0 })
    expect(await readdir(join(root, '.tollgate'))).toEqual([])
  })

  it('explains what to do without a pinned Node when this one is too old', async () => {
    await setup()
    await rm(join(root, 'node_modules/.bin/node'))
    const { code, stderr } = await setup('--import', oldNode)
    expect(code).toBe(1)
    expect(stderr).toMatch(/^tollgate: .*install Node 24.*\n$/)
    expect(await setup()).toEqual({ code: 0, stderr: '' })
  })
})

describe('the dashboard', () => {
  beforeEach(() => write('gateway/web/main.tsx', 'one'))

  it('is built once, and again when its sources or packages change', async () => {
    await setup()
    expect(await ran()).toEqual(['npm ci --no-audit --no-fund', 'buf', 'vite build'])
    await setup()
    expect(await ran()).toEqual([])
    await write('gateway/web/main.tsx', 'two')
    await setup()
    expect(await ran()).toEqual(['vite build'])
    // Generated files and the build itself are no sources.
    await write('gateway/web/api/schema.d.ts', 'types')
    await write('gateway/web/dist/more.js', 'built')
    await setup()
    expect(await ran()).toEqual([])
  })

  it('is built before production drops its builder, and stays as it was built', async () => {
    expect((await setupIn({ NODE_ENV: 'production' })).code).toBe(0)
    expect((await ran()).map((line) => line.split(' ', 2).join(' '))).toEqual([
      'npm ci',
      'buf',
      'vite build',
      'npm prune',
    ])
    expect((await setupIn({ NODE_ENV: 'production' })).code).toBe(0)
    expect(await ran()).toEqual([])
  })

  it('names the cure when it is older than its sources and nothing can build it', async () => {
    await setup()
    await prune()
    await write('gateway/web/main.tsx', 'two')
    const { code, stderr } = await setupIn({ NODE_ENV: 'production' })
    expect(code).toBe(1)
    expect(stderr).toMatch(/^tollgate: the dashboard's build .*run: npm ci --include=dev.*\n$/)
  })
})
