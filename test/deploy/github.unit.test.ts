import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { parse } from 'yaml'
import { asRecord } from '../gateway/support.ts'

const root = join(import.meta.dirname, '../..')
const read = (path: string): string => readFileSync(join(root, path), 'utf8')

describe('the workflows', () => {
  it('run .ci/run within more time than its own limit', () => {
    const workflow = asRecord(parse(read('.github/workflows/ci.yml')))
    const job = asRecord(asRecord(workflow['jobs'])['run'])
    expect(job['steps']).toContainEqual({ run: 'bash .ci/run' })
    // test:image makes root file systems of Debian, as root.
    expect(job['container']).toEqual({
      image: expect.stringMatching(/^node:\d+-bookworm$/),
      options: expect.stringContaining('--privileged'),
    })
    const [, limit] = /^LIMIT_SECONDS=(\d+)$/m.exec(read('.ci/run')) ?? []
    expect(Number(job['timeout-minutes']) * 60).toBeGreaterThan(Number(limit))
  })

  it('run only scripts that package.json has', () => {
    const { scripts } = asRecord(JSON.parse(read('package.json')))
    const names = [...read('.github/workflows/ci.yml').matchAll(/npm run (?:--silent )?(\S+)/g)]
    expect(names.length).toBeGreaterThan(2)
    for (const [, name = ''] of names) expect(Object.keys(asRecord(scripts))).toContain(name)
  })

  it('start a deployment with the commands of docs/install.md', () => {
    const workflow = asRecord(parse(read('.github/workflows/ci.yml')))
    const { steps } = asRecord(asRecord(workflow['jobs'])['compose'])
    const commands = (Array.isArray(steps) ? steps : []).map((step) =>
      String(asRecord(step)['run']),
    )
    const manual = read('docs/install.md')
    for (const text of [
      './tollgate init --dir',
      'docker compose up -d --build',
      'docker compose run --rm tollgate account create',
    ]) {
      expect(commands.some((command) => command.startsWith(text))).toBe(true)
      expect(manual).toContain(text)
    }
  })

  it.each(['ci', 'codeql'])('of %s may only read, by default', (name) => {
    const workflow = asRecord(parse(read(`.github/workflows/${name}.yml`)))
    expect(workflow['permissions']).toEqual({ contents: 'read' })
  })
})

describe('npm run licences', () => {
  const own = { version: '1.0.0', license: 'MIT', dev: true }

  function check(packages: Record<string, object>): { code: number; text: string } {
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-licences-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const file = join(folder, 'package-lock.json')
    writeFileSync(file, JSON.stringify({ packages: { '': {}, ...packages } }))
    try {
      const text = execFileSync(process.execPath, ['deploy/licences.mjs', '--check'], {
        cwd: root,
        encoding: 'utf8',
        env: { ...process.env, TOLLGATE_LOCK_FILE: file },
        stdio: 'pipe',
      })
      return { code: 0, text }
    } catch (error) {
      const { status, stdout } = asRecord(error)
      return { code: Number(status), text: String(stdout) }
    }
  }

  it('accepts the lock file', () => {
    const args = ['deploy/licences.mjs', '--check']
    expect(execFileSync(process.execPath, args, { cwd: root, encoding: 'utf8' })).toBe('')
  })

  it('accepts any part of an OR and needs all parts of an AND', () => {
    const accepted = {
      'node_modules/a': { version: '1.0.0', license: '(MIT OR GPL-3.0-only)' },
      'node_modules/b': { version: '1.0.0', license: 'Apache-2.0 AND BSD-3-Clause' },
      'node_modules/c': { version: '1.0.0', license: 'MPL-2.0', dev: true },
    }
    expect(check(accepted)).toEqual({ code: 0, text: '' })
  })

  it("refuses a tool's licence in the dashboard's build, at any depth", () => {
    const { code, text } = check({
      'node_modules/react-dom': { ...own, dependencies: { helper: '1' } },
      'node_modules/react-dom/node_modules/helper': { ...own, dependencies: { deep: '1' } },
      'node_modules/deep': { ...own, license: 'MPL-2.0' },
      'node_modules/helper': { ...own, license: 'MPL-2.0' },
    })
    expect([code, text]).toEqual([1, 'MPL-2.0\tproduct\tdeep@1.0.0\n'])
  })

  it.each(['GPL-3.0-only', 'MIT AND AGPL-3.0-only', 'MPL-2.0', undefined])(
    'refuses %s in the product, and names the package',
    (license) => {
      const { code, text } = check({
        'node_modules/@scope/one': { version: '2.0.0', ...(license && { license }) },
      })
      expect(code).toBe(1)
      expect(text).toBe(`${license ?? 'none'}\tproduct\t@scope/one@2.0.0\n`)
    },
  )
})
