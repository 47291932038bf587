import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { cp, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

const deploy = join(import.meta.dirname, '../../deploy')
const cli = `
  export async function main(argv: string[]): Promise<number> {
    const timer = setInterval(() => {}, 1000)
    const ended = new Promise<number>((resolve) => {
      if (argv[0] !== 'wait') resolve(Number(argv[0]))
      process.once('SIGTERM', () => resolve(17)).once('SIGINT', () => resolve(18))
    })
    process.stdout.write((process.execArgv.length === 0 ? 'pinned ' : 'host ') + argv.join(' '))
    return ended.finally(() => clearInterval(timer))
  }`
/** Changes the reported version of this Node, but not of a Node that it starts. */
const looksLike = (version: string) => `data:text/javascript,Object.defineProperty(process,
  'versions', { value: { ...process.versions, node: '${version}' } })`
let root: string

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'tollgate-bin-'))
  for (const name of ['setup.mjs', 'tollgate.mjs']) {
    await cp(join(deploy, name), join(root, 'deploy', name))
  }
  await writeFile(join(root, 'deploy/main.ts'), cli)
  await mkdir(join(root, 'node_modules/.bin'), { recursive: true })
  await symlink(process.execPath, join(root, 'node_modules/.bin/node'))
})

afterEach(() => rm(root, { recursive: true, force: true }))

function tollgate(version: string, ...args: string[]): ChildProcess {
  const options = ['--import', looksLike(version), join(root, 'deploy/tollgate.mjs'), ...args]
  // Remove the setting, as for a user without a configured compile cache.
  const { NODE_COMPILE_CACHE: _, ...env } = process.env
  return spawn(process.execPath, options, { env, stdio: ['ignore', 'pipe', 'inherit'] })
}

async function outputOf(child: ChildProcess): Promise<string> {
  const [text] = await once(child.stdout ?? child, 'data')
  return String(text)
}

describe('the tollgate command', () => {
  it('runs on the current Node if that is new enough', async () => {
    const child = tollgate('24.0.0', '3', 'more')
    expect(await outputOf(child)).toMatch(/^host /)
    expect(await once(child, 'exit')).toEqual([3, null])
  })

  it('runs on the pinned Node otherwise, with the same arguments and exit code', async () => {
    const child = tollgate('20.20.2', '5')
    expect(await outputOf(child)).toMatch(/^pinned /)
    expect(await once(child, 'exit')).toEqual([5, null])
  })

  it('is ./tollgate in the folder of a clone', async () => {
    const child = spawn(join(deploy, '../tollgate'), ['--version'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    expect(await outputOf(child)).toMatch(/^tollgate \d+\.\d+\.\d+\n$/)
  })

  it('stores the compiled code in node_modules for the next start', async () => {
    const child = tollgate('24.0.0', '0')
    expect(await once(child, 'exit')).toEqual([0, null])
    const cache = await readdir(join(root, 'node_modules/.cache/tollgate'), { recursive: true })
    expect(cache.length).toBeGreaterThan(1)
  })

  it.each([
    ['SIGTERM', 17],
    ['SIGINT', 18],
  ] as const)('forwards %s to the pinned Node and returns its exit code', async (signal, code) => {
    const child = tollgate('20.20.2', 'wait')
    expect(await outputOf(child)).toBe('pinned wait')
    child.kill(signal)
    expect(await once(child, 'exit')).toEqual([code, null])
  })
})
