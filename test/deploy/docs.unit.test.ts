import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { main } from '../../deploy/main.ts'
import { declaredSettings } from '../../deploy/cli/settings.ts'
import { renderPage } from '../../deploy/docs/picture.ts'

const read = (path: string): string =>
  readFileSync(join(import.meta.dirname, '../..', path), 'utf8')

// `npm run check` checks that the pages are up to date with `npm run docs`.
describe('the settings of docs/configuration.md', () => {
  it('include all settings of ./tollgate config', async () => {
    const output: string[] = []
    const write = process.stdout.write
    process.stdout.write = (text) => output.push(String(text)) > 0
    await main(['config', '--json']).finally(() => (process.stdout.write = write))
    const { settings }: { settings: { name: string; value: string; source: string }[] } =
      JSON.parse(output.join(''))
    // The command covers the all-in-one service.
    expect(settings).toContainEqual(
      expect.objectContaining({ name: 'ACTIVATION_GATE_MODE', value: 'log', source: 'default' }),
    )
    const names = declaredSettings().map(({ name }) => name)
    expect(names).toEqual(expect.arrayContaining(settings.map(({ name }) => name)))
  })

  it.each(['core', 'gateway', 'sidecar', 'core/collector'])(
    'include the admin port of %s as its main.ts declares it',
    (folder) => {
      const [, name, fallback] =
        /setting: '(\w+)', fallback: '(\d+)'/.exec(read(`${folder}/main.ts`)) ?? []
      expect(declaredSettings()).toContainEqual(expect.objectContaining({ name, fallback }))
    },
  )
})

describe('the picture of the demo', () => {
  it('shows each line of the output, with its markup escaped', () => {
    const { html, height } = renderPage('  Key        <a&b>\n  Balance    ██░ $1.00\n')
    expect(html).toContain('$ npm run demo\n\n<b>  Key</b>        &lt;a&amp;b>\n')
    expect(html).toContain('<b>  Balance</b>    <i>██</i>░ $1.00</pre>')
    expect(height).toBe(renderPage('').height + 19)
  })
})
