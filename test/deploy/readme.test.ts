import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const root = join(import.meta.dirname, '../..')
const ownOfProcesses = [
  'CORE_ADMIN_PORT',
  'GATEWAY_ADMIN_PORT',
  'SIDECAR_ADMIN_PORT',
  'COLLECTOR_ADMIN_PORT',
]

interface Listed {
  readonly settings: readonly { readonly name: string }[]
}

it('lists in the README every setting that there is, and no other', async () => {
  const program = `import { main } from './deploy/cli/main.ts'; process.exitCode = await main(['config', '--json'])`
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--input-type=module', '--eval', program],
    {
      cwd: root,
      env: { PATH: process.env['PATH'] },
    },
  )
  const { settings }: Listed = JSON.parse(stdout)
  const readme = await readFile(join(root, 'README.md'), 'utf8')
  const [, section = ''] = /\n## Settings\n(.*?)\n## /s.exec(readme) ?? []
  const firstCells = section
    .split('\n')
    .map((line) => line.split('|')[1] ?? '')
    .join()
  const told = [...firstCells.matchAll(/`([A-Z0-9_]+)`/g)].map(([, name]) => name)
  expect(told.toSorted()).toEqual(
    [...settings.map(({ name }) => name), ...ownOfProcesses].toSorted(),
  )
})
