import { mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { registerSecret } from '../../support/run/secrecy.ts'
import { tollgate } from '../cli/support.ts'

let parent: string
beforeAll(async () => {
  parent = await mkdtemp(join(tmpdir(), 'tollgate-init-'))
})
afterAll(() => rm(parent, { recursive: true, force: true }))

async function secretsOf(dir: string): Promise<string[]> {
  const names = await readdir(join(dir, 'secrets'))
  const texts = await Promise.all(names.map((name) => readFile(join(dir, 'secrets', name), 'utf8')))
  return texts.map((text) => registerSecret(text.trim()))
}

describe('tollgate init', () => {
  it('copies compose.yaml unchanged and prints the next steps, without a secret', async () => {
    const dir = join(parent, 'new', 'deployment')
    const { code, text } = await tollgate('init', '--dir', dir)
    expect([code, text]).toEqual([
      0,
      expect.stringMatching(/Next:\n {2}cd .*\n {2}docker compose up/),
    ])
    const copy = await readFile(join(dir, 'compose.yaml'), 'utf8')
    expect(copy).toBe(
      await readFile(join(import.meta.dirname, '../../../deploy/docker/compose.yaml'), 'utf8'),
    )
    const secrets = await secretsOf(dir)
    expect(secrets.length).toBeGreaterThanOrEqual(9)
    for (const secret of secrets) expect(text).not.toContain(secret)
  })

  it('writes secrets that only their owner may read, and new ones for each folder', async () => {
    const dirs = [join(parent, 'one'), join(parent, 'two')]
    for (const dir of dirs) expect((await tollgate('init', '--dir', dir)).code).toBe(0)
    for (const dir of dirs) {
      for (const name of ['secrets', 'spool', 'signer', 'signer/keystore'])
        expect((await stat(join(dir, name))).mode & 0o777).toBe(0o700)
      const files = (await readdir(join(dir, 'secrets'))).map((name) => join(dir, 'secrets', name))
      for (const file of [...files, join(dir, '.env')])
        expect((await stat(file)).mode & 0o777).toBe(0o600)
    }
    const all = (await Promise.all(dirs.map(secretsOf))).flat()
    expect(new Set(all).size).toBe(all.length)
    for (const secret of all) expect(secret.length).toBeGreaterThanOrEqual(32)
  })

  it.each([
    [[], 'kafka:9092'],
    [['--without-kafka'], ''],
  ])('configures by %j whether core gets events through Kafka', async (options, brokers) => {
    const dir = join(parent, `kafka-${options.length}`)
    await tollgate('init', '--dir', dir, ...options)
    expect(await readFile(join(dir, '.env'), 'utf8')).toContain(`\nKAFKA_BROKERS=${brokers}\n`)
  })

  it('gives the files to the user as which the containers run', async () => {
    const dir = join(parent, 'owned')
    await tollgate('init', '--dir', dir)
    const env = await readFile(join(dir, '.env'), 'utf8')
    const { uid, gid } = await stat(join(dir, 'secrets', 'database-url'))
    expect(env).toContain(`\nTOLLGATE_USER=${uid}:${gid}\n`)
    expect(uid).toBe(process.getuid?.() === 0 ? 1000 : process.getuid?.())
  })

  it('refuses a folder with content and leaves it unchanged', async () => {
    const dir = join(parent, 'taken')
    await mkdir(dir)
    await writeFile(join(dir, 'note'), 'mine')
    const { code, text } = await tollgate('init', '--dir', dir)
    expect([code, text]).toEqual([
      1,
      expect.stringMatching(/taken is not empty; nothing is overwr/),
    ])
    expect(await readdir(dir)).toEqual(['note'])
    expect((await readdir(parent)).filter((name) => name.startsWith('.'))).toEqual([])
  })

  it('uses an empty folder, and refuses it the second time', async () => {
    const dir = join(parent, 'empty')
    await mkdir(dir)
    expect((await tollgate('init', '--dir', dir)).code).toBe(0)
    const before = await secretsOf(dir)
    expect((await tollgate('init', '--dir', dir)).code).toBe(1)
    expect(await secretsOf(dir)).toEqual(before)
  })

  it.each([
    ['ftp://pay.example', /--public-url must be an origin such as/],
    ['https://pay.example/path', /--public-url must be an origin such as/],
  ])('refuses --public-url %s', async (url, message) => {
    const answer = await tollgate('init', '--dir', join(parent, 'x'), '--public-url', url)
    expect(answer).toEqual({ code: 2, text: expect.stringMatching(message) })
  })

  it('explains in one line why a folder cannot be created', async () => {
    const file = join(parent, 'file')
    await writeFile(file, '')
    const { code, text } = await tollgate('init', '--dir', join(file, 'below'))
    expect([code, text]).toEqual([1, expect.stringMatching(/^tollgate: --dir: .*ENOTDIR\)\n$/)])
  })
})
