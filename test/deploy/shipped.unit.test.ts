import { execFileSync } from 'node:child_process'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'

const root = join(import.meta.dirname, '../..')
const assets = join(root, 'gateway/web/dist/assets')
const print = (...args: string[]): string =>
  execFileSync(process.execPath, args, { cwd: root, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 })

interface Bill {
  readonly bomFormat: string
  readonly components: readonly {
    readonly name: string
    readonly version: string
    readonly properties: readonly { readonly name: string }[]
  }[]
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[]
}

/** "name@version (licence)" of each package in the dashboard's build. */
let bundled: string[]
let notices: string
beforeAll(() => {
  const file = readdirSync(assets).find((name) => /^licences-.*\.txt$/.test(name)) ?? ''
  notices = readFileSync(join(assets, file), 'utf8')
  bundled = [...notices.matchAll(/^(@?[a-z][\w./-]*) (\d[\w.-]*) \((.+)\)$/gm)].map(
    ([, name, version, licence]) => `${name}@${version} (${licence})`,
  )
})

describe("the dashboard's build", () => {
  it('has the licence of each package that it contains, and the document names the file', () => {
    const names = bundled.map((text) => text.replace(/(?<=.)@.*/, ''))
    expect(names).toEqual(expect.arrayContaining(['react', 'react-dom', 'scheduler', 'uplot']))
    expect(notices.match(/Permission is hereby granted, free of charge/g)).toHaveLength(
      bundled.filter((text) => text.endsWith('(MIT)')).length,
    )
    const document = readFileSync(join(assets, '../index.html'), 'utf8')
    const [, file = ''] = /<link rel="license" href="\/app\/assets\/(.+?)">/.exec(document) ?? []
    expect(readdirSync(assets)).toContain(file)
  })

  it('has only packages that npm run licences lists as parts of the product', () => {
    const lines = print('deploy/licences.mjs').split('\n')
    for (const text of bundled) {
      const [, id, licence] = /^(.+) \((.+)\)$/.exec(text) ?? []
      expect(lines).toContain(`${licence}\tproduct\t${id}`)
    }
    expect(lines.some((line) => /\ttool\tvitest@/.test(line))).toBe(true)
  })
})

describe('npm run sbom', () => {
  it("lists the installed packages and those of the dashboard's build, and no tools", () => {
    const bill: Bill = JSON.parse(print('deploy/sbom.mjs'))
    expect(bill.bomFormat).toBe('CycloneDX')
    const ids = bill.components.map(({ name, version }) => `${name}@${version}`)
    expect(ids).toEqual(expect.arrayContaining(bundled.map((text) => text.replace(/ \(.*/, ''))))
    const names = bill.components.map(({ name }) => name)
    expect(names).toEqual(expect.arrayContaining(['pg', 'fastify']))
    for (const tool of ['vitest', 'vite', 'typescript']) expect(names).not.toContain(tool)
    expect(JSON.stringify(bill)).not.toContain('cdx:npm:package:development')
    const refs = new Set([...ids, ...bill.dependencies.map(({ ref }) => ref)])
    for (const { dependsOn } of bill.dependencies)
      for (const each of dependsOn) expect(refs).toContain(each)
  })
})
