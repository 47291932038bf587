import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'

const root = join(import.meta.dirname, '../..')
const files = [
  'package.json',
  'package-lock.json',
  'CHANGELOG.md',
  'docs/install.md',
  'deploy/release.json',
  'deploy/helm/tollgate/Chart.yaml',
  'deploy/docker',
  'core/db/migrations',
]

/** Runs `npm run release` on a copy of the files that it changes. */
function createCopy() {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-release-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  for (const file of files) cpSync(join(root, file), join(folder, file), { recursive: true })
  const isSource = (path: string): boolean => path !== join(root, 'proto/gen')
  cpSync(join(root, 'proto'), join(folder, 'proto'), { recursive: true, filter: isSource })
  const path = (name: string): string => join(folder, name)
  return {
    read: (name: string): string => readFileSync(path(name), 'utf8'),
    edit: (name: string, from: string | RegExp, to: string) =>
      writeFileSync(path(name), readFileSync(path(name), 'utf8').replace(from, to)),
    release: (argument: string) => {
      const { status, stderr } = spawnSync(process.execPath, ['deploy/release.mjs', argument], {
        cwd: root,
        encoding: 'utf8',
        env: {
          PATH: [join(root, 'node_modules/.bin'), process.env['PATH']].join(delimiter),
          HOME: folder,
          TOLLGATE_RELEASE_ROOT: folder,
        },
      })
      return { status, stderr }
    },
  }
}

const accepted = { status: 0, stderr: '' }

describe('npm run release', () => {
  it('writes the number, the date, the last migration and the baseline, and then passes its check', () => {
    const { release, read, edit } = createCopy()
    edit('CHANGELOG.md', '## Unreleased\n', '## Unreleased\n\n- A change.\n')
    expect(release('--check')).toEqual(accepted)
    expect(release('7.8.9')).toEqual(accepted)
    expect(release('--check')).toEqual(accepted)
    expect(read('CHANGELOG.md')).toMatch(
      /## Unreleased\n\n## 7\.8\.9 \(\d{4}-\d\d-\d\d\)\n\n- A change/,
    )
    expect(read('deploy/docker/Dockerfile')).toContain('org.opencontainers.image.version=7.8.9')
    const { version, migration } = JSON.parse(read('deploy/release.json'))
    expect([version, migration > '0030']).toEqual(['7.8.9', true])
    expect(JSON.parse(read('package-lock.json')).packages[''].version).toBe('7.8.9')
  }, 60_000)

  it('refuses an earlier number and what is no number, and changes nothing', () => {
    const { release, read } = createCopy()
    const before = files.slice(0, 5).map(read)
    for (const version of ['0.0.9', '1.0', 'v9.0.0']) expect(release(version).status).toBe(1)
    expect(files.slice(0, 5).map(read)).toEqual(before)
  })

  it('refuses to release without notes', () => {
    const { release, edit } = createCopy()
    edit('CHANGELOG.md', /## Unreleased\n[\s\S]*?\n## /, '## Unreleased\n\n## ')
    expect(release('7.8.9').stderr).toContain('nothing is under "## Unreleased"')
  })
})

describe('npm run release -- --check', () => {
  it('finds each fault, with its file', () => {
    const { release, edit, read } = createCopy()
    for (const [file, from, to] of [
      ['deploy/helm/tollgate/Chart.yaml', /^appVersion: .*$/m, 'appVersion: 0.0.1'],
      ['deploy/docker/Dockerfile', /image\.version=\S+/, 'image.version=0.0.1'],
      ['CHANGELOG.md', '## Unreleased\n', ''],
      ['CHANGELOG.md', / \(\d{4}-\d\d-\d\d\)$/m, ''],
      ['deploy/release.json', /\d+_\w+\.sql/, '0000_none.sql'],
    ] as const) {
      const before = read(file)
      edit(file, from, to)
      expect(release('--check')).toMatchObject({ status: 1, stderr: expect.stringContaining(file) })
      edit(file, /^[\s\S]*$/, before.replaceAll('$', '$$$$'))
    }
    expect(release('--check')).toEqual(accepted)
  })
})
