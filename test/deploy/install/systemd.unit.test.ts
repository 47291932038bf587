import { execFile } from 'node:child_process'
import { cp, mkdtemp, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newSecret } from '../../../core/lib/crypto.ts'
import { readEnvironment } from '../../../core/lib/settings/environment.ts'
import { secretNames } from '../../../core/lib/settings/names.ts'
import { unknownSettings } from '../../../core/lib/settings/unknown.ts'
import { declaredSettings, readSettings } from '../../../deploy/cli/settings.ts'

const run = promisify(execFile)
const root = join(import.meta.dirname, '../../..')
const source = join(root, 'deploy/systemd')
const processes = ['core', 'gateway', 'sidecar', 'collector']
const units = processes.map((name) => `tollgate-${name}.service`)
/** Highest exposure that systemd reports for a unit; a unit without hardening has 9.6. */
const maxExposure = 1.8

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-systemd-'))
  await cp(source, folder, { recursive: true })
  await symlink(root, join(folder, 'installation'))
  for (const unit of units) {
    const text = await readFile(join(source, unit), 'utf8')
    // systemd-analyze requires the program to exist.
    const installed = text.replaceAll('/opt/tollgate/', `${folder}/installation/`)
    await writeFile(
      join(folder, unit),
      installed.replace(/^ExecStart=\S+node /m, `ExecStart=${process.execPath} `),
    )
  }
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const assignments = (text: string, key: string): string[] =>
  [...text.matchAll(new RegExp(`^${key}=(.*)$`, 'gm'))].map(([, value = '']) => value)

const variablesIn = (lines: readonly string[]): Record<string, string> =>
  Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  )

const exampleSettings = async (): Promise<Record<string, string>> => {
  const text = await readFile(join(source, 'tollgate.env.example'), 'utf8')
  return variablesIn(text.split('\n').filter((line) => /^[A-Z]/.test(line)))
}

/** Values for the credentials of the units, by file name. */
const credentials = new Map([
  ['database-url', `postgres://tollgate:${newSecret('')}@127.0.0.1/tollgate`],
  ['secret-peppers', `p1:${newSecret('')}`],
])

/** The variables of a process: those of its unit, with its credentials in files, and the example's. */
async function environmentOf(name: string): Promise<Record<string, string>> {
  const text = await readFile(join(source, `tollgate-${name}.service`), 'utf8')
  const loaded = assignments(text, 'LoadCredential').map((line) => line.split(':')[0] ?? '')
  for (const credential of loaded)
    await writeFile(join(folder, credential), credentials.get(credential) ?? newSecret(''))
  const own = variablesIn(assignments(text, 'Environment'))
  const files = Object.values(own).flatMap((value) =>
    value.startsWith('%d/') ? [value.slice(3)] : [],
  )
  expect([name, files.toSorted()]).toEqual([name, loaded.toSorted()])
  const resolved = Object.entries(own).map(([key, value]) => [key, value.replace('%d', folder)])
  return { ...(await exampleSettings()), ...Object.fromEntries(resolved) }
}

describe('deploy/systemd', () => {
  it('has a unit for each process, which systemd accepts', async () => {
    const files = (await readdir(source)).filter((name) => name.endsWith('.service'))
    expect(files.toSorted()).toEqual(units.toSorted())
    const paths = units.map((unit) => join(folder, unit))
    const { stdout, stderr } = await run('systemd-analyze', ['verify', '--man=no', ...paths])
    expect(stdout + stderr).toBe('')
  })

  it.each(units)('hardens %s', async (unit) => {
    const { stdout } = await run('systemd-analyze', [
      'security',
      '--offline=yes',
      '--no-pager',
      join(folder, unit),
    ])
    const [, exposure = ''] = /exposure level for .*: ([\d.]+)/.exec(stdout) ?? []
    expect(Number(exposure)).toBeGreaterThan(0)
    expect(Number(exposure)).toBeLessThanOrEqual(maxExposure)
  })

  it.each(processes)('passes the checks of %s, without a warning', async (name) => {
    const env = await environmentOf(name)
    const { problems, warnings } = readSettings(await readEnvironment(env), name)
    expect([problems, warnings, unknownSettings(env)]).toEqual([[], [], []])
  })

  it('sets only settings, and no secret outside of a credential', async () => {
    const names = new Set(declaredSettings().map(({ name }) => name))
    const example = Object.keys(await exampleSettings())
    expect(example.filter((key) => !names.has(key))).toEqual([])
    // This URL has no password.
    const open = example.filter((key) => secretNames.includes(key) && key !== 'REDIS_URL')
    expect(open).toEqual([])
    for (const name of processes) {
      const text = await readFile(join(source, `tollgate-${name}.service`), 'utf8')
      const keys = Object.keys(variablesIn(assignments(text, 'Environment')))
      const strangers = keys.filter(
        (key) => !names.has(key) && !names.has(key.replace(/_FILE$/, '')),
      )
      expect([name, strangers]).toEqual([name, []])
    }
  })

  it('restarts a process while its database is unavailable', async () => {
    const common = await readFile(join(source, 'tollgate-.service.d/hardening.conf'), 'utf8')
    expect(assignments(common, 'StartLimitIntervalSec')).toEqual(['0'])
    for (const name of processes) {
      const text = await readFile(join(source, `tollgate-${name}.service`), 'utf8')
      expect(assignments(text, 'Restart')).toEqual(['on-failure'])
      // A start that waits for another unit fails with it, once and for all.
      expect(assignments(text, 'Requires')).toEqual([])
      expect(assignments(text, 'Environment')).not.toContain('MIGRATE=off')
    }
  })
})
